/* transformer_block_backward.h - a block that can be gone back through. */
#ifndef MHA_LAYER_BLOCK_TRANSFORMER_BLOCK_BACKWARD_H
#define MHA_LAYER_BLOCK_TRANSFORMER_BLOCK_BACKWARD_H

#include "layer/attention/attention_backward.h"
#include "layer/block/transformer_block.h"
#include "layer/row_dropout.h"

typedef struct mha__block_slots {
    mha__attn_slots attn;
    mha__grad_slot norm[MHA__BLOCK_NORMS];
    mha__grad_slot up, gate, down;
} mha__block_slots;

/* Rows are [B L]. A norm's input is what it read, with the residual in it. */
typedef struct mha__block_trace {
    float *x;           /* [rows, E] what went in; NULL where nothing reads it */
    float *middle;      /* [rows, E] post-norm: input of attn_norm. pre-norm: of mlp_norm; NULL without a feed-forward
                           part, as are mlp_branch and up */
    float *attn_branch; /* [rows, E] input of attn_out_norm; NULL without */
    float *mlp_branch;  /* [rows, E] input of mlp_out_norm, or, post-norm, of mlp_norm; else NULL */
    float *up, *gate;   /* [rows, I] before the activation; gate NULL without */
    bool slopes;        /* up holds the activation's slopes there, which every way back would find again */
    mha__attn_trace attn;
} mha__block_trace;

typedef struct mha__block_scratch {
    float *branch, *normed;      /* [rows, E] */
    float *outer;                /* [rows, E] gradient of a branch: with outer norms or dropout; else NULL */
    float *wide, *other, *dwide; /* [chunk, I] */
    void *left;                  /* of `up` and `gate`, where these round what they read */
    mha__attn_scratch attn;
} mha__block_scratch;

/* One call: what is the same in both directions. */
typedef struct mha__block_call {
    const mha_block *block;
    mha__attn_call attn;
    mha__drop attn_drop, mlp_drop; /* of branches, before they join the residual */
    bool again;                    /* keep: only the trace is wanted once more, not what comes out */
    bool ends; /* nobody wants the gradient of what went in, nor of the norm before the projections: the way back ends
                  at these, or at the heads where they do not learn */
    mha__block_trace trace;
    mha__block_scratch scratch;
} mha__block_call;

/* `learns`: the way back finds gradients of weights. `drops`: some call has dropout of branches. */
void mha__block_trace_take(mha__arena *arena, const mha_block *block, const mha_layer_input *in, bool learns,
                           mha__block_trace *trace);
void mha__block_scratch_take(mha__arena *arena, const mha_block *block, const mha_layer_input *in, bool drops,
                             size_t space_bytes, mha__block_scratch *scratch);

/* Changes x [rows, E] as mha__block_run does, in f32 and without dropout to the bit, and fills the trace. With `again`
 * x ends up as anything. */
mha_status mha__block_keep(const mha__block_call *call, float *x, mha_error *err);
/* dx [rows, E]: the gradient of what came out becomes that of what went in; with `ends`, nothing of use. */
mha_status mha__block_back(const mha__block_call *call, const mha__block_slots *slots, float *dx, mha_error *err);

#endif
