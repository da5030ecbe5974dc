/* quantized_blocks.c - see quantized_blocks.h. */
#include "io/quantized_blocks.h"

#include "math/half.h"
#include "math/types/e2m1.h"
#include "math/types/e8m0.h"
#include "math/types/q4_0.h"
#include "math/types/q8_0.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { SUPER = MHA__SUPER_BLOCK };

static float half_at(const unsigned char *p)
{
    return mha__f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

void mha__q8_0_to_f32(const unsigned char *block, float *out)
{
    const float scale = half_at(block);
    for (int i = 0; i < MHA__Q8_BLOCK; i++)
        out[i] = (float)(int8_t)block[2 + i] * scale;
}

/* Returns the 4 bits of element `i` of 32: in the low half of byte i, or in the high half of byte i - 16. */
static int nibble(const unsigned char *bytes, int i)
{
    return bytes[i % 16] >> i / 16 * 4 & 15;
}

/* f16 scale, then 16 bytes: element i in the low half of byte i, element 16 + i in the high half. */
void mha__q4_0_to_f32(const unsigned char *block, float *out)
{
    const float scale = half_at(block);
    for (int i = 0; i < MHA__Q4_BLOCK; i++)
        out[i] = scale * (float)mha__q4_at(block + 2, i);
}

/* f16 scale, f16 minimum, 16 bytes as in Q4_0. */
void mha__q4_1_to_f32(const unsigned char *block, float *out)
{
    const float scale = half_at(block), min = half_at(block + 2);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)nibble(block + 4, i) + min;
}

/* Returns element `i` of 32: 4 bits of `low`, and bit `i` of the 4 bytes `high` above them. */
static int five_bits(const unsigned char *high, const unsigned char *low, int i)
{
    return nibble(low, i) | (high[i / 8] >> i % 8 & 1) << 4;
}

/* f16 scale, 4 bytes of high bits, 16 bytes as in Q4_0. */
void mha__q5_0_to_f32(const unsigned char *block, float *out)
{
    const float scale = half_at(block);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)(five_bits(block + 2, block + 6, i) - 16);
}

/* f16 scale, f16 minimum, 4 bytes of high bits, 16 bytes as in Q4_0. */
void mha__q5_1_to_f32(const unsigned char *block, float *out)
{
    const float scale = half_at(block), min = half_at(block + 2);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)five_bits(block + 4, block + 8, i) + min;
}

/* The values of IQ4_NL and IQ4_XS, which are denser near zero. */
static const int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* f16 scale, 16 bytes as in Q4_0 that index the values. */
void mha__iq4_nl_to_f32(const unsigned char *block, float *out)
{
    const float scale = half_at(block);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)levels[nibble(block + 2, i)];
}

/* A byte, the power of two of the scale (OCP Microscaling Formats, section 5.4.1), 16 bytes of E2M1 as in Q4_0. */
void mha__mxfp4_to_f32(const unsigned char *block, float *out)
{
    const float scale = mha__e8m0_half(block[0]);
    for (int i = 0; i < 32; i++)
        out[i] = scale * mha__e2m1_doubled((unsigned)nibble(block + 1, i));
}

/* Returns the code of the value nearest to x, whose magnitude is at most 8. */
static unsigned e2m1_code(float x)
{
    static const float between[7] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
    const float magnitude = fabsf(x);
    unsigned code = 0;
    while (code < 7 && magnitude > between[code])
        code++;
    return signbit(x) ? code | 8 : code;
}

/* The exponent of the largest magnitude is that of the largest code, 6 = 1.5 * 2^2. Infinity becomes 6 * 2^127, which
 * readers convert to infinity in f32, as they do with the blocks that have infinite elements. */
static void mxfp4_block(const float *x, unsigned char *block)
{
    float max = 0;
    int exponent = 0;
    for (int i = 0; i < 32; i++)
        max = fmaxf(max, fabsf(x[i]));
    frexpf(max, &exponent);
    const int power = isinf(max) ? 254 : max > 0 ? exponent - 3 + 127 : 0;
    block[0] = (unsigned char)(power < 0 ? 0 : power > 254 ? 254 : power);
    const float scale = 2 * mha__e8m0_half(block[0]);
    for (int i = 0; i < 16; i++)
        block[1 + i] = (unsigned char)(e2m1_code(x[i] / scale) | e2m1_code(x[16 + i] / scale) << 4);
}

void mha__mxfp4_round(const float *x, int64_t n, unsigned char *to)
{
    for (int64_t i = 0; i < n; i += 32, to += 17)
        mxfp4_block(x + i, to);
}

/* 16 bytes with a 4-bit scale and minimum of 16 elements each, 64 bytes of elements, f16 scale, f16 scale of the
 * minima. Each 32 bytes hold 128 elements, 32 in each pair of bits. */
