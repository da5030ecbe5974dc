/* real.h - access to f32 or f64 elements, for short loops where the type check costs little. */
#ifndef MHA_LAYER_REAL_H
#define MHA_LAYER_REAL_H

#include "mha/types.h"
#include <stdint.h>

static inline double mha__get(mha_dtype dtype, const void *x, int64_t i)
{
    return dtype == MHA_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

/* Returns the value rounded to the dtype. */
static inline double mha__rounded(mha_dtype dtype, double value)
{
    return dtype == MHA_F64 ? value : (double)(float)value;
}

static inline void mha__put(mha_dtype dtype, void *x, int64_t i, double value)
{
    if (dtype == MHA_F64)
        ((double *)x)[i] = value;
    else
        ((float *)x)[i] = (float)value;
}

/* Rounds the value to the dtype, then adds it to element i. */
static inline void mha__add_to(mha_dtype dtype, void *x, int64_t i, double value)
{
    if (dtype == MHA_F64)
        ((double *)x)[i] += value;
    else
        ((float *)x)[i] += (float)value;
}

#endif
