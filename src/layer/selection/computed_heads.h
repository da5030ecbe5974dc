/* computed_heads.h - what an attention layer computes when each sequence keeps some of its heads: the projections of
 * the kept heads, their attention, and their columns of the output projection. The result is bitwise identical to gates
 * of 0 for the other heads. */
#ifndef MHA_LAYER_SELECTION_COMPUTED_HEADS_H
#define MHA_LAYER_SELECTION_COMPUTED_HEADS_H

#include "layer/selection/head_selection.h"

/* True if the layer keeps fewer heads per sequence than it has: the others are not computed. */
bool mha__heads_keep_some(const mha_attn_layer_options *o);
/* Packs q, k and v head by head, so that a product can leave heads out. Returns false, with *status MHA_OK, where the
 * layer keeps all heads, or its weights are transposed or not f32: qkv is then packed as a whole. */
bool mha__heads_pack(mha_attn_layer *layer, const mha_attn_layer_options *o, mha_status *status, mha_error *err);
/* The same again after the weights have changed; allocates nothing. */
void mha__heads_repack(mha_attn_layer *layer, const mha_attn_layer_options *o);

/* True if the attention of heads that are not kept is left out: unless the call asks for maps, statistics or
 * activations, which are of all heads. */
bool mha__heads_skipped(const mha_attn_layer *layer, const mha_layer_input *in);
/* The description of such a call: a head that is not kept is one block in which no query attends to a key. */
void mha__heads_describe(const mha_attn_layer *layer, const mha_layer_input *in, mha_attn_desc *desc);

/* qkv [rows, (H + 2 Hkv) D] of x, zeros for heads that are not computed. `left` as in mha__attn_layer_project. */
void mha__heads_project(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                        const float *x, void *left, float *qkv);
/* True if the output projection reads the columns of kept heads alone. */
bool mha__heads_output_skips(const mha_attn_layer *layer, const mha_layer_input *in);
/* Rows [first, first + rows) of y from context [B L, H D]. */
void mha__heads_output(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                       const float *context, int64_t first, int64_t rows, float *y);

#endif