void mha__q2_k_to_f32(const unsigned char *block, float *out)
{
    const float d = half_at(block + 80), d_min = half_at(block + 82);
    for (int i = 0; i < SUPER; i++) {
        const int scale = block[i / 16] & 15, minimum = block[i / 16] >> 4;
        const float group = d * (float)scale, min = d_min * (float)minimum;
        out[i] = group * (float)(block[16 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3) - min;
    }
}

/* 32 bytes of bits that are 0 to subtract 4, 64 bytes of elements as in Q2_K, 12 bytes of 6-bit scales, f16 scale. */
void mha__q3_k_to_f32(const unsigned char *block, float *out)
{
    const unsigned char *low = block + 32, *scales = block + 96;
    const float d = half_at(block + 108);
    for (int g = 0; g < 16; g++) {
        const int bits = (scales[g % 8] >> g / 8 * 4 & 15) | (scales[8 + g % 4] >> g / 4 * 2 & 3) << 4;
        const float group = d * (float)(bits - 32);
        for (int i = 16 * g; i < 16 * g + 16; i++) {
            const int element = low[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
            out[i] = group * (float)(element - (block[i % 32] >> i / 32 & 1 ? 0 : 4));
        }
    }
}

/* Unpacks the 6-bit scale and minimum of group `g` of 8 from 12 bytes. */
static void group_scale(const unsigned char *packed, int g, int *scale, int *minimum)
{
    if (g < 4) {
        *scale = packed[g] & 63;
        *minimum = packed[4 + g] & 63;
    } else {
        *scale = (packed[4 + g] & 15) | (packed[g - 4] >> 6) << 4;
        *minimum = packed[4 + g] >> 4 | (packed[g] >> 6) << 4;
    }
}

/* f16 scale, f16 scale of the minima, 12 bytes of scales and minima, 128 bytes of elements: each 32 bytes hold a group
 * in their low halves and the next group in their high halves. */
void mha__q4_k_to_f32(const unsigned char *block, float *out)
{
    const float d = half_at(block), d_min = half_at(block + 2);
    for (int g = 0; g < 8; g++) {
        int scale, minimum;
        group_scale(block + 4, g, &scale, &minimum);
        const float group = d * (float)scale, min = d_min * (float)minimum;
        const unsigned char *bytes = block + 16 + g / 2 * 32;
        for (int i = 0; i < 32; i++)
            out[32 * g + i] = group * (float)(bytes[i] >> 4 * (g % 2) & 15) - min;
    }
}

/* As Q4_K, with 32 bytes before the elements: bit `g` of byte i is the high bit of element i of group `g`. */
void mha__q5_k_to_f32(const unsigned char *block, float *out)
{
    const float d = half_at(block), d_min = half_at(block + 2);
    for (int g = 0; g < 8; g++) {
        int scale, minimum;
        group_scale(block + 4, g, &scale, &minimum);
        const float group = d * (float)scale, min = d_min * (float)minimum;
        const unsigned char *high = block + 16, *low = block + 48 + g / 2 * 32;
        for (int i = 0; i < 32; i++)
            out[32 * g + i] = group * (float)((low[i] >> 4 * (g % 2) & 15) | (high[i] >> g & 1) << 4) - min;
    }
}

/* 128 bytes of low 4 bits, 64 bytes of high 2 bits, 16 int8 scales of 16 elements each, f16 scale. */
void mha__q6_k_to_f32(const unsigned char *block, float *out)
{
    const unsigned char *low = block, *high = block + 128, *scales = block + 192;
    const float d = half_at(block + 208);
    for (int i = 0; i < SUPER; i++) {
        const int half = i / 128, at = i % 128;
        const int bits =
            (low[64 * half + at % 64] >> 4 * (at / 64) & 15) | (high[32 * half + at % 32] >> 2 * (at / 32) & 3) << 4;
        out[i] = d * (float)(int8_t)scales[i / 16] * (float)(bits - 32);
    }
}

/* f16 scale, 2 bytes and 4 bytes with the high 2 and the low 4 bits of 8 scales, 8 groups of 16 bytes as in IQ4_NL. */
void mha__iq4_xs_to_f32(const unsigned char *block, float *out)
{
    const float d = half_at(block);
    const int high = block[2] | block[3] << 8;
    for (int g = 0; g < 8; g++) {
        const int scale = (block[4 + g / 2] >> g % 2 * 4 & 15) | (high >> 2 * g & 3) << 4;
        const float group = d * (float)(scale - 32);
        for (int i = 0; i < 32; i++)
            out[32 * g + i] = group * (float)levels[nibble(block + 8 + 16 * g, i)];
    }
}
