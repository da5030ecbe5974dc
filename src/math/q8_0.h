/* q8_0.h - q8_0: numbers in blocks of 32, an int8 each, with one scale; 34 bytes, no padding. A row of n numbers is
 * ceil(n / 32) blocks; what the last one has beyond n is 0. Number i is scale * q[i], exact in f32. */
#ifndef MHA_MATH_Q8_0_H
#define MHA_MATH_Q8_0_H

#include "mha/types.h"

enum { MHA__Q8_BLOCK = 32 };
typedef struct mha__q8 {
    uint16_t scale; /* f16 */
    int8_t q[MHA__Q8_BLOCK];
} mha__q8;

/* Rounds n numbers, `stride` apart, to blocks: scale = largest magnitude / 127, each number to the nearest multiple of
 * it. An error is at most about half a scale. A block with NaN or Inf in it, or larger than 127 times the largest f16,
 * becomes NaN altogether: nothing is scrubbed. */
void mha__q8_round(const float *x, int64_t stride, int64_t n, mha__q8 *blocks);

/* What a view of a type counts: a number, or a block of q8_0. Its bytes, and how many a row of n numbers has. */
static inline size_t mha__element_size(mha_dtype dtype)
{
    return dtype == MHA_Q8_0 ? sizeof(mha__q8) : mha_dtype_size(dtype);
}
static inline int64_t mha__element_count(mha_dtype dtype, int64_t n)
{
    return dtype == MHA_Q8_0 ? n / MHA__Q8_BLOCK + (n % MHA__Q8_BLOCK != 0) : n;
}

#endif
