/* kv_cache_write.c - converts new tokens to the stored type and writes them to the pages of a KV cache. */
#include "attn/cache/kv_cache.h"
#include "attn/plan/rotary.h"
#include "math/half.h"
#include "math/types/e4m3.h"
#include "math/types/element.h"
#include <math.h>
#include <string.h>

/* Converts `n` elements, `stride` apart, to contiguous elements. */
typedef void (*convert_fn)(const void *from, int64_t stride, int64_t n, void *to);

#define COPY(name, type)                                                    \
    static void name(const void *from, int64_t stride, int64_t n, void *to) \
    {                                                                       \
        const type *x = from;                                               \
        type *y = to;                                                       \
        if (stride == 1) memcpy(y, x, (size_t)n * sizeof *y);               \
        for (int64_t i = 0; i < n && stride != 1; i++)                      \
            y[i] = x[i * stride];                                           \
    }
#define ROUND(name, function)                                               \
    static void name(const void *from, int64_t stride, int64_t n, void *to) \
    {                                                                       \
        const float *x = from;                                              \
        uint16_t *y = to;                                                   \
        for (int64_t i = 0; i < n; i++)                                     \
            y[i] = function(x[i * stride]);                                 \
    }
COPY(copy16, uint16_t)
COPY(copy32, uint32_t)
COPY(copy64, uint64_t)
ROUND(to_bf16, mha__f32_to_bf16)
ROUND(to_f16, mha__f32_to_f16)

static void to_q8(const void *from, int64_t stride, int64_t n, void *to)
{
    mha__q8_round(from, stride, n, to);
}

static void to_q4(const void *from, int64_t stride, int64_t n, void *to)
{
    mha__q4_round_rotated(from, stride, n, to);
}

static void to_e4m3(const void *from, int64_t stride, int64_t n, void *to)
{
    mha__e4m3_round(from, stride, n, to);
}

/* Exclusive limit of finite elements in q8_0: 127 times the smallest f32 that is rounded to a value above the
 * largest f16. */
static const float Q8_END = 127 * 65520.0F;

float mha__cache_end(mha_dtype stored)
{
    return stored == MHA_Q8_0 ? Q8_END : stored == MHA_Q4_0 ? MHA__Q4_END : INFINITY;
}

static const struct conversion {
    mha_dtype from, to;
    convert_fn convert;
} conversions[] = {{MHA_F32, MHA_F32, copy32}, {MHA_F64, MHA_F64, copy64},   {MHA_BF16, MHA_BF16, copy16},
                   {MHA_F16, MHA_F16, copy16}, {MHA_F32, MHA_BF16, to_bf16}, {MHA_F32, MHA_F16, to_f16},
                   {MHA_F32, MHA_Q8_0, to_q8}, {MHA_F32, MHA_Q4_0, to_q4},   {MHA_F32, MHA_F8_E4M3, to_e4m3}};
enum { CONVERSIONS = sizeof conversions / sizeof *conversions };

static convert_fn conversion_of(mha_dtype from, mha_dtype to)
{
    for (int n = 0; n < CONVERSIONS; n++)
        if (conversions[n].from == from && conversions[n].to == to) return conversions[n].convert;
    return NULL;
}

mha_dtype mha__cache_source(mha_dtype stored)
{
    return mha__is_cache_only(stored) ? MHA_F32 : stored;
}

bool mha__cache_converts(mha_dtype from, mha_dtype to)
{
    return conversion_of(from, to) != NULL;
}

int64_t mha__cache_position(const mha_attn_rope *rope, int64_t n, int64_t t, int64_t key)
{
    const mha_cview *at = &rope->k_positions;
    return at->data ? *(const int64_t *)mha__at(at, sizeof(int64_t), n, t, 0, 0) : key;
}

void mha__cache_load(const mha__cache_rows *rows, int64_t n, int64_t g, int64_t t, int64_t key, void *row)
{
    const bool wide = rows->dtype == MHA_F64;
    const int64_t stride = rows->view->stride[3];
    const void *from = mha__at(rows->view, mha_dtype_size(rows->dtype), n, g, t, 0);
    for (int64_t i = 0; i < rows->width; i++)
        if (wide)
            ((double *)row)[i] = ((const double *)from)[i * stride];
        else
            ((float *)row)[i] = rows->dtype == MHA_BF16  ? mha__bf16_to_f32(((const uint16_t *)from)[i * stride])
                                : rows->dtype == MHA_F16 ? mha__f16_to_f32(((const uint16_t *)from)[i * stride])
                                                         : ((const float *)from)[i * stride];
    if (rows->rope)
        mha__rope_turn_row(rows->rope, mha__cache_position(rows->rope, n, t, key), false,
                           wide ? sizeof(double) : sizeof(float), row);
}

void mha__cache_write(mha_cache *c, int64_t sequence, int64_t position, int64_t count, const mha__cache_rows *rows,
                      int64_t n, char *pages)
{
    const mha_dtype dtype = rows->rope && rows->dtype != MHA_F64 ? MHA_F32 : rows->dtype;
    const convert_fn convert = conversion_of(dtype, c->desc.dtype);
    const int64_t size = (int64_t)mha__element_size(c->desc.dtype), width = rows->width;
    const int64_t elements = mha__element_count(c->desc.dtype, width);
    const int64_t heads = c->desc.kv_heads, page_size = c->desc.page_size;
    double turned[MHA_HEAD_DIM_MAX]; /* or floats */
    for (int64_t t = 0; t < count; t++) {
        const int64_t key = position + t, page = *mha__cache_entry(c, sequence, key / page_size);
        for (int64_t g = 0; g < heads; g++) {
            char *to = pages + ((page * heads + g) * page_size + key % page_size) * elements * size;
            if (rows->rope) {
                mha__cache_load(rows, n, g, t, key, turned);
                convert(turned, 1, width, to);
            } else {
                convert(mha__at(rows->view, mha_dtype_size(dtype), n, g, t, 0), rows->view->stride[3], width, to);
            }
        }
    }
}
