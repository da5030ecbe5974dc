/* q4_0.h - the type q4_0: blocks of 32 int4 elements and one f16 scale, 18 bytes per block, without padding. Byte i
 * contains element i in its low half and element 16 + i in its high half, each plus 8. The value of an element is scale
 * * (half - 8), from -8 to 7 times the scale, which is exact in f32. The layout is that of ggml.
 *
 * Rows of keys and values are rotated before they are rounded: each block of 32 elements is multiplied by the Hadamard
 * matrix of order 32 / sqrt(32). This matrix is orthonormal and symmetric. A rotated query therefore has the same
 * products with rotated keys, and rotating a weighted sum of rotated values again restores the sum of the values. A
 * single large element is spread over its block, so that it does not determine the scale of the other 31 elements
 * (Ashkboos et al. 2024, QuaRot, arXiv 2404.00456). The order is 32 because rotating 64 or 128 elements at a time did
 * not reduce the error: the scale of a block depends only on its own elements. */
#ifndef MHA_MATH_Q4_0_H
#define MHA_MATH_Q4_0_H

#include <stdint.h>

enum { MHA__Q4_BLOCK = 32 };
typedef struct mha__q4 {
    uint16_t scale; /* f16 */
    uint8_t q[MHA__Q4_BLOCK / 2];
} mha__q4;

/* Returns element i of a block, without its scale. */
static inline int mha__q4_at(const uint8_t *q, int i)
{
    return (i < MHA__Q4_BLOCK / 2 ? q[i] & 15 : q[i - MHA__Q4_BLOCK / 2] >> 4) - 8;
}

/* Rotates the blocks of 32 elements of each row. n must be a multiple of 32. The result is not finite if and only if an
 * element of the block is not finite, or a sum overflows. */
void mha__rotate_rows(int64_t rows, int64_t n, float *x, int64_t stride);

/* Exclusive limit of the magnitude of finite elements that mha__q4_round_rotated can store: a rotated element has at
 * most sqrt(32) times the magnitude, and 8 times the largest f16 is the limit of a rotated element. */
#define MHA__Q4_END 92655.0F

/* Rotates n elements of x (a multiple of 32), which are `stride` elements apart, and rounds them to blocks. The element
 * of the largest magnitude is stored as -8 times the scale, and the others are rounded to the nearest multiple of the
 * scale from -8 to 7, as in ggml. The error of a rotated element is at most half the scale, or one scale if it would
 * round to 8; a scale below 2^-14 adds up to 8 * 2^-25. If a block contains NaN or Inf, its scale is NaN. */
void mha__q4_round_rotated(const float *x, int64_t stride, int64_t n, mha__q4 *blocks);

#endif
