/* variants.h - every published variant of multi-head attention, each a few options over the one layer of variant.h.
 *
 * Field names are those of the walk-throughs; 0 is the default that is named. Each variant has a page with the shapes
 * of every step: docs/layers/. What a constructor refuses, with a sentence: sizes not in 1..2^24, heads that do not
 * divide the width, and what stands beside the fields; mha_variant_init refuses heads wider than MHA_HEAD_DIM_MAX. Free
 * with mha_variant_free.
 */
#ifndef MHA_VARIANTS_H
#define MHA_VARIANTS_H

#include "mha/rope.h"
#include "mha/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What scores are divided by. */
typedef enum mha_scale_rule {
    MHA_SCALE_HEAD_DIM = 0, /* sqrt of the width of one head */
    MHA_SCALE_D_OUT         /* sqrt of the width of all heads together, as one walk-through does */
} mha_scale_rule;

/* How a choice of heads, which has no gradient of its own, is made trainable: a gate g that the output of what was
 * chosen is multiplied with. Pruning: g = sigmoid(logit of the head). Adaptive: g = softmax(logits)[chosen option] (as
 * in Fedus et al. 2021). What was not chosen is not computed in any form, and gets a gradient through the softmax
 * alone. Gates and their gradients are reals of the layer's dtype. */
typedef enum mha_selection {
    MHA_SELECTION_HARD = 0,        /* g = 1, no gradient: the published code */
    MHA_SELECTION_SOFT,            /* g as above, with its gradient */
    MHA_SELECTION_STRAIGHT_THROUGH /* g = 1 in forward, the gradient of the soft one in backward (Bengio et al. 2013) */
} mha_selection;

/* ---- one head ---- */

/* softmax(q k^T / sqrt(d_out)) v.  docs/layers/self-attention.md */
typedef struct mha_self_attention_options {
    size_t size;
    mha_dtype dtype;     /* f32 (default) or f64; so in all of these */
    int64_t d_in, d_out; /* > 0 */
    int qkv_bias;        /* 1 = biases of q, k, v */
    int plain_matrices;  /* 1 = w_q, w_k, w_v [d_in, d_out], used as x @ w and drawn from [0, 1); no bias */
} mha_self_attention_options;
MHA_API mha_status mha_self_attention_create(mha_ctx *ctx, const mha_self_attention_options *options,
                                             mha_variant **layer, mha_error *err);

/* The same where token i sees tokens 0..i, with dropout of the weights.  docs/layers/causal-attention.md */
typedef struct mha_causal_attention_options {
    size_t size;
    mha_dtype dtype;
    int64_t d_in, d_out;
    int64_t context_length; /* most tokens; 0 = any number */
    double dropout;         /* 0..1 */
    int qkv_bias;
} mha_causal_attention_options;
MHA_API mha_status mha_causal_attention_create(mha_ctx *ctx, const mha_causal_attention_options *options,
                                               mha_variant **layer, mha_error *err);

/* ---- several heads ---- */

/* num_heads causal heads, each with matrices of its own, their outputs beside each other; no output projection.
 * Parameters "heads.N.q_proj.weight" ...; dropout is drawn head by head.  docs/layers/stacked-heads.md */
typedef struct mha_stacked_heads_options {
    size_t size;
    mha_dtype dtype;
    int64_t d_in, d_out; /* d_out of all heads together; num_heads divides it */
    int64_t num_heads;
    int64_t context_length; /* 0 = any number */
    double dropout;
    int qkv_bias;
    int plain_matrices; /* 1 = "heads.N.w_q" [d_in, d_out / num_heads] ..., as above */
    mha_scale_rule scale_rule;
} mha_stacked_heads_options;
MHA_API mha_status mha_stacked_heads_create(mha_ctx *ctx, const mha_stacked_heads_options *options, mha_variant **layer,
                                            mha_error *err);

/* One matrix for all heads, split after the projection; causal; o_proj with bias.  docs/layers/weight-split.md */
typedef struct mha_weight_split_options {
    size_t size;
    mha_dtype dtype;
    int64_t d_in, d_out; /* num_heads divides d_out */
    int64_t num_heads;
    int64_t context_length; /* 0 = any number */
    double dropout;
    int qkv_bias;
    mha_scale_rule scale_rule;
} mha_weight_split_options;
MHA_API mha_status mha_weight_split_create(mha_ctx *ctx, const mha_weight_split_options *options, mha_variant **layer,
                                           mha_error *err);

/* q, k and v from three inputs, biases, no output projection; masks by input.blocked.  docs/layers/qkv-attention.md */
typedef struct mha_qkv_attention_options {
    size_t size;
    mha_dtype dtype;
    int64_t input_dim, num_heads, output_dim; /* num_heads divides output_dim */
} mha_qkv_attention_options;
MHA_API mha_status mha_qkv_attention_create(mha_ctx *ctx, const mha_qkv_attention_options *options, mha_variant **layer,
                                            mha_error *err);

