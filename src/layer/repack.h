/* repack.h - other numbers for layers that exist: weights that training or pruning has changed, of the same shapes.
 * Nothing is allocated, so nothing fails. Nobody may run the layer meanwhile. */
#ifndef MHA_LAYER_REPACK_H
#define MHA_LAYER_REPACK_H

#include "mha/layer.h"

/* What a layer was created from, but for the numbers. `count` is 1..3. */
void mha__linear_repack(mha_linear *linear, const mha_matrix *parts, int64_t count);
void mha__attn_layer_repack(mha_attn_layer *layer, const mha_attn_layer_options *options);
void mha__block_repack(mha_block *block, const mha_block_options *options);

#endif
