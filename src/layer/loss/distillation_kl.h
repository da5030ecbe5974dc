/* distillation_kl.h - divergence of a model's distribution over the vocabulary from the teacher's distribution (Hinton
 * et al. 2015).
 */
#ifndef MHA_LAYER_LOSS_DISTILLATION_KL_H
#define MHA_LAYER_LOSS_DISTILLATION_KL_H

#include "mha/ctx.h"

/* Computes, with p = softmax(teacher / T) and q = softmax(logits / T) of each row,
 *
 *     loss = scale T^2 sum over rows of sum_c p[c] (log p[c] - log q[c])
 *     dlogits += scale T (q - p)
 *
 * for T from MHA__COOLEST to MHA__HOTTEST. The loss has a relative error of at most 1e-4 and is never below 0;
 * identical rows give exactly 0. Exponentials are computed by the kernels (f32); log p - log q and sums are double. The
 * absolute error of q - p is at most 1e-7. */
#define MHA__COOLEST 1e-3
#define MHA__HOTTEST 1e3

typedef struct mha__divergence {
    int64_t rows, classes;
    const float *logits, *teacher; /* [rows, classes] */
    double temperature, scale;
    float *dlogits; /* [rows, classes] accumulated; must not alias `logits`; NULL = not computed */
} mha__divergence;

mha_status mha__divergence_run(mha_ctx *ctx, const mha__divergence *args, double *loss, mha_error *err);

#endif
