/* types.h - what every other header of mha speaks: status, error, data type, view.
 *
 * The rules of the whole API, once:
 *   - Every function that can fail returns an mha_status; MHA_OK is 0.
 *   - The last parameter of such a function is an `mha_error *`, which may be NULL. On failure it holds the
 *     status and one sentence for people, with names and values. On success it is left alone.
 *   - The library borrows every pointer for the length of the call and owns only what a `_create` or `_open`
 *     returned, until the matching `_free`. Every `_free` accepts NULL. A failing `_create` stores NULL.
 *   - Structs that are passed in begin with `size`; set it to sizeof the struct. Zero is the default of every
 *     other field, so a zero-initialised struct is the plain case.
 *   - A handle of NULL is refused with MHA_ERR_ARG; a function without a status returns what it returns for an absent
 *     item: 0, -1, NaN, NULL or MHA_LABEL_MIXED.
 *   - The library never prints, exits or aborts, and keeps no global state but the default context (ctx.h).
 *   - Sizes, lengths and strides are int64_t and count elements, never bytes.
 */
#ifndef MHA_TYPES_H
#define MHA_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MHA_API __attribute__((visibility("default")))
#else
#define MHA_API
#endif

/* X(name, value, text). The values are part of the ABI. */
#define MHA_STATUS_MAP(X)                                 \
    X(MHA_OK, 0, "success")                               \
    X(MHA_ERR_ARG, 1, "invalid argument")                 \
    X(MHA_ERR_MEMORY, 2, "out of memory")                 \
    X(MHA_ERR_UNSUPPORTED, 3, "not supported")            \
    X(MHA_ERR_IO, 4, "file could not be read or written") \
    X(MHA_ERR_FORMAT, 5, "file is malformed")             \
    X(MHA_ERR_CANCELLED, 6, "cancelled by a callback")    \
    X(MHA_ERR_NOT_FINITE, 7, "a number is not finite")

typedef enum mha_status {
#define MHA__X(name, value, text) name = value,
    MHA_STATUS_MAP(MHA__X)
#undef MHA__X
} mha_status;

/* A sentence about what went wrong. Plain memory: declare it on the stack, free nothing.
 * Text that came from a file is already escaped for a terminal (no control characters) and shortened. */
typedef struct mha_error {
    mha_status status;
    char message[1024]; /* UTF-8, always terminated */
} mha_error;

/* "invalid argument" and so on; "unknown status" for other values. Never NULL. */
MHA_API const char *mha_status_text(mha_status status);

/* Element types. MHA_DTYPE_DEFAULT in a description means f32, or "as the field beside it". */
typedef enum mha_dtype {
    MHA_DTYPE_DEFAULT = 0,
    MHA_F32,
    MHA_BF16,
    MHA_F16,
    MHA_F64,
    MHA_Q8_0, /* int8 in blocks of 32 with one f16 scale (scale, then 32 int8: 34 bytes); keys and values only */
    MHA_BOOL,
    MHA_U8,
    MHA_I8,
    MHA_U16,
    MHA_I16,
    MHA_U32,
    MHA_I32,
    MHA_U64,
    MHA_I64,
    MHA_DTYPE_OTHER /* a type that files may hold and that mha only passes through (F8_E4M3, C64 ...) */
} mha_dtype;

/* "f32", "bf16" ...; "unknown" for other values. Never NULL. */
MHA_API const char *mha_dtype_name(mha_dtype dtype);
/* Bytes of one element; 0 for MHA_DTYPE_DEFAULT, MHA_Q8_0 and MHA_DTYPE_OTHER. */
MHA_API size_t mha_dtype_size(mha_dtype dtype);

/* A four-dimensional view of memory that the caller owns. Strides count elements; a stride may be anything,
 * also 0 (broadcast) or negative. All four zero means "contiguous" for q, k, v, out, lse and probs, whose
 * shapes the description gives; for masks and biases a zero stride always broadcasts. */
typedef struct mha_cview {
    const void *data;
    int64_t stride[4];
} mha_cview;

typedef struct mha_view {
    void *data;
    int64_t stride[4];
} mha_view;

/* A tensor in memory under the name that it has in a file: row-major, contiguous. Layers list theirs; io.h writes such
 * lists to files and reads them back. */
typedef struct mha_named_tensor {
    const char *name;
    mha_dtype dtype; /* of layers: f32 or f64; in files any that they hold */
    int rank;        /* 0..4 */
    int64_t shape[4];
    void *data;
} mha_named_tensor;

#ifdef __cplusplus
}
#endif
#endif
