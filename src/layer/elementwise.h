/* elementwise.h - element-wise sums and products of two arrays, and multiples of an array. */
#ifndef MHA_LAYER_ELEMENTWISE_H
#define MHA_LAYER_ELEMENTWISE_H

#include "mha/ctx.h"

typedef enum mha__joining { MHA__ADD, MHA__MULTIPLY } mha__joining;

/* Computes x += y or x *= y, element by element. */
void mha__join(mha_ctx *ctx, mha__joining how, int64_t count, const float *y, float *x);
/* Computes x *= factor. */
void mha__scale(mha_ctx *ctx, float factor, int64_t count, float *x);

#endif
