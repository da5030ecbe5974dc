/* element.h - types and sizes of stored elements. Strides of a view count units: elements, or blocks of q8_0 and
 * q4_0. */
#ifndef MHA_MATH_ELEMENT_H
#define MHA_MATH_ELEMENT_H

#include "math/types/q4_0.h"
#include "math/types/q8_0.h"
#include <stdbool.h>

/* Returns true if the elements of a row are stored in blocks of 32 with a common scale. */
static inline bool mha__is_blocked(mha_dtype dtype)
{
    return dtype == MHA_Q8_0 || dtype == MHA_Q4_0;
}

/* Returns true for the types that only caches store and kernels only read. */
static inline bool mha__is_cache_only(mha_dtype dtype)
{
    return mha__is_blocked(dtype) || dtype == MHA_F8_E4M3;
}

/* Returns the type in which a model with dense weights of type `packed` computes attention and caches keys. Attention
 * in bf16 adds little to the error of q8_0 weights, and it saves time where kernels multiply bf16 pairs. */
static inline mha_dtype mha__attention_dtype(mha_dtype packed)
{
    return packed == MHA_BF16 || packed == MHA_Q8_0 ? MHA_BF16 : MHA_F32;
}

/* Returns the size of a unit in bytes. */
static inline size_t mha__element_size(mha_dtype dtype)
{
    return dtype == MHA_Q8_0 ? sizeof(mha__q8) : dtype == MHA_Q4_0 ? sizeof(mha__q4) : mha_dtype_size(dtype);
}

/* Returns the number of units in a row of n elements. */
static inline int64_t mha__element_count(mha_dtype dtype, int64_t n)
{
    return mha__is_blocked(dtype) ? n / MHA__Q8_BLOCK + (n % MHA__Q8_BLOCK != 0) : n;
}

#endif
