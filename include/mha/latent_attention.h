/* latent_attention.h - multi-head latent attention (MLA) as a layer: keys and values of all heads are projections of
 * one vector per token, and all heads share one rotated key, so a cache stores one short vector per token.
 *
 *     mha_latent_options options = {.size = sizeof options, .hidden = E, .heads = H, .kv_rank = 512, .nope = 128,
 *                                   .rope = 64, .value = 128, .q_b.weight = ..., .causal = 1, ...};
 *     mha_attn_layer *layer;
 *     mha_latent_create(ctx, &options, &layer, &err);
 *     mha_cache_desc desc = {.size = sizeof desc, .batch = 1};
 *     mha_latent_cache(layer, &desc, &err);
 *     mha_cache_create(ctx, &desc, &cache, &err);
 *     mha_layer_input in = {.size = sizeof in, .batch = 1, .length = n, .cache = cache, .cos = cos, .sin = sin};
 *     mha_attn_layer_forward(layer, &in, x, y, &err);
 *
 * For a token x, with rotation R over the last `rope` columns of q, and over the shared key r:
 *
 *     [c, r] = kv_a x; c = kv_norm(c)                                c [kv_rank], r [rope]
 *     [k_h, v_h] = kv_b c of head h                                  k_h [nope], v_h [value]
 *     [q_h, s_h] of head h = q_b q_norm(q_a x), or q_b x             q_h [nope], s_h [rope]
 *     score of head h = scale (q_h k_h + (R s_h) (R r))
 *     y = o [sum_j p_j v_h of all heads]
 *
 * Two forms compute the same function, with different rounding (about 1e-6 of the result in float32):
 *
 *     expanded   computes k_h and v_h of all tokens. Used without a cache, with a cache of keys and values of H heads,
 *                and in the backward pass.
 *     absorbed   multiplies q_h and the attention's output by the parts of kv_b instead, so that the operator reads c
 *                and r: one key of kv_rank + rope elements per token, whose first kv_rank elements are its value. Used
 *                with a cache from mha_latent_cache, which stores only these elements.
 *
 * Within a form, results are bitwise identical for any division of a sequence into calls, any batch and any number of
 * threads. The absorbed form needs (2 kv_rank + rope) / (nope + rope + value) times the operations per pair of tokens
 * (3.4 in DeepSeek-V3), and reads 2 H max(nope + rope, value) / (kv_rank + rope) times fewer cached elements (85).
 *
 * After: DeepSeek-AI 2024 (DeepSeek-V2; DeepSeek-V3).
 */
#ifndef MHA_LATENT_ATTENTION_H
#define MHA_LATENT_ATTENTION_H

#include "mha/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Matrices are [out, in] and must not be `transposed`; `out` is not read. kv_b and q_b have no bias. */
typedef struct mha_latent_options {
    size_t size;               /* sizeof(mha_latent_options) */
    int64_t hidden, heads;     /* E, H > 0 */
    int64_t q_rank;            /* 0 = q_b reads x, and q_a and q_norm are not read */
    int64_t kv_rank;           /* > 0; kv_rank + rope is at most MHA_HEAD_DIM_MAX */
    int64_t nope, rope, value; /* widths of k_h and r, and of v_h; nope, value > 0; rope > 0 and even */
    mha_matrix q_a;            /* E -> q_rank */
    mha_matrix q_b;            /* q_rank or E -> H (nope + rope), rows of a head: q_h, s_h */
    mha_matrix kv_a;           /* E -> kv_rank + rope */
    mha_matrix kv_b;           /* kv_rank -> H (nope + value), rows of a head: k_h, v_h */
    mha_matrix o;              /* H value -> E */
    mha_norm q_norm, kv_norm;  /* RMS norms over q_rank and kv_rank, without bias */
    int interleaved;           /* 1 = rotated pairs are adjacent columns (as in rope.h) */
    double scale;              /* 0 = 1 / sqrt(nope + rope) */
    int causal;                /* query i attends to keys j <= i */
    mha_window window;         /* as in mha_attn_desc */
} mha_latent_options;

/* Creates a layer for mha_attn_layer_forward, mha_attn_layer_workspace and mha_attn_layer_free. mha_layer_input.cos and
 * .sin are [B L, rope / 2]. Weights are packed: each once, and kv_b a second time, by head. Errors: MHA_ERR_ARG naming
 * the field and its value; MHA_ERR_MEMORY. */
MHA_API mha_status mha_latent_create(mha_ctx *ctx, const mha_latent_options *options, mha_attn_layer **layer,
                                     mha_error *err);

/* Sets kv_heads, head_dim, v_head_dim and v_from_k of the description of a cache (cache.h) for the absorbed form:
 * kv_rank + rope elements per token. Errors: MHA_ERR_ARG for another layer. */
MHA_API mha_status mha_latent_cache(const mha_attn_layer *layer, mha_cache_desc *desc, mha_error *err);

/* Gradients of sum(y dy) for y of the expanded form. The gradients of weights are added to arrays in the shape of the
 * weights; NULL = not computed. */
typedef struct mha_latent_gradient {
    size_t size;                       /* sizeof(mha_latent_gradient) */
    const mha_latent_options *options; /* those of the creation: weights are read again */
    const mha_layer_input *input;      /* cache, activations, probs, stats and on_rows must be NULL */
    const float *x, *dy;               /* [B L, E] */
    float *dx;                         /* [B L, E] written */
    float *dq_a, *dq_a_bias, *dq_norm, *dq_b, *dkv_a, *dkv_a_bias, *dkv_norm, *dkv_b, *d_o, *d_o_bias;
} mha_latent_gradient;

/* Runs the forward pass again, with its activations, and the backward pass. Padding must have dy 0. Cost: three times
 * the forward pass; memory for the activations of one call. Errors: MHA_ERR_ARG naming the field; MHA_ERR_MEMORY. */
MHA_API mha_status mha_latent_backward(const mha_attn_layer *layer, const mha_latent_gradient *gradient,
                                       mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
