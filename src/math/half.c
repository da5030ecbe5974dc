/* half.c - conversion of the 16-bit floating-point types. All rounding uses integer arithmetic, so the rounding mode
 * and flush-to-zero of the calling thread have no effect. NaN keeps its sign and the payload bits that fit. As with CPU
 * instructions, a NaN becomes quiet when it is converted from or to f16, and when it is converted to bf16. */
#include "math/half.h"

#include <string.h>

enum { F32_INF = 0x7F800000, F16_INF = 0x7C00, F16_QUIET = 0x0200, BF16_QUIET = 0x0040 };

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Returns x / 2^shift, rounded to nearest, ties to even. */
static uint32_t shift_round(uint32_t x, uint32_t shift)
{
    uint32_t odd = x >> shift & 1;
    return (x + (1u << (shift - 1)) - 1 + odd) >> shift;
}

float mha__bf16_to_f32(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

float mha__f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = bits >> 10 & 0x1F;
    uint32_t fraction = bits & 0x3FF;
    if (exponent == 0x1F) /* infinity, or NaN, which becomes quiet */
        return float_of(sign | F32_INF | (fraction ? (fraction | F16_QUIET) << 13 : 0));
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, a normal value in f32 */
        float magnitude = (float)fraction * 0x1p-24f;
        return float_of(sign | bits_of(magnitude));
    }
    return float_of(sign | (exponent + (127 - 15)) << 23 | fraction << 13);
}

uint16_t mha__f32_to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7FFFFFFF) > F32_INF) return (uint16_t)(bits >> 16 | BF16_QUIET);
    return (uint16_t)shift_round(bits, 16); /* a carry out of the fraction increments the exponent, up to infinity */
}

uint16_t mha__f32_to_f16(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7FFFFFFF;
    uint32_t exponent = magnitude >> 23;
    if (magnitude > F32_INF) return (uint16_t)(sign | F16_INF | F16_QUIET | (magnitude >> 13 & 0x3FF));
    if (magnitude >= 0x477FF000)
        return (uint16_t)(sign | F16_INF); /* at least 65520, which is halfway between the largest f16 and 2^16 */
    if (exponent > 127 - 15) return (uint16_t)(sign | shift_round(magnitude - ((127u - 15) << 23), 13));
    if (exponent < 127 - 25) return (uint16_t)sign; /* below 2^-25, half of the smallest subnormal: becomes 0 */
    uint32_t significand = (magnitude & 0x7FFFFF) | 0x800000;
    return (uint16_t)(sign | shift_round(significand, 126 - exponent)); /* subnormal result, in units of 2^-24 */
}