/* The layer of Vaswani et al. 2017: q, k, v, o_proj with biases; masks by input.keep.  docs/layers/standard-mha.md */
typedef struct mha_standard_mha_options {
    size_t size;
    mha_dtype dtype;
    int64_t d_model, num_heads; /* num_heads divides d_model; so in all that follow */
} mha_standard_mha_options;
MHA_API mha_status mha_standard_mha_create(mha_ctx *ctx, const mha_standard_mha_options *options, mha_variant **layer,
                                           mha_error *err);

/* num_heads / num_kv_heads query heads share a key/value head: grouped-query attention (Ainslie et al. 2023), and
 * multi-query (Shazeer 2019) with one. Query head h uses h / (num_heads / num_kv_heads).
 * docs/layers/grouped-query.md */
typedef struct mha_grouped_query_options {
    size_t size;
    mha_dtype dtype;
    int64_t d_model, num_heads;
    int64_t num_kv_heads; /* divides num_heads; 0 = num_heads / kv_groups */
    int64_t kv_groups; /* query heads that share one key/value head, divides num_heads; 0 = 1; not with num_kv_heads */
} mha_grouped_query_options;
MHA_API mha_status mha_grouped_query_create(mha_ctx *ctx, const mha_grouped_query_options *options, mha_variant **layer,
                                            mha_error *err);

/* As checkpoints of the LLaMA family have it: no biases, grouped heads, rotary positions, keys and values of past
 * tokens.  docs/layers/llama-attention.md */
typedef struct mha_llama_attention_options {
    size_t size;
    mha_dtype dtype; /* f64 without rotation alone */
    int64_t hidden_size, num_heads;
    int64_t num_kv_heads;   /* divides num_heads; 0 = num_heads */
    int64_t context_length; /* max_position_embeddings: most tokens, past ones included; 0 = any number */
    int causal;             /* 1 = token i sees tokens 0..i; 0 = input.additive says all, as the walk-through has it */
    int rotary;             /* 1 = q and k are rotated by input.positions */
    mha_rope_options rope;  /* with rotary alone: zero is theta 10000, pairs (i, i + D/2); size and head_dim are set */
} mha_llama_attention_options;
MHA_API mha_status mha_llama_attention_create(mha_ctx *ctx, const mha_llama_attention_options *options,
                                              mha_variant **layer, mha_error *err);

/* ---- heads by choice ---- */

typedef enum mha_expert_output {
    MHA_EXPERT_PROJECT = 0, /* each expert has its own o_proj from head_dim to d_model: the primary definition */
    MHA_EXPERT_SLOT,        /* expert e fills columns e head_dim .. of the sum; num_experts must be num_heads */
    MHA_EXPERT_PLAIN        /* the result is added as it is; head_dim must be d_model, so num_heads 1 */
} mha_expert_output;

/* Mixture of experts: each expert is a head; a router takes the top_k for each sample and weighs them by the softmax of
 * their logits. Experts that a sample does not take are not computed for it.  docs/layers/moe-heads.md */
typedef struct mha_moe_heads_options {
    size_t size;
    mha_dtype dtype;
    int64_t d_model, num_heads; /* head_dim = d_model / num_heads */
    int64_t num_experts;        /* 1..4096; 0 = num_heads */
    int64_t top_k;              /* 1..num_experts; 0 = 2, or 1 if there is only one */
    mha_expert_output expert_output;
} mha_moe_heads_options;
MHA_API mha_status mha_moe_heads_create(mha_ctx *ctx, const mha_moe_heads_options *options, mha_variant **layer,
                                        mha_error *err);

/* A predictor scores the heads, and each sample keeps the best (int)(num_heads * (1 - prune_ratio)) of them, computed
 * in double. The others are not computed: not projected, not attended, not read by o_proj. A ratio that keeps no head
 * is allowed: the output is o_proj's bias.  docs/layers/head-pruning.md */
typedef struct mha_head_pruning_options {
    size_t size;
    mha_dtype dtype;
    int64_t d_model, num_heads;
    double prune_ratio; /* 0..1; 0 keeps all */
    mha_selection selection;
} mha_head_pruning_options;
MHA_API mha_status mha_head_pruning_create(mha_ctx *ctx, const mha_head_pruning_options *options, mha_variant **layer,
                                           mha_error *err);

enum { MHA_HEAD_OPTIONS = 16 }; /* the most */

/* A predictor (two layers and a ReLU) chooses for each sample how many heads d_model is split into.
 * docs/layers/adaptive-heads.md */
typedef struct mha_adaptive_heads_options {
    size_t size;
    mha_dtype dtype;
    int64_t d_model;
    const int64_t *head_options; /* [head_option_count] each divides d_model; copied */
    int64_t head_option_count;   /* 1..MHA_HEAD_OPTIONS */
    int64_t predictor_width;     /* 0 = 128 */
    mha_selection selection;
} mha_adaptive_heads_options;
MHA_API mha_status mha_adaptive_heads_create(mha_ctx *ctx, const mha_adaptive_heads_options *options,
                                             mha_variant **layer, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
