/* types.h - the types shared by all headers: status, error, data type, view.
 *
 * Conventions of the whole API:
 *   - Every function that can fail returns an mha_status; MHA_OK is 0.
 *   - The last parameter of such a function is an `mha_error *`, which may be NULL. On failure it receives the
 *     status and one human-readable sentence with names and values. On success it is unchanged.
 *   - The library borrows every pointer for the duration of the call. It owns only the objects that a `_create` or
 *     `_open` returned, until the matching `_free`. Every `_free` accepts NULL. A failing `_create` stores NULL.
 *   - Structs that are passed in begin with `size`; set it to sizeof the struct. In all other fields zero selects the
 *     default, so zero-initialize the struct and set only the fields that differ.
 *   - Structs without `size` never change their layout, except for structs that only the library creates: later
 *     versions may add fields at their end if their comment says so.
 *   - A NULL handle is MHA_ERR_ARG. Given a NULL handle, a function without a status returns the value for a missing
 *     item: 0, -1, NaN, NULL or MHA_LABEL_MIXED.
 *   - The library never prints, exits or aborts, and has no global state except the default context (ctx.h).
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

/* X(name, value, text of mha_status_text). The values are part of the ABI. */
#define MHA_STATUS_MAP(X)                                 \
    X(MHA_OK, 0, "success")                               \
    X(MHA_ERR_ARG, 1, "invalid argument")                 \
    X(MHA_ERR_MEMORY, 2, "out of memory")                 \
    X(MHA_ERR_UNSUPPORTED, 3, "not supported")            \
    X(MHA_ERR_IO, 4, "file could not be read or written") \
    X(MHA_ERR_FORMAT, 5, "file is malformed")             \
    X(MHA_ERR_CANCELED, 6, "canceled by a callback")      \
    X(MHA_ERR_NOT_FINITE, 7, "a value is not finite")

typedef enum mha_status {
#define MHA__X(name, value, text) name = value,
    MHA_STATUS_MAP(MHA__X)
#undef MHA__X
} mha_status;

/* Describes a failure in one sentence. Plain data: may be declared on the stack, and need not be freed. Text from files
 * is shortened, and escaped so that it contains no control characters. */
typedef struct mha_error {
    mha_status status;
    char message[1024]; /* UTF-8, always terminated */
} mha_error;

/* Returns "invalid argument" and so on; "unknown status" for other values. Never NULL. */
MHA_API const char *mha_status_text(mha_status status);

/* Reads a public struct that begins with `size` from a caller whose header may be older or newer: copies `given` to
 * `own`, which has own_size bytes. Fields that a smaller (older) struct lacks become zero. A larger (newer) struct is
 * accepted if all bytes that `own` lacks are zero. The size field of `own` becomes own_size. A NULL `given` is
 * equivalent to all zeros. Messages use `name` as the name of the struct. Every function of this library reads structs
 * in this way; libraries on top of it, such as libmha_mpi, call this function. Errors: MHA_ERR_ARG for an invalid
 * `size`, MHA_ERR_UNSUPPORTED for a newer struct with later fields set. */
MHA_API mha_status mha_struct_read(void *own, size_t own_size, const void *given, const char *name, mha_error *err);

/* Element types. MHA_DTYPE_DEFAULT in a description means f32, or the default that the field documents. */
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
    MHA_DTYPE_OTHER, /* a type in files whose elements the library can only copy (F8_E4M3, C64 ...) */
    MHA_Q4_0,   /* int4 in blocks of 32 with one f16 scale (scale, then 16 bytes: 18 bytes); keys and values only, whose
                 blocks of 32 elements are rotated (cache.h); not used for tensors of files */
    MHA_F8_E4M3 /* 8-bit floating point: 4 exponent bits, 3 fraction bits, no infinity; keys and values only;
                    not used for tensors of files */
} mha_dtype;

/* Returns "f32", "bf16" and so on; "unknown" for other values. Never NULL. */
MHA_API const char *mha_dtype_name(mha_dtype dtype);
/* Returns the size of an element in bytes; 0 for MHA_DTYPE_DEFAULT, MHA_Q8_0, MHA_Q4_0 and MHA_DTYPE_OTHER. */
MHA_API size_t mha_dtype_size(mha_dtype dtype);

/* A four-dimensional view of the caller's memory. Strides count elements and may have any value, including 0
 * (broadcast) and negative values. For q, k, v, out, lse and probs, whose shapes the description defines, four zero
 * strides mean contiguous; for masks and biases a zero stride always broadcasts. */
typedef struct mha_cview {
    const void *data;
    int64_t stride[4];
} mha_cview;

typedef struct mha_view {
    void *data;
    int64_t stride[4];
} mha_view;

/* A named tensor in memory, row-major and contiguous. Layers list their tensors; io.h reads and writes these lists. */
typedef struct mha_named_tensor {
    const char *name;
    mha_dtype dtype; /* f32 or f64 in lists of layers; any type in lists for files */
    int rank;        /* 0..4 */
    int64_t shape[4];
    void *data;
} mha_named_tensor;

#ifdef __cplusplus
}
#endif
#endif
