/* computed_heads.h - attention layers in which each sequence keeps only some heads. Projections, attention and columns
 * of the output projection are computed only for kept heads. Results are bitwise identical to a layer that computes all
 * heads and multiplies the other heads by a gate of 0. */
#ifndef MHA_LAYER_SELECTION_COMPUTED_HEADS_H
#define MHA_LAYER_SELECTION_COMPUTED_HEADS_H

#include "layer/selection/head_selection.h"

/* Returns true if a sequence keeps fewer heads than the layer has; the other heads are not computed. */
bool mha__heads_keep_some(const mha_attn_layer_options *o);

/* Packs q, k and v head by head into layer->project, so that a product can skip heads. The caller frees layer->project,
 * also after a failure. A head is D rows of a matrix [heads D, E] or, if transposed, one of `heads` matrices [E, D].
 * When called again after the weights have changed, the function allocates nothing and returns MHA_OK. */
mha_status mha__heads_pack(mha_attn_layer *layer, const mha__matrix qkv[3], mha_error *err);

/* Returns true if a call skips the heads that are not kept. Calls that request maps, statistics or activations compute
 * all heads. */
bool mha__heads_skipped(const mha_attn_layer *layer, const mha_layer_input *in);
/* Describes a call that skips heads: the operator receives each head that is not kept as one block in which every key
 * is masked. If experts are summed, the operator runs on the kept experts only (head_count_per_sequence.h). */
void mha__heads_describe(const mha_attn_layer *layer, const mha__attn_call *call, mha_attn_desc *desc);

/* Computes the projections of x[3] for a layer packed head by head. Heads that are not computed are set to zero, except
 * experts, which the operator does not read. */
void mha__heads_project(const mha_attn_layer *layer, const mha__attn_call *call, const mha__chosen *chosen,
                        const void *const x[3], void *qkv);
/* Returns true if the output projection reads only the columns of kept heads. */
bool mha__heads_output_skips(const mha_attn_layer *layer, const mha_layer_input *in);
/* Computes rows [first, first + rows) of y from the columns of kept heads in context [B L, H D]. */
void mha__heads_output(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                       const void *context, int64_t first, int64_t rows, void *y);

/* Backward pass of projection p (0 to 2: q, k, v) head by head: for heads that no sequence computed, the weight
 * gradients stay unchanged. Adds to dx unless it is NULL. */
mha_status mha__heads_project_back(const mha_attn_layer *layer, const mha__attn_call *call, const mha__chosen *chosen,
                                   int p, const mha__grad_slot *slot, const void *x, void *dqkv, void *dx,
                                   mha_error *err);

#endif
