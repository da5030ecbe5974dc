/* row_dropout.h - dropout of activations between two steps. Whether an element becomes 0 depends only on a key and on
 * the element's position. Therefore no mask is stored, and the backward pass drops the same elements. */
#ifndef MHA_LAYER_ROW_DROPOUT_H
#define MHA_LAYER_ROW_DROPOUT_H

#include "mha/layer.h"

/* One dropout site in a layer. */
typedef struct mha__drop {
    double share; /* fraction in [0, 1) set to 0; the other elements are multiplied by 1 / (1 - share) */
    uint64_t key; /* key of Philox4x32-10 */
} mha__drop;

/* Drops elements of x [B L, width] in place. The Philox counter is (b, 0, column, i), where b is the sequence and i the
 * row as in attn.h. Does nothing if `share` is 0. The backward pass makes the same call on the gradient. */
void mha__drop_rows(mha_ctx *ctx, const mha__drop *drop, const mha_layer_input *in, int64_t width, float *x);

/* Returns the sequence that a row [B L] belongs to, by binary search if sequences are packed. */
int64_t mha__row_sequence(const mha_layer_input *in, int64_t row);

#endif
