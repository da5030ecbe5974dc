/* transformer_block_backward.h - a block's forward pass with a trace, and its backward pass. */
#ifndef MHA_LAYER_BLOCK_TRANSFORMER_BLOCK_BACKWARD_H
#define MHA_LAYER_BLOCK_TRANSFORMER_BLOCK_BACKWARD_H

#include "layer/block/feed_forward_backward.h"
#include "layer/block/transformer_block.h"
#include "layer/row_dropout.h"

typedef struct mha__block_slots {
    mha__attn_slots attn;
    mha__grad_slot norm[MHA__BLOCK_NORMS];
    mha__feed_part_slots feed;
    mha__attn_slots cross;
    mha__grad_slot convolution, convolution_norm;
} mha__block_slots;

/* The activations that the forward pass stores; rows = B L. Inputs of norms include the residual. */
typedef struct mha__block_trace {
    float *x; /* [rows, E] block input; NULL if the backward pass does not read it */
    /* [rows, E] post-norm: input of attn_norm. pre-norm: input of mlp_norm; NULL without feed-forward and in a parallel
     * block, where it equals x */
    float *middle;
    float *attn_branch; /* [rows, E] input of attn_out_norm; NULL without that norm */
    float *mlp_branch;  /* [rows, E] input of mlp_out_norm or, with post-norm, of mlp_norm; else NULL */
    mha__feed_trace feed;
    mha__experts_trace experts;
    mha__attn_trace attn;
    /* Blocks with cross-attention, [rows, E]. cross_x: with pre-norm, the input of cross_norm. cross_sum: with
     * post-norm, the input of cross_norm; else NULL */
    float *cross_x, *cross_sum;
    mha__attn_trace cross;
    /* Blocks with a convolution, [rows, E]: its output before the activation, and the input of its norm */
    float *convolved, *convolution_sum;
} mha__block_trace;

typedef struct mha__block_scratch {
    float *branch, *normed; /* [rows, E] */
    float *outer;           /* [rows, E] gradient of a branch, if it differs from the gradient of the sum; else NULL */
    mha__feed_work feed;
    mha__attn_scratch attn, cross;
    float *dsource; /* [B S, E] gradient of the cross-attention's source from this block */
    /* Blocks with a convolution: the gradient of `convolved` [rows, E], and gathered rows of a chunk with their
     * gradients */
    float *dconvolved, *gathered, *dgathered;
} mha__block_scratch;

/* Arguments of both passes of one call. */
typedef struct mha__block_call {
    const mha_block *block;
    mha__attn_call attn;
    mha__drop attn_drop, mlp_drop; /* dropout of each branch before the residual is added */
    mha__drop convolution_drop;    /* dropout of the convolution before its activation */
    bool again;                    /* the forward pass recomputes the trace only; its output is not needed */
    /* stop the backward pass at the projections, or at the heads if the projections are frozen: the gradients of the
     * block input and of the norm before the projections are not needed */
    bool ends;
    /* Receives the gradients of the sites of activation_edit.h, from the last to the first, and must not change them;
     * MHA__EDIT_EMBEDDED is the gradient of the block's input. Without MHA__EDIT_QKV. NULL = none */
    const mha__site_edit *gradients;
    mha__block_trace trace;
    mha__block_scratch scratch;
    /* Blocks with cross-attention: the call, whose `key` and `value` are the source [B S, E], and the gradient of the
     * source, to which the backward pass adds; NULL = not computed */
    mha__attn_call cross;
    float *dsource;
} mha__block_call;

/* Allocate the arrays of a call from the arena. Set `learns` if the backward pass computes weight gradients, and
 * `drops` if a call applies dropout to branches. */
void mha__block_trace_take(mha__arena *arena, const mha_block *block, const mha_layer_input *in, bool learns,
                           mha__block_trace *trace);
void mha__block_scratch_take(mha__arena *arena, const mha_block *block, const mha_layer_input *in, bool drops,
                             size_t space_bytes, mha__block_scratch *scratch);

/* Returns B L. */
int64_t mha__block_rows(const mha__block_call *call);
/* Computes a norm of the block: y = norm(x), both [rows, E]. */
mha_status mha__block_norm(const mha__block_call *call, int which, const float *x, float *y, mha_error *err);
/* Sets *input to the input of a branch in a pre-norm block: the norm of x, computed in `normed`, or x without a
 * norm. */
mha_status mha__block_branch_input(const mha__block_call *call, int which, const float *x, const float **input,
                                   mha_error *err);
/* x += y and y = x, both [rows, E]. */
void mha__block_add(const mha__block_call *call, const float *y, float *x);
void mha__block_copy(const mha__block_call *call, const float *x, float *y);
/* Sets dx to the gradient of a norm's input, or adds the gradient to dx. */
mha_status mha__block_norm_back(const mha__block_call *call, const mha__block_slots *slots, int which, const float *x,
                                const float *dy, bool add_dx, float *dx, mha_error *err);
/* Backpropagates the gradient in `branch` through the norm of a pre-norm block, if present, and adds the result to
 * dx. */
mha_status mha__block_input_back(const mha__block_call *call, const mha__block_slots *slots, int which, const float *x,
                                 float *dx, mha_error *err);

/* The cross-attention of a block, and its norm: updates x [rows, E] and stores the trace. */
mha_status mha__cross_keep(const mha__block_call *call, float *x, mha_error *err);
/* dx is the gradient of the output on entry, and the gradient of the input on return. */
mha_status mha__cross_back(const mha__block_call *call, const mha__block_slots *slots, float *dx, mha_error *err);
/* Allocate the arrays of the cross-attention from the arena, if the block has one. */
void mha__cross_trace_take(mha__arena *arena, const mha_block *block, const mha_layer_input *in,
                           mha__block_trace *trace);
void mha__cross_scratch_take(mha__arena *arena, const mha_block *block, const mha_layer_input *in, size_t space_bytes,
                             mha__block_scratch *scratch);

/* Updates x [rows, E] and stores the trace. In f32 without dropout, x is bitwise identical to the result of
 * mha__block_run. With `again`, x is undefined afterwards. */
mha_status mha__block_keep(const mha__block_call *call, float *x, mha_error *err);
/* dx [rows, E] is the gradient of the output on entry, and the gradient of the input on return. With `ends`, dx is
 * undefined on return. */
mha_status mha__block_back(const mha__block_call *call, const mha__block_slots *slots, float *dx, mha_error *err);

#endif
