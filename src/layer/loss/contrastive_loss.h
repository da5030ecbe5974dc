/* contrastive_loss.h - the loss of text pairs (a, b): predicts which b of the batch belongs to each a, and which a to
 * each b. */
#ifndef MHA_LAYER_LOSS_CONTRASTIVE_LOSS_H
#define MHA_LAYER_LOSS_CONTRASTIVE_LOSS_H

#include <stdint.h>

#include "mha/ctx.h"

/* e [2 pairs, width]: the vectors of all a, then of all b. With S = scale E_a E_b^T, the loss is (CE(S, diagonal) +
 * CE(S^T, diagonal)) / 2, each a mean over rows. de [2 pairs, width] receives the gradient of the loss; NULL = not
 * wanted. S is not stored but computed twice. Memory: 4 doubles per pair. Cost: 8 pairs^2 width operations. */
mha_status mha__pairs_loss(mha_ctx *ctx, const double *e, int64_t pairs, int64_t width, double scale, double *loss,
                           double *de, mha_error *err);

/* terms [2 pairs]: the contribution of each row of S, then of each row of its transpose, to 2 pairs times the loss. */
mha_status mha__pairs_terms(mha_ctx *ctx, const double *e, int64_t pairs, int64_t width, double scale, double *terms,
                            mha_error *err);

#endif
