/* row_dropout.h - dropout of rows that go from one step to the next: which numbers become 0 follows from a key and
 * from where a number stands, so nothing is kept, and the way back drops the same ones. */
#ifndef MHA_LAYER_ROW_DROPOUT_H
#define MHA_LAYER_ROW_DROPOUT_H

#include "mha/layer.h"

/* One place. */
typedef struct mha__drop {
    double share; /* [0, 1) of its numbers become 0, the others are multiplied by 1 / (1 - share) */
    uint64_t key; /* of Philox4x32-10 */
} mha__drop;

/* x [B L, width] of `in`, in place: with the counter (b, 0, column, i), b and i counted as the operator counts
 * sequences and rows (attn.h). A share of 0 does nothing. The way back of it is the same call on the gradient. */
void mha__drop_rows(mha_ctx *ctx, const mha__drop *drop, const mha_layer_input *in, int64_t width, float *x);

#endif
