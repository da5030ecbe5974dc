/* distillation_kl.h - how far a model's distribution over the vocabulary is from its teacher's (Hinton et al. 2015). */
#ifndef MHA_LAYER_LOSS_DISTILLATION_KL_H
#define MHA_LAYER_LOSS_DISTILLATION_KL_H

#include "mha/ctx.h"

/* With p = softmax(teacher / T) and q = softmax(logits / T) of each row
 *
 *     loss = scale T^2 sum over rows of sum_c p[c] (log p[c] - log q[c])
 *     dlogits += scale T (q - p)
 *
 * for T in MHA__COOLEST .. MHA__HOTTEST; the loss to 1e-4 of itself, and never below 0. Rows that are alike give
 * exactly 0. Exponentials are those of the kernels (f32), log p - log q and sums are in double; q - p is off
 * by 1e-7 at most. */
#define MHA__COOLEST 1e-3
#define MHA__HOTTEST 1e3

typedef struct mha__divergence {
    int64_t rows, classes;
    const float *logits, *teacher; /* [rows, classes] */
    double temperature, scale;
    float *dlogits; /* [rows, classes] added to, not `logits`; NULL = not wanted */
} mha__divergence;

mha_status mha__divergence_run(mha_ctx *ctx, const mha__divergence *args, double *loss, mha_error *err);

#endif
