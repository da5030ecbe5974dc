/* half.h - bf16, f16 and q8_0, implemented in double from their definitions. bf16 and f16 have 16 bits: sign,
 * exponent and `fraction` bits (7 and 10). A q8_0 block has an f16 scale and 32 int8 values. Shares no code with
 * src/. */
#ifndef TEST_HALF_H
#define TEST_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { BF16_FRACTION = 7, F16_FRACTION = 10 };

static inline double half_value(uint16_t bits, int fraction)
{
    int bias = (1 << (14 - fraction)) - 1, exponent = (bits & 0x7FFF) >> fraction;
    int digits = bits & ((1 << fraction) - 1);
    double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 2 * bias + 1) return digits ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0) return sign * ldexp(digits, 1 - bias - fraction);
    return sign * ldexp(digits + (1 << fraction), exponent - bias - fraction);
}

/* Returns the bits of `x` as a 16-bit float with `fraction` fraction bits, rounded to nearest, ties to even. */
static inline uint16_t half_bits(double x, int fraction)
{
    int bias = (1 << (14 - fraction)) - 1, infinity = (2 * bias + 1) << fraction;
    int sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return (uint16_t)(sign | infinity | 1 << (fraction - 1));
    if (isinf(x)) return (uint16_t)(sign | infinity);
    int exponent = x == 0 ? 1 - bias : ilogb(x);
    if (exponent < 1 - bias) exponent = 1 - bias;
    if (exponent > bias) return (uint16_t)(sign | infinity);
    int digits = (int)nearbyint(ldexp(fabs(x), fraction - exponent)); /* less than 2^fraction only for subnormals */
    int magnitude = ((exponent + bias - 1) << fraction) + digits;
    return (uint16_t)(sign | (magnitude < infinity ? magnitude : infinity));
}

enum { Q8_NUMBERS = 32, Q8_BYTES = 34 };

/* Returns element n of a q8_0 block. */
static inline double q8_value(const void *block, int n)
{
    uint16_t scale;
    memcpy(&scale, block, sizeof scale);
    return half_value(scale, F16_FRACTION) * ((const int8_t *)block)[sizeof scale + (size_t)n];
}

/* Writes a q8_0 block with values of about the magnitude of `x`: its scale is x / 64, and its 32 elements are derived
 * from the scale. */
static inline void q8_make(void *block, double x)
{
    const uint16_t scale = half_bits(x / 64, F16_FRACTION);
    memcpy(block, &scale, sizeof scale);
    for (uint32_t n = 0; n < Q8_NUMBERS; n++)
        ((uint8_t *)block)[sizeof scale + n] = (uint8_t)((scale * 33u + n + 1) * 2654435761u >> 24);
}
static inline double q8_made_of(const void *block)
{
    uint16_t scale;
    memcpy(&scale, block, sizeof scale);
    return 64 * half_value(scale, F16_FRACTION);
}

#endif
