/* computed_heads.h - what an attention layer computes when each sequence keeps some of its heads: the projections of
 * the kept heads, their attention, and their columns of the output projection. The result is bitwise identical to gates
 * of 0 for the other heads. */
#ifndef MHA_LAYER_SELECTION_COMPUTED_HEADS_H
#define MHA_LAYER_SELECTION_COMPUTED_HEADS_H

#include "layer/selection/head_selection.h"

/* True if the layer keeps fewer heads per sequence than it has: the others are not computed. */
bool mha__heads_keep_some(const mha_attn_layer_options *o);

/* Packs q, k and v head by head, so that a product can leave heads out, into layer->project, which the caller frees
 * also after a failure. A head is D rows of a matrix [heads D, E] or, if that is transposed, one of `heads` matrices
 * [E, D]. Called again after the weights have changed, it allocates nothing and returns MHA_OK. */
mha_status mha__heads_pack(mha_attn_layer *layer, const mha__matrix qkv[3], mha_error *err);

/* True if the attention of heads that are not kept is left out: unless the call asks for maps, statistics or
 * activations, which are of all heads. */
bool mha__heads_skipped(const mha_attn_layer *layer, const mha_layer_input *in);
/* The description of such a call: a head that is not kept is one block in which no query attends to a key; summed
 * experts are listed instead (head_count_per_sequence.h). */
void mha__heads_describe(const mha_attn_layer *layer, const mha__attn_call *call, mha_attn_desc *desc);

/* The projections of x[3], for a layer packed head by head; zeros for heads that are not computed, unless they are
 * experts, which the operator never visits. */
void mha__heads_project(const mha_attn_layer *layer, const mha__attn_call *call, const mha__chosen *chosen,
                        const void *const x[3], void *qkv);
/* True if the output projection reads the columns of kept heads alone. */
bool mha__heads_output_skips(const mha_attn_layer *layer, const mha_layer_input *in);
/* Rows [first, first + rows) of y from context [B L, H D]. */
void mha__heads_output(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                       const void *context, int64_t first, int64_t rows, void *y);

/* Backward pass of projection p (0 to 2: q, k, v) head by head: weights of heads that no sequence computed keep their
 * gradients. Adds to dx unless it is NULL. */
mha_status mha__heads_project_back(const mha_attn_layer *layer, const mha__attn_call *call, const mha__chosen *chosen,
                                   int p, const mha__grad_slot *slot, const void *x, void *dqkv, void *dx,
                                   mha_error *err);

#endif
