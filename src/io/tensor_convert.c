/* tensor_convert.c - converts the elements of a tensor to f32, f64 or i64, or copies them. Elements are loaded by
 * memcpy, because they may be unaligned in a file. */
#include "base/error.h"
#include "io/block_types.h"
#include "io/derived_tensor.h"
#include "math/half.h"
#include "math/types/e4m3.h"
#include "mha/io.h"
#include <stdbool.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors in files are little-endian and used in place");

/* An element of any type, without loss: a float of at most 64 bits, or a signed or unsigned integer. */
typedef struct number {
    enum { REAL, SIGNED, UNSIGNED } kind;
    union {
        double real;
        int64_t i;
        uint64_t u;
    };
} number;

static number load(mha_dtype dtype, const char *p)
{
    union {
        float f32;
        double f64;
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
    } x;
    memcpy(&x, p, mha_dtype_size(dtype));
    switch (dtype) {
    case MHA_F32:
        return (number){.kind = REAL, .real = x.f32};
    case MHA_F64:
        return (number){.kind = REAL, .real = x.f64};
    case MHA_BF16:
        return (number){.kind = REAL, .real = mha__bf16_to_f32(x.u16)};
    case MHA_F16:
        return (number){.kind = REAL, .real = mha__f16_to_f32(x.u16)};
    case MHA_F8_E4M3:
        return (number){.kind = REAL, .real = mha__e4m3_to_f32(x.u8)};
    case MHA_BOOL:
        return (number){.kind = UNSIGNED, .u = x.u8 != 0};
    case MHA_U8:
        return (number){.kind = UNSIGNED, .u = x.u8};
    case MHA_U16:
        return (number){.kind = UNSIGNED, .u = x.u16};
    case MHA_U32:
        return (number){.kind = UNSIGNED, .u = x.u32};
    case MHA_U64:
        return (number){.kind = UNSIGNED, .u = x.u64};
    case MHA_I8:
        return (number){.kind = SIGNED, .i = x.i8};
    case MHA_I16:
        return (number){.kind = SIGNED, .i = x.i16};
    case MHA_I32:
        return (number){.kind = SIGNED, .i = x.i32};
    default: /* MHA_I64; mha_tensor_read rejects all other types */
        return (number){.kind = SIGNED, .i = x.i64};
    }
}

/* Convert a number with a single rounding and store it as element `at`. Return false if the number does not fit. */
static bool put_f32(number x, void *out, int64_t at)
{
    ((float *)out)[at] = x.kind == REAL ? (float)x.real : x.kind == SIGNED ? (float)x.i : (float)x.u;
    return true;
}

static bool put_f64(number x, void *out, int64_t at)
{
    ((double *)out)[at] = x.kind == REAL ? x.real : x.kind == SIGNED ? (double)x.i : (double)x.u;
    return true;
}

static bool put_i64(number x, void *out, int64_t at)
{
    if (x.kind == UNSIGNED && x.u > INT64_MAX) return false;
    ((int64_t *)out)[at] = x.kind == SIGNED ? x.i : (int64_t)x.u;
    return true;
}

static bool is_real(mha_dtype dtype)
{
    return dtype == MHA_F32 || dtype == MHA_F64 || dtype == MHA_F16 || dtype == MHA_BF16 || dtype == MHA_F8_E4M3;
}

mha_status mha_tensor_read(const mha_tensor *tensor, mha_dtype dtype, void *out, mha_error *err)
{
    if (!tensor || !out)
        return mha__fail(err, MHA_ERR_ARG, "mha_tensor_read: %s must not be NULL", tensor ? "out" : "tensor");
    mha__quoted q;
    mha__quote(&q, tensor->name, strlen(tensor->name));
    bool (*put)(number, void *, int64_t) = dtype == MHA_F32   ? put_f32
                                           : dtype == MHA_F64 ? put_f64
                                           : dtype == MHA_I64 ? put_i64
                                                              : NULL;
    size_t each = mha_dtype_size(tensor->dtype);
    const mha__block_type *blocks = dtype == MHA_F32 ? mha__block_type_of(tensor) : NULL;
    const mha__derived *derived = dtype == MHA_F32 ? mha__derived_of(tensor) : NULL;
    if (derived) {
        mha__derived_read(derived, 0, tensor->elements, out);
        return MHA_OK;
    }
    if (blocks) {
        mha__blocks_to_f32(blocks, tensor->data, tensor->elements, out);
        return MHA_OK;
    }
    const bool same = tensor->dtype == dtype;
    if (each == 0 || (!same && (!put || (dtype == MHA_I64 && is_real(tensor->dtype)))))
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "tensor \"%s\": %s cannot be read as %s", q.text, tensor->dtype_name,
                         mha_dtype_name(dtype));
    if (same) {
        memcpy(out, tensor->data, tensor->bytes);
        return MHA_OK;
    }
    const char *p = tensor->data;
    for (int64_t i = 0; i < tensor->elements; i++, p += each)
        if (!put(load(tensor->dtype, p), out, i))
            return mha__fail(err, MHA_ERR_FORMAT,
                             "tensor \"%s\": element %lld must be at most 2^63 - 1 to be read as i64", q.text,
                             (long long)i);
    return MHA_OK;
}

bool mha__tensor_quantized(const mha_tensor *tensor)
{
    return mha__block_type_of(tensor) || mha__derived_of(tensor);
}

/* Returns a view of elements [first, first + count), which must be whole blocks. */
static mha_tensor part_of(const mha_tensor *tensor, int64_t first, int64_t count)
{
    const mha__block_type *type = mha__block_type_of(tensor);
    const int64_t elements = type ? type->elements : 1;
    const size_t bytes = type ? type->bytes : mha_dtype_size(tensor->dtype);
    mha_tensor part = *tensor;
    part.data = (const char *)tensor->data + (size_t)(first / elements) * bytes;
    part.elements = count;
    part.bytes = (size_t)(count / elements) * bytes;
    return part;
}

mha_status mha__tensor_read_part(const mha_tensor *tensor, int64_t first, int64_t count, float *out, mha_error *err)
{
    const mha__derived *derived = mha__derived_of(tensor);
    const mha_tensor part = part_of(tensor, first, count);
    if (!derived) return mha_tensor_read(&part, MHA_F32, out, err);
    mha__derived_read(derived, first, count, out);
    return MHA_OK;
}

int mha_tensor_aligned(const mha_tensor *tensor)
{
    const size_t each = tensor ? mha_dtype_size(tensor->dtype) : 0;
    return each > 0 && (uintptr_t)tensor->data % each == 0;
}
