/* repack.h - packs changed weights into an existing layer, for example after a training step or after pruning. The
 * shapes must not change. These functions allocate no memory, so they cannot fail. The layer must not run during the
 * call. */
#ifndef MHA_LAYER_REPACK_H
#define MHA_LAYER_REPACK_H

#include "mha/layer.h"

/* `parts` are the matrices from which the layer was created, with new elements. `count` is from 1 to 3. */
void mha__linear_repack(mha_linear *linear, const mha_matrix *parts, int64_t count);
void mha__attn_layer_repack(mha_attn_layer *layer, const mha_attn_layer_options *options);
struct mha__experts_options;
/* `experts` is NULL for a block without experts. */
void mha__block_repack(mha_block *block, const mha_block_options *options, const struct mha__experts_options *experts);

#endif
