/* attention_layer.h - the inside of an attention layer, for its way back, and what model and block share with it: one
 * plan of the operator for a whole pass. */
#ifndef MHA_LAYER_ATTENTION_ATTENTION_LAYER_H
#define MHA_LAYER_ATTENTION_ATTENTION_LAYER_H

#include "layer/linear/linear.h"
#include "mha/layer.h"
#include <stdbool.h>

/* y = W x + b in double. */
typedef struct mha__scorer {
    int64_t in, out;
    double *weight, *bias; /* [out, in], [out] */
} mha__scorer;

struct mha_attn_layer {
    mha_ctx *ctx;
    /* Defaults filled in; pointers are into this struct, or NULL. kv_heads is what the operator reads. */
    mha_attn_layer_options options;
    int64_t k_heads, v_heads; /* that the projections give; options.kv_heads is a multiple of each */
    mha_rope_options rope;    /* what turning needs; head_dim 0 without rope */
    mha_linear *qkv, *o;
    /* Where q, k and v are packed head by head (computed_heads.h), else NULL: the heads, and bytes of which `one_head +
     * parts - 1 - p` is 1 for head p alone. */
    mha__matrix *head_part;
    uint8_t *one_head;
    double *scores;            /* memory of these, or NULL: */
    mha__scorer score, hidden; /* what heads are chosen by; without, `out` is 0 */
    float norms[]; /* [4, D] weight and bias of q_norm and k_norm; behind them [H] slopes, where there are any */
};

/* Copies the norms of q and k of the options into the layer. */
void mha__attn_layer_keep_norms(mha_attn_layer *layer, const mha_attn_layer_options *options);

/* Takes the caller's struct and checks batch and length, so that batch * length * 4096 bytes do not overflow. */
mha_status mha__layer_input(mha_layer_input *local, const mha_layer_input *given, mha_error *err);

/* Gives the input a workspace of `bytes` if the caller brought none; *own is then to be freed, else NULL. */
mha_status mha__layer_workspace(mha_ctx *ctx, size_t bytes, mha_layer_input *in, void **own, const char *what,
                                mha_error *err);

/* The sequence of the cache that the input is for, or MHA_CACHE_ALL. */
int64_t mha__layer_sequence(const mha_layer_input *in);

/* The operator's plan for an input of this shape; any layer that is alike may run it. Freed with mha_attn_plan_free. */
mha_status mha__attn_layer_plan(const mha_attn_layer *layer, const mha_layer_input *in, mha_attn_plan **plan,
                                mha_error *err);
/* True if both want the same of the operator. */
bool mha__attn_layer_alike(const mha_attn_layer *a, const mha_attn_layer *b);

/* What the plan is made from, and the operator's view of one call: q, k and v are columns of qkv. */
mha_status mha__attn_layer_describe(const mha_attn_layer *layer, const mha_layer_input *in, mha_attn_desc *desc,
                                    mha_error *err);
/* Makes a description one of both directions, in f32 whatever the layer computes in, with that share of the
 * probabilities dropped. */
void mha__attn_desc_both(mha_attn_desc *desc, double dropout);
mha_attn_args mha__attn_layer_args(const mha_attn_layer_options *o, const mha_layer_input *in, float *qkv,
                                   float *context);
/* Each head of k and v in as many copies as the operator reads, in place. */
void mha__attn_layer_spread(const mha_attn_layer *layer, int64_t rows, float *qkv);
/* qkv [rows, (H + 2 Hkv) D] of x: the projections, and those copies.
 * `left` is mha__linear_left bytes, none for weights of f32. */
void mha__attn_layer_project(const mha_attn_layer *layer, int64_t rows, const float *x, void *left, float *qkv);
/* The way back of the copies, in place: rows of dqkv then begin with dq, dk and dv as the projections gave q, k, v. */
void mha__attn_layer_gather(const mha_attn_layer *layer, int64_t rows, float *dqkv);
/* Norm and rotation of the heads of q and k, in place. */
mha_status mha__attn_layer_prepare(const mha_attn_layer *layer, const mha_layer_input *in, int64_t rows, float *qkv,
                                   mha_error *err);

/* Bytes that a call needs; MHA_ERR_MEMORY if they are more than a size_t holds. */
mha_status mha__attn_layer_bytes(const mha_attn_layer *layer, const mha_attn_plan *plan, const mha_layer_input *in,
                                 size_t *bytes, mha_error *err);
/* mha_attn_layer_forward with a plan made before, in two parts: all but the output projection, which leaves in
 * in->workspace what that reads; and y of rows [first, first + rows) of B L. Nothing is allocated. */
mha_status mha__attn_layer_attend(const mha_attn_layer *layer, const mha_attn_plan *plan, const mha_layer_input *in,
                                  const float *x, mha_error *err);
void mha__attn_layer_output(const mha_attn_layer *layer, const mha_attn_plan *plan, const mha_layer_input *in,
                            int64_t first, int64_t rows, float *y);

/* attention_rows.c. Rows of reals to the layer's 16 bit, or back; fills [H D] added to every row of context [rows, H
 * D]; rows copied `to` where they are wanted, from reals or, if these are given, from 16 bit. */
void mha__attn_convert(const mha_attn_layer *layer, int64_t rows, int64_t width, float *reals, uint16_t *halves,
                       bool widen);
void mha__attn_fill(const mha_attn_layer *layer, int64_t rows, const float *fills, float *context);
void mha__attn_show(const mha_attn_layer *layer, int64_t rows, int64_t width, const float *reals, uint16_t *halves,
                    float *to);

/* The same for a block: its attention layer, the bytes of a call, and a call that allocates nothing. */
const mha_attn_layer *mha__block_attn(const mha_block *block);
mha_status mha__block_bytes(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in, size_t *bytes,
                            mha_error *err);
mha_status mha__block_run(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in, float *x,
                          mha_error *err);
/* Its attention alone, up to the output projection: for what `in` shows of it. */
mha_status mha__block_attend(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in,
                             const float *x, mha_error *err);

#endif
