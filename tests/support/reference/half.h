/* half.h - bf16, f16, f8_e4m3, q8_0 and q4_0, implemented in double from their definitions. bf16 and f16 have 16 bits:
 * sign, exponent and `fraction` bits (7 and 10). f8_e4m3 has 8 bits: sign, 4 exponent bits and 3 fraction bits, without
 * infinities. A q8_0 block has an f16 scale and 32 int8 values, a q4_0 block an f16 scale and 32 int4 values of a
 * rotated row. Shares no code with src/. */
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

enum { Q8_ELEMENTS = 32, Q8_BYTES = 34 };

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
    for (uint32_t n = 0; n < Q8_ELEMENTS; n++)
        ((uint8_t *)block)[sizeof scale + n] = (uint8_t)((scale * 33u + n + 1) * 2654435761u >> 24);
}
static inline double q8_made_of(const void *block)
{
    uint16_t scale;
    memcpy(&scale, block, sizeof scale);
    return 64 * half_value(scale, F16_FRACTION);
}

enum { Q4_ELEMENTS = 32, Q4_BYTES = 18 };

/* Returns element i of a q4_0 block before the inverse rotation, without its scale. */
static inline int q4_rotated(const void *block, int i)
{
    const int pair = ((const uint8_t *)block)[sizeof(uint16_t) + (size_t)(i % 16)];
    return (i < 16 ? pair & 15 : pair >> 4) - 8;
}

/* Returns element n of a q4_0 block: the product of row n of the Hadamard matrix and the block, divided by sqrt(32).
 * Element (n, i) of the matrix is negative if n and i have an odd number of common bits. */
static inline double q4_value(const void *block, int n)
{
    uint16_t scale;
    int sum = 0;
    memcpy(&scale, block, sizeof scale);
    for (int i = 0; i < Q4_ELEMENTS; i++)
        sum += __builtin_parity((unsigned)(n & i)) ? -q4_rotated(block, i) : q4_rotated(block, i);
    return half_value(scale, F16_FRACTION) * sum / sqrt(Q4_ELEMENTS);
}

/* Writes a q4_0 block with values of about the magnitude of `x`: its scale is x / 8, and its 32 elements are derived
 * from the scale. */
static inline void q4_make(void *block, double x)
{
    const uint16_t scale = half_bits(x / 8, F16_FRACTION);
    memcpy(block, &scale, sizeof scale);
    for (uint32_t n = 0; n < Q4_BYTES - sizeof scale; n++)
        ((uint8_t *)block)[sizeof scale + n] = (uint8_t)((scale * 17u + n + 1) * 2654435761u >> 24);
}
static inline double q4_made_of(const void *block)
{
    uint16_t scale;
    memcpy(&scale, block, sizeof scale);
    return 8 * half_value(scale, F16_FRACTION);
}

enum { E4M3_NAN = 0x7F };

static inline double e4m3_value(uint8_t bits)
{
    const int exponent = bits >> 3 & 15, digits = bits & 7;
    const double sign = bits & 0x80 ? -1 : 1;
    if ((bits & 0x7F) == E4M3_NAN) return (double)NAN;
    return sign * ldexp(exponent ? digits + 8 : digits, (exponent ? exponent : 1) - 10);
}

/* Returns the bits of `x` in f8_e4m3, rounded to nearest, ties to even; finite values beyond 448 become 448. */
static inline uint8_t e4m3_bits(double x)
{
    const int sign = signbit(x) ? 0x80 : 0;
    if (!isfinite(x)) return (uint8_t)(sign | E4M3_NAN);
    int exponent = x == 0 ? -6 : ilogb(x);
    if (exponent < -6) exponent = -6;
    if (exponent > 8) return (uint8_t)(sign | (E4M3_NAN - 1));
    const int digits = (int)nearbyint(ldexp(fabs(x), 3 - exponent)); /* less than 8 only for subnormals */
    const int magnitude = ((exponent + 6) << 3) + digits;
    return (uint8_t)(sign | (magnitude < E4M3_NAN ? magnitude : E4M3_NAN - 1));
}

#endif
