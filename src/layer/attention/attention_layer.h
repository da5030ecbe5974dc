/* attention_layer.h - the struct of an attention layer, shared with its backward pass; and what model and block need to
 * run all layers with one plan of the operator. */
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
    /* Defaults are filled in; pointers refer to this struct or are NULL. kv_heads is the count that the operator reads.
     */
    mha_attn_layer_options options;
    int64_t k_heads, v_heads; /* head counts of the projections; options.kv_heads is a multiple of both */
    mha_rope_options rope;    /* rotation; head_dim 0 without rope */
    mha_linear *qkv, *o;
    /* If q, k and v are packed head by head (computed_heads.h): the matrix of each head, and a mask of parts, where
     * `one_head + parts - 1 - p` selects head p alone. Else NULL. */
    mha__matrix *head_part;
    uint8_t *one_head;
    double *scores;            /* memory of both scorers, or NULL */
    mha__scorer score, hidden; /* score the heads; `out` is 0 without a selection */
    float norms[]; /* weights and biases of q_norm and k_norm, then [H] ALiBi slopes if the layer has them */
};

/* The width of the norms of q and of k: D, or all heads of the projection. */
static inline int64_t mha__attn_norm_width(const mha_attn_layer_options *o, int64_t heads)
{
    return o->whole_norms ? heads * o->head_dim : o->head_dim;
}

/* Copies the norms of q and k from the options into the layer. */
void mha__attn_layer_keep_norms(mha_attn_layer *layer, const mha_attn_layer_options *options);

/* Copies the caller's struct and checks batch and length: batch * length * 4096 bytes must not overflow. */
mha_status mha__layer_input(mha_layer_input *local, const mha_layer_input *given, mha_error *err);

/* Allocates a workspace of `bytes` unless the caller passed one. *own must be freed; NULL if nothing was allocated. */
mha_status mha__layer_workspace(mha_ctx *ctx, size_t bytes, mha_layer_input *in, void **own, const char *what,
                                mha_error *err);

/* The cache sequence that the input belongs to, or MHA_CACHE_ALL. */
int64_t mha__layer_sequence(const mha_layer_input *in);

/* Creates the operator's plan for an input of this shape; every layer that mha__attn_layer_alike accepts may run it.
 * Freed with mha_attn_plan_free. */
mha_status mha__attn_layer_plan(const mha_attn_layer *layer, const mha_layer_input *in, mha_attn_plan **plan,
                                mha_error *err);
/* True if both layers describe the same call of the operator. */
bool mha__attn_layer_alike(const mha_attn_layer *a, const mha_attn_layer *b);

/* The description of a plan, and the operator's arguments of one call: q, k and v are columns of qkv. */
mha_status mha__attn_layer_describe(const mha_attn_layer *layer, const mha_layer_input *in, mha_attn_desc *desc,
                                    mha_error *err);
/* Extends a description to both directions: f32 whatever the layer's dtype, with that fraction of the probabilities
 * dropped. */
void mha__attn_desc_both(mha_attn_desc *desc, double dropout);
mha_attn_args mha__attn_layer_args(const mha_attn_layer_options *o, const mha_layer_input *in, float *qkv,
                                   float *context);
/* Repeats each head of k and v until both have kv_heads, in place. */
void mha__attn_layer_spread(const mha_attn_layer *layer, int64_t rows, float *qkv);
/* qkv [rows, (H + 2 Hkv) D] of x: projections and repeated heads. `left` has mha__linear_left bytes, 0 for f32 weights.
 */
void mha__attn_layer_project(const mha_attn_layer *layer, int64_t rows, const float *x, void *left, float *qkv);
/* Backward pass of the repeated heads, in place: rows of dqkv then begin with the gradients of the projections'
 * outputs. */
void mha__attn_layer_gather(const mha_attn_layer *layer, int64_t rows, float *dqkv);
/* Normalizes and rotates the heads of q and k, in place. */
mha_status mha__attn_layer_prepare(const mha_attn_layer *layer, const mha_layer_input *in, int64_t rows, float *qkv,
                                   mha_error *err);

/* Bytes of a call's workspace; MHA_ERR_MEMORY if they exceed a size_t. */
mha_status mha__attn_layer_bytes(const mha_attn_layer *layer, const mha_attn_plan *plan, const mha_layer_input *in,
                                 size_t *bytes, mha_error *err);
/* mha_attn_layer_forward with an existing plan, in two steps: everything up to the context, which stays in
 * in->workspace; and the output projection to y for rows [first, first + rows) of B L. Neither allocates memory. */
mha_status mha__attn_layer_attend(const mha_attn_layer *layer, const mha_attn_plan *plan, const mha_layer_input *in,
                                  const float *x, mha_error *err);
void mha__attn_layer_output(const mha_attn_layer *layer, const mha_attn_plan *plan, const mha_layer_input *in,
                            int64_t first, int64_t rows, float *y);

/* attention_rows.c. Converts rows of f32 to the layer's 16-bit type, or back; adds fills [H D] to every row of context
 * [rows, H D]; copies rows to `to` unless it is NULL, from f32 or, if `halves` is not NULL, from 16 bit. */
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
/* Runs the block's attention up to the output projection, for the maps, statistics or activations that `in` requests.
 */
mha_status mha__block_attend(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in,
                             const float *x, mha_error *err);

#endif
