/* logits_softmax.h - what a softmax over the vocabulary is made of. */
#ifndef MHA_LAYER_LOSS_LOGITS_SOFTMAX_H
#define MHA_LAYER_LOSS_LOGITS_SOFTMAX_H

#include "kernel/kernel.h"

/* The sum of exp(x[i] - most), most being the largest of x, n > 0; added in double, in an order that n alone fixes.
 * Exponentials are those of the kernels (f32), a value of -inf has 0. They go to e, which may be x; NULL: nowhere. */
double mha__exponentials(const mha__kernels *kernels, int64_t n, const float *x, float *most, float *e);

/* Its halves: the largest, and the sum below one that is known. */
float mha__largest(const mha__kernels *kernels, int64_t n, const float *x);
double mha__exponentials_below(const mha__kernels *kernels, int64_t n, const float *x, float most, float *e);

#endif
