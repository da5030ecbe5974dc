/* contrastive_loss.h - the loss of pairs: which b belongs to which a, among all of a batch, and the other way round. */
#ifndef MHA_LAYER_LOSS_CONTRASTIVE_LOSS_H
#define MHA_LAYER_LOSS_CONTRASTIVE_LOSS_H

#include <stdint.h>

#include "mha/ctx.h"

/* e [2 pairs, width]: a, then b. With S = scale E_a E_b^T, the loss is (CE(S, diagonal) + CE(S^T, diagonal)) / 2, means
 * over rows. de [2 pairs, width] gets its gradient; NULL = not wanted. S is never kept: it is computed twice.
 * Memory: 4 doubles for each pair. Cost: 8 pairs^2 width operations. */
mha_status mha__pairs_loss(mha_ctx *ctx, const double *e, int64_t pairs, int64_t width, double scale, double *loss,
                           double *de, mha_error *err);

/* What each row of S, and then each row of its transpose, adds to 2 pairs times that loss: terms [2 pairs]. */
mha_status mha__pairs_terms(mha_ctx *ctx, const double *e, int64_t pairs, int64_t width, double scale, double *terms,
                            mha_error *err);

#endif
