/* q8_0.c - quantizes rows of f32 elements to q8_0. */
#include "math/q8_0.h"

#include "math/half.h"
#include <math.h>
#include <stdbool.h>

static const float MOST = 127; /* -128 is not used, so that the range is symmetric */

static void round_block(const float *x, int64_t stride, int64_t n, mha__q8 *block)
{
    float largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const float size = fabsf(x[i * stride]);
        if (size > largest || isnan(size)) largest = size;
        if (isnan(size)) break;
    }
    block->scale = mha__f32_to_f16(largest / MOST);
    const float scale = mha__f16_to_f32(block->scale); /* the rounded scale, which dequantization uses */
    const bool finite = isfinite(scale);
    if (!finite) block->scale = mha__f32_to_f16(NAN);
    for (int64_t i = 0; i < MHA__Q8_BLOCK; i++) {
        const float q = i < n && finite && scale > 0 ? x[i * stride] / scale : 0;
        block->q[i] = (int8_t)(fabsf(q) >= MOST ? copysignf(MOST, q) : q + copysignf(0.5F, q));
    }
}

void mha__q8_round(const float *x, int64_t stride, int64_t n, mha__q8 *blocks)
{
    for (int64_t i = 0; i < n; i += MHA__Q8_BLOCK, blocks++)
        round_block(x + i * stride, stride, n - i < MHA__Q8_BLOCK ? n - i : MHA__Q8_BLOCK, blocks);
}
