/* q8_0.h - the type q8_0: blocks of 32 int8 elements and one f16 scale, 34 bytes per block, without padding. A row of n
 * elements is ceil(n / 32) blocks, padded with zeros. The value of element i is scale * q[i], which is exact in f32. */
#ifndef MHA_MATH_Q8_0_H
#define MHA_MATH_Q8_0_H

#include "mha/types.h"

enum { MHA__Q8_BLOCK = 32 };
typedef struct mha__q8 {
    uint16_t scale; /* f16 */
    int8_t q[MHA__Q8_BLOCK];
} mha__q8;

/* Quantizes n elements of x, which are `stride` elements apart, with one scale, and returns the scale (f16). The scale
 * is the largest magnitude / 127, and each element is rounded to the nearest multiple of the scale. The error is at
 * most about half the scale; if the scale is subnormal (largest magnitude below 127 * 2^-14), it can be larger by
 * 127 * 2^-25. If x contains NaN, Inf or a magnitude above 127 times the largest f16, the scale is NaN, so that invalid
 * values remain visible. */
uint16_t mha__int8_round(const float *x, int64_t stride, int64_t n, int8_t *q);
/* Quantizes n elements of x in blocks of 32. */
void mha__q8_round(const float *x, int64_t stride, int64_t n, mha__q8 *blocks);

#endif
