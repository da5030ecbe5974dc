/* e4m3.h - the type f8_e4m3: sign, 4 exponent bits with bias 7, 3 fraction bits. There is no infinity: the codes 0x7f
 * and 0xff are NaN, and the largest magnitude is 448 (Micikevicius et al. 2022, FP8 Formats for Deep Learning). */
#ifndef MHA_MATH_E4M3_H
#define MHA_MATH_E4M3_H

#include <math.h>
#include <stdint.h>

/* Exact. Magnitudes below 2^-6 are multiples of 2^-9. */
static inline float mha__e4m3_to_f32(uint8_t code)
{
    const int magnitude = code & 0x7f, exponent = magnitude >> 3, fraction = magnitude & 7;
    const union {
        uint32_t bits;
        float value;
    } normal = {(uint32_t)(magnitude << 20) + (120U << 23)};
    if (magnitude == 0x7f) return NAN;
    const float value = exponent > 0 ? normal.value : (float)fraction * 0x1p-9F;
    return code & 0x80 ? -value : value;
}

/* Rounds to nearest even. Finite values beyond 448 become 448 with their sign; NaN and infinity become NaN, so that
 * invalid values remain visible. */
uint8_t mha__f32_to_e4m3(float value);

/* Rounds n elements of x, which are `stride` elements apart. */
void mha__e4m3_round(const float *x, int64_t stride, int64_t n, uint8_t *to);

#endif
