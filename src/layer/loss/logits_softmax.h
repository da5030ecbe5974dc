/* logits_softmax.h - the steps of a softmax over the vocabulary. */
#ifndef MHA_LAYER_LOSS_LOGITS_SOFTMAX_H
#define MHA_LAYER_LOSS_LOGITS_SOFTMAX_H

#include "kernel/kernel.h"

/* Sets *most to the maximum of x, and returns the sum of exp(x[i] - *most); n must be at least 1. The terms are added
 * in double, in an order that depends only on n. Exponentials are computed by the kernels (f32); exp(-inf) is 0. The
 * exponentials are stored in e unless it is NULL; e may be x. */
double mha__exponentials(const mha__kernels *kernels, int64_t n, const float *x, float *max, float *e);

/* The two steps of mha__exponentials: the maximum, and the sum for a known maximum. */
float mha__largest(const mha__kernels *kernels, int64_t n, const float *x);
double mha__exponentials_below(const mha__kernels *kernels, int64_t n, const float *x, float max, float *e);

#endif
