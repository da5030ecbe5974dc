/* contrastive_loss.h - contrastive loss of text pairs (a, b): each a is classified among all b of the batch, and each b
 * among all a. */
#ifndef MHA_LAYER_LOSS_CONTRASTIVE_LOSS_H
#define MHA_LAYER_LOSS_CONTRASTIVE_LOSS_H

#include "mha/ctx.h"
#include <stdint.h>

/* e [2 pairs, width]: the vectors of all a, then of all b. With S = scale E_a E_b^T, the loss is (CE(S) + CE(S^T)) / 2,
 * where CE is the mean cross entropy of the rows and the label of row i is i. de [2 pairs, width] receives the gradient
 * of the loss; NULL = not computed. S is not stored, but computed twice. Memory: 4 doubles per pair. Cost: 8 pairs^2
 * width operations. */
mha_status mha__pairs_loss(mha_ctx *ctx, const double *e, int64_t pairs, int64_t width, double scale, double *loss,
                           double *de, mha_error *err);

/* Sets terms [2 pairs] to the cross entropy of each row of S, then of each row of S^T. The loss is the mean of all
 * terms. */
mha_status mha__pairs_terms(mha_ctx *ctx, const double *e, int64_t pairs, int64_t width, double scale, double *terms,
                            mha_error *err);

#endif
