/* repack.h - packs new elements into existing layers, for weights that training or pruning has changed; shapes stay the
 * same. Nothing is allocated, so these functions cannot fail. The layer must not run meanwhile. */
#ifndef MHA_LAYER_REPACK_H
#define MHA_LAYER_REPACK_H

#include "mha/layer.h"

/* `parts` are the matrices that the layer was created from, with new elements. `count` is from 1 to 3. */
void mha__linear_repack(mha_linear *linear, const mha_matrix *parts, int64_t count);
void mha__attn_layer_repack(mha_attn_layer *layer, const mha_attn_layer_options *options);
void mha__block_repack(mha_block *block, const mha_block_options *options);

#endif
