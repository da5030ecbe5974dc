/* block_convolution.h - the convolution over the tokens parallel to a block (the first layer of DeBERTa-v2;
 * He et al. 2021):
 *
 *     y = mask * norm(block(x) + act(mask * conv(x)))
 *
 * with as many channels as the block, and the input x of the block. Inputs outside the sequence and at padding tokens
 * count as zeros and are not read; the output rows of padding tokens are zeros. Padding tokens are those beyond
 * `lengths` of the input, or those whose `real` is 0. Not for shards. The convolution is always computed in f32. */
#ifndef MHA_LAYER_BLOCK_BLOCK_CONVOLUTION_H
#define MHA_LAYER_BLOCK_BLOCK_CONVOLUTION_H

#include "layer/block/transformer_block_backward.h"
#include "layer/convolution.h"

typedef struct mha__convolution_options {
    int64_t taps, groups; /* odd; divides the width of the block. Output channels read only channels of their group */
    mha_activation activation;
    mha_matrix weight; /* [E, E / groups, taps], and a bias */
    mha_norm norm;
} mha__convolution_options;

struct mha__block_convolution {
    mha_ctx *ctx;
    int64_t hidden, taps, groups;
    mha_activation activation;
    mha_norm norm;        /* weight and bias point into `norms` */
    float *norms;         /* [2, E] */
    mha_linear *linear[]; /* [groups] */
};

/* Adds the convolution to a block or, if the block has one with the same options, packs its weights again. */
mha_status mha__block_convolution_set(mha_block *block, const mha__convolution_options *options, mha_error *err);
void mha__block_convolution_free(mha__block_convolution *convolution);

/* Returns the elements of a gathered row. */
static inline int64_t mha__gathered_width(const mha__block_convolution *c)
{
    return c->hidden / c->groups * c->taps;
}

/* Returns the layout of the channels of one group in a sequence. */
mha__signal mha__block_signal(const mha__block_convolution *convolution, const mha_layer_input *in, int64_t sequence);
/* Gathers the inputs of group g for rows [first, first + count) of x: gathered [count, mha__gathered_width]. */
void mha__block_gather(const mha__block_convolution *convolution, const mha_layer_input *in, int64_t g, int64_t first,
                       int64_t count, const float *x, float *gathered);
/* Computes y = mask * conv(x) or, unless `linear` is set, y = mask * act(conv(x)); both [B L, E]. `gathered` is scratch
 * for a chunk of rows. */
void mha__block_convolve(const mha_block *block, const mha_layer_input *in, const float *x, bool linear,
                         float *gathered, float *y);
/* Sets the rows of padding tokens to 0: x [B L, E]. */
void mha__block_clear_padding(const mha_layer_input *in, int64_t width, float *x);

/* The steps of the passes with a trace, for blocks with a convolution. */
void mha__convolution_trace_take(mha__arena *arena, size_t rows, size_t width, mha__block_trace *trace);
void mha__convolution_scratch_take(mha__arena *arena, const mha_block *block, int64_t rows, mha__block_scratch *s);
/* Computes the convolution of the input, before the block runs, and stores it before its activation. */
void mha__convolution_keep(const mha__block_call *call, const float *x);
/* Computes the output of the block from x, the output without the convolution. */
mha_status mha__convolution_join(const mha__block_call *call, float *x, mha_error *err);
/* dx is the gradient of the output on entry, and that of the block without the convolution on return. Keeps the
 * gradient of the convolution. */
mha_status mha__convolution_split(const mha__block_call *call, const mha__block_slots *slots, float *dx,
                                  mha_error *err);
/* Adds the gradient of the input of the convolution to dx, and accumulates those of its weights. */
mha_status mha__convolution_back(const mha__block_call *call, const mha__block_slots *slots, float *dx, mha_error *err);

#endif
