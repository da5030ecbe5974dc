/* transformer_block.h - the struct of a transformer block, and its functions for models and for the backward pass. */
#ifndef MHA_LAYER_BLOCK_TRANSFORMER_BLOCK_H
#define MHA_LAYER_BLOCK_TRANSFORMER_BLOCK_H

#include "layer/attention/attention_layer.h"
#include "layer/block/feed_forward.h"
#include "layer/ranks/row_parallel.h"

enum { MHA__CHUNK_ROWS = 512 }; /* rows of a feed-forward chunk */

enum {
    MHA__BLOCK_ATTN_NORM,
    MHA__BLOCK_MLP_NORM,
    MHA__BLOCK_ATTN_OUT_NORM,
    MHA__BLOCK_MLP_OUT_NORM,
    MHA__BLOCK_CROSS_NORM,
    MHA__BLOCK_NORMS
};

/* A convolution over the tokens, parallel to the block (block_convolution.h). */
typedef struct mha__block_convolution mha__block_convolution;

struct mha_block {
    mha_ctx *ctx;
    int64_t hidden;
    bool pre_norm, parallel;
    float residual_scale; /* factor of both branches; 1 = none */
    mha_attn_layer *attn;
    mha_attn_layer *cross;               /* cross-attention between attention and feed-forward; NULL = none */
    mha__mlp feed;                       /* for all tokens; with experts, the shared feed-forward */
    mha__experts *experts;               /* NULL = none */
    mha__block_convolution *convolution; /* NULL = none */
    /* If the weights are divided among processes: the products that replace the output projection of attention and
     * feed.down, which are then NULL. */
    mha__row_parallel *o_sum, *down_sum;
    mha_norm norm[MHA__BLOCK_NORMS]; /* weights and biases point into `norms` */
    float norms[];                   /* [2 MHA__BLOCK_NORMS, E] */
};

/* Creates a block like mha_block_create and adds experts, unless `experts` is NULL. With experts, the feed-forward of
 * `options` is the shared feed-forward. With `latent`, the attention layer is created without q, k and v, for
 * mha__latent_set. */
mha_status mha__block_create(mha_ctx *ctx, const mha_block_options *options, const mha__experts_options *experts,
                             bool latent, mha_block **block, mha_error *err);

/* Returns true unless the block consists of attention only. */
static inline bool mha__block_feeds(const mha_block *block)
{
    return block->feed.up || block->experts;
}

/* Returns the rows of a feed-forward chunk. */
static inline int64_t mha__block_chunk(const mha_block *block, int64_t rows)
{
    return mha__min64(rows, block->experts ? MHA__EXPERT_ROWS : MHA__CHUNK_ROWS);
}
/* Creates a block of which this process stores a part: `options` has its heads, its feed-forward columns, and neither o
 * nor down. The products `o` and `down` (NULL without feed-forward) replace these two. The block owns them, even if
 * this function fails. Only mha__block_run and mha_block_free may be called. */
mha_status mha__block_create_part(mha_ctx *ctx, const mha_block_options *options, mha__row_parallel *o,
                                  mha__row_parallel *down, mha_block **block, mha_error *err);

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
/* Like mha__block_run, and passes the activations to `edit` (activation_edit.h). `edit` NULL = none. Not for blocks
 * with cross-attention. */
mha_status mha__block_run_edited(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in,
                                 const mha__site_edit *edit, float *x, mha_error *err);
/* Runs the block's attention without the output projection, to get the maps, statistics or activations that `in`
 * requests. */
mha_status mha__block_attend(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in,
                             const float *x, mha_error *err);

#endif
