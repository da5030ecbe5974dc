/* q4_0.c - rotates rows of f32 elements and rounds them to blocks of q4_0. */
#include "math/types/q4_0.h"

#include "math/half.h"
#include <math.h>
#include <stdbool.h>

static const float INVERSE_ROOT = 0.17677669529663687F; /* 1 / sqrt(32) */

/* Multiplies 32 elements by the Hadamard matrix of order 32 / sqrt(32), in 5 stages of sums and differences. */
static void rotate(float x[MHA__Q4_BLOCK])
{
    for (int half = 1; half < MHA__Q4_BLOCK; half *= 2)
        for (int i = 0; i < MHA__Q4_BLOCK; i += 2 * half)
            for (int j = i; j < i + half; j++) {
                const float a = x[j], b = x[j + half];
                x[j] = a + b;
                x[j + half] = a - b;
            }
    for (int i = 0; i < MHA__Q4_BLOCK; i++)
        x[i] *= INVERSE_ROOT;
}

void mha__rotate_rows(int64_t rows, int64_t n, float *x, int64_t stride)
{
    for (int64_t r = 0; r < rows; r++, x += stride)
        for (int64_t i = 0; i < n; i += MHA__Q4_BLOCK)
            rotate(x + i);
}

/* Returns the element of the largest magnitude, or NaN if there is one. */
static float extreme(const float x[MHA__Q4_BLOCK])
{
    float max = 0;
    for (int i = 0; i < MHA__Q4_BLOCK && !isnan(max); i++)
        if (fabsf(x[i]) > fabsf(max) || isnan(x[i])) max = x[i];
    return max;
}

static int round_to(float x, float scale)
{
    const float to = x / scale + 8.5F;
    return to >= 15 ? 15 : to > 0 ? (int)to : 0;
}

static void round_block(const float x[MHA__Q4_BLOCK], mha__q4 *block)
{
    const uint16_t stored = mha__f32_to_f16(extreme(x) / -8);
    const float scale = mha__f16_to_f32(stored); /* the rounded scale, which dequantization uses */
    const bool finite = isfinite(scale), rounds = finite && scale != 0;
    block->scale = finite ? stored : mha__f32_to_f16(NAN);
    for (int i = 0; i < MHA__Q4_BLOCK / 2; i++) {
        const int low = rounds ? round_to(x[i], scale) : 8, high = rounds ? round_to(x[i + 16], scale) : 8;
        block->q[i] = (uint8_t)(low | high << 4);
    }
}

void mha__q4_round_rotated(const float *x, int64_t stride, int64_t n, mha__q4 *blocks)
{
    for (int64_t b = 0; b < n / MHA__Q4_BLOCK; b++) {
        float block[MHA__Q4_BLOCK];
        for (int i = 0; i < MHA__Q4_BLOCK; i++)
            block[i] = x[(b * MHA__Q4_BLOCK + i) * stride];
        rotate(block);
        round_block(block, &blocks[b]);
    }
}
