/* cross_block.h - the cross-attention of a transformer block, between attention and feed-forward. */
#ifndef MHA_LAYER_BLOCK_CROSS_BLOCK_H
#define MHA_LAYER_BLOCK_CROSS_BLOCK_H

#include "layer/block/transformer_block.h"

/* One call of a block's cross-attention, with its arrays in the workspace of the block's attention. */
typedef struct mha__cross_call {
    mha_layer_input in;
    mha__attn_call call;
    mha__attn_trace trace;
    mha__attn_scratch scratch;
} mha__cross_call;

/* Returns the input of the cross-attention for the input of a block; its workspace is that of `in`. */
mha_layer_input mha__block_cross_input(const mha_layer_input *in);

/* Checks the options of the cross-attention. */
mha_status mha__block_cross_check(const mha_block_options *options, mha_error *err);
/* Raises *bytes to the workspace of the cross-attention, if the block has one; the plan in in->source must be set. */
mha_status mha__block_cross_bytes(const mha_block *block, const mha_layer_input *in, size_t *bytes, mha_error *err);
/* Computes the cross-attention up to the context. x is its input, after the norm of a pre-norm block. */
mha_status mha__block_cross_attend(const mha_block *block, const mha_layer_input *in, const float *x,
                                   mha__cross_call *call, mha_error *err);
/* Creates the plan of the cross-attention unless in->source has one: in->source is then `source`, a copy with that
 * plan. Free *plan with mha_attn_plan_free. */
mha_status mha__block_cross_plan(const mha_block *block, mha_layer_input *in, mha_layer_source *source,
                                 mha_attn_plan **plan, mha_error *err);

#endif
