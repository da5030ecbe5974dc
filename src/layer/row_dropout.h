/* row_dropout.h - dropout of rows between two steps: which elements become 0 follows from a key and the element's
 * position, so no mask is stored and the backward pass drops the same elements. */
#ifndef MHA_LAYER_ROW_DROPOUT_H
#define MHA_LAYER_ROW_DROPOUT_H

#include "mha/layer.h"

/* One place. */
typedef struct mha__drop {
    double share; /* fraction in [0, 1) set to 0; the other elements are multiplied by 1 / (1 - share) */
    uint64_t key; /* of Philox4x32-10 */
} mha__drop;

/* Drops elements of x [B L, width] in place, with the counter (b, 0, column, i) where b and i count sequences and rows
 * as the operator does (attn.h). A share of 0 does nothing. The backward pass is the same call on the gradient. */
void mha__drop_rows(mha_ctx *ctx, const mha__drop *drop, const mha_layer_input *in, int64_t width, float *x);

#endif
