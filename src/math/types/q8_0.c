/* q8_0.c - quantizes f32 elements to int8 with a scale, and rows to blocks of q8_0. */
#include "math/types/q8_0.h"

#include "math/half.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { MAX = 127 }; /* -128 is not used, so that the range is symmetric */
enum { CHUNK = MHA__Q8_BLOCK };

/* Returns CHUNK contiguous elements: x, or a copy of its first n elements, followed by zeros. */
static const float *chunk_of(const float *x, int64_t stride, int64_t n, float *copy)
{
    if (stride == 1 && n >= CHUNK) return x;
    for (int64_t i = 0; i < CHUNK; i++)
        copy[i] = i < n ? x[i * stride] : 0;
    return copy;
}

/* Returns the bits of the largest magnitude. The bits of NaN are larger than those of Inf. Compilers vectorize the
 * maximum of integers, but not that of floats. */
static uint32_t largest_bits(const float *x)
{
    uint32_t largest = 0;
    for (int i = 0; i < CHUNK; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= INT32_MAX;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* Rounds x / scale to nearest, ties away from zero. A rounded scale can be less than the largest magnitude / MAX. */
static void divide(const float *x, float scale, int8_t *q)
{
    int32_t nearest[CHUNK];
    for (int i = 0; i < CHUNK; i++)
        nearest[i] = (int32_t)(x[i] / scale + copysignf(0.5F, x[i]));
    for (int i = 0; i < CHUNK; i++) {
        const int32_t bounded = nearest[i] < -MAX ? -MAX : nearest[i];
        q[i] = (int8_t)(bounded > MAX ? MAX : bounded);
    }
}

uint16_t mha__int8_round(const float *x, int64_t stride, int64_t n, int8_t *q)
{
    float copy[CHUNK], largest;
    uint32_t bits = 0;
    for (int64_t i = 0; i < n; i += CHUNK) {
        const uint32_t part = largest_bits(chunk_of(x + i * stride, stride, n - i, copy));
        bits = part > bits ? part : bits;
    }
    memcpy(&largest, &bits, sizeof largest);
    const uint16_t stored = mha__f32_to_f16(largest / MAX);
    const float scale = mha__f16_to_f32(stored); /* the rounded scale, which dequantization uses */
    const bool finite = isfinite(scale);
    for (int64_t i = 0; i < n; i += CHUNK) {
        int8_t part[CHUNK] = {0};
        if (finite && scale > 0) divide(chunk_of(x + i * stride, stride, n - i, copy), scale, part);
        memcpy(q + i, part, (size_t)(n - i < CHUNK ? n - i : CHUNK));
    }
    return finite ? stored : mha__f32_to_f16(NAN);
}

void mha__q8_round(const float *x, int64_t stride, int64_t n, mha__q8 *blocks)
{
    for (int64_t i = 0; i < n; i += MHA__Q8_BLOCK, blocks++) {
        const int64_t count = n - i < MHA__Q8_BLOCK ? n - i : MHA__Q8_BLOCK;
        blocks->scale = mha__int8_round(x + i * stride, stride, count, blocks->q);
        memset(blocks->q + count, 0, (size_t)(MHA__Q8_BLOCK - count));
    }
}
