/* q8_0.c - quantizes f32 elements to int8 with a scale, and rows to blocks of q8_0. */
#include "math/q8_0.h"

#include "math/half.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

static const float MOST = 127; /* -128 is not used, so that the range is symmetric */

uint16_t mha__int8_round(const float *x, int64_t stride, int64_t n, int8_t *q)
{
    float largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const float size = fabsf(x[i * stride]);
        if (size > largest || isnan(size)) largest = size;
        if (isnan(size)) break;
    }
    const uint16_t stored = mha__f32_to_f16(largest / MOST);
    const float scale = mha__f16_to_f32(stored); /* the rounded scale, which dequantization uses */
    const bool finite = isfinite(scale);
    for (int64_t i = 0; i < n; i++) {
        const float to = finite && scale > 0 ? x[i * stride] / scale : 0;
        q[i] = (int8_t)(fabsf(to) >= MOST ? copysignf(MOST, to) : to + copysignf(0.5F, to));
    }
    return finite ? stored : mha__f32_to_f16(NAN);
}

void mha__q8_round(const float *x, int64_t stride, int64_t n, mha__q8 *blocks)
{
    for (int64_t i = 0; i < n; i += MHA__Q8_BLOCK, blocks++) {
        const int64_t count = n - i < MHA__Q8_BLOCK ? n - i : MHA__Q8_BLOCK;
        blocks->scale = mha__int8_round(x + i * stride, stride, count, blocks->q);
        memset(blocks->q + count, 0, (size_t)(MHA__Q8_BLOCK - count));
    }
}
