/* transformer_block.h - the struct of a transformer block, and its functions for models and for the backward pass. */
#ifndef MHA_LAYER_BLOCK_TRANSFORMER_BLOCK_H
#define MHA_LAYER_BLOCK_TRANSFORMER_BLOCK_H

#include "layer/attention/attention_layer.h"

#define MHA__CHUNK_ROWS 512 /* rows of a feed-forward chunk */

enum { MHA__BLOCK_ATTN_NORM, MHA__BLOCK_MLP_NORM, MHA__BLOCK_ATTN_OUT_NORM, MHA__BLOCK_MLP_OUT_NORM, MHA__BLOCK_NORMS };

struct mha_block {
    mha_ctx *ctx;
    int64_t hidden, intermediate;
    bool pre_norm, parallel;
    float residual_scale; /* factor of both branches; 1 = none */
    mha_attn_layer *attn;
    mha_linear *gate, *up, *down; /* NULL in a block without feed-forward; gate is NULL without a gated activation */
    mha_activation activation;
    mha_norm norm[MHA__BLOCK_NORMS]; /* weights and biases point into `norms` */
    float norms[];                   /* [2 MHA__BLOCK_NORMS, E] */
};

/* Copies the norms from the options into the block. */
void mha__block_keep_norms(mha_block *block, const mha_block_options *options);

/* Returns the norm of the feed-forward input: a parallel block without mlp_norm reads the output of attn_norm. */
static inline int mha__block_feed_norm(const mha_block *block)
{
    return block->parallel && !block->norm[MHA__BLOCK_MLP_NORM].weight ? MHA__BLOCK_ATTN_NORM : MHA__BLOCK_MLP_NORM;
}

/* Functions for models, which run several blocks with one operator plan. mha__block_attn returns the attention layer of
 * a block, mha__block_bytes computes the workspace size of a call, and mha__block_run updates x in place without
 * allocating memory. */
const mha_attn_layer *mha__block_attn(const mha_block *block);
mha_status mha__block_bytes(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in, size_t *bytes,
                            mha_error *err);
mha_status mha__block_run(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in, float *x,
                          mha_error *err);
/* Runs the block's attention without the output projection, to get the maps, statistics or activations that `in`
 * requests. */
mha_status mha__block_attend(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in,
                             const float *x, mha_error *err);

#endif
