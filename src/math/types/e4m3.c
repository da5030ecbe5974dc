/* e4m3.c - rounds f32 elements to 8-bit floating point. */
#include "math/types/e4m3.h"

#include <string.h>

enum { LARGEST = 0x7e, NAN_CODE = 0x7f }; /* 448, and NaN */

/* Returns x / 2^-9 rounded to nearest even, for 0 <= x < 2^-6; 8 is the code of 2^-6. */
static int round_subnormal(float x)
{
    const float scaled = x * 0x1p9F;
    const int below = (int)scaled;
    const float rest = scaled - (float)below;
    return below + (rest > 0.5F || (rest == 0.5F && below % 2 == 1));
}

uint8_t mha__f32_to_e4m3(float value)
{
    const float x = fabsf(value);
    const uint8_t sign = signbit(value) ? 0x80 : 0;
    if (!isfinite(x)) return sign | NAN_CODE;
    if (x < 0x1p-6F) return (uint8_t)(sign | round_subnormal(x));
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t rounded = (bits + 0x7ffff + (bits >> 20 & 1)) >> 20, code = rounded - (120U << 3);
    return (uint8_t)(sign | (code < LARGEST ? code : LARGEST));
}

void mha__e4m3_round(const float *x, int64_t stride, int64_t n, uint8_t *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = mha__f32_to_e4m3(x[i * stride]);
}
