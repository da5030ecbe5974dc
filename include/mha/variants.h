/* variants.h - every published variant of multi-head attention, as one layer that can be initialized, run, trained,
 * saved and inspected.
 *
 *     q = query Wq^T + bq      k = key Wk^T + bk      v = value Wv^T + bv
 *     context = softmax(q k^T / divisor, over the keys that a row may see) v, for each head; heads beside each other
 *     output = context Wo^T + bo, or the context itself
 *
 * Every variant of the field is this one layer with other options, and perhaps a selector that looks at the mean of the
 * query's tokens and chooses which heads a sample needs. The second half of this header has a constructor for each:
 *
 *     mha_variant *layer;
 *     mha_weight_split_options o = { .size = sizeof o, .d_in = 6, .d_out = 6, .num_heads = 2, .context_length = 5 };
 *     mha_weight_split_create(NULL, &o, &layer, &err);
 *     mha_rng_manual_seed(&rng, 123);
 *     mha_variant_init(layer, &rng, &err);                                    // the weights that PyTorch would have
 *     mha_variant_input in = { .size = sizeof in, .batch = 2, .q_len = 5, .query = x };
 *     mha_variant_forward(layer, &in, y, trace, &err);                        // trace: what happened inside, or NULL
 *     mha_variant_gradient g = { .size = sizeof g, .output = dy, .query = dx };
 *     mha_variant_backward(layer, &in, trace, &g, &err);                      // adds to mha_variant_gradients
 *
 * Names: B batch, Lq and Lk tokens of query and key (past ones included), H heads, Hkv key/value heads, D head width.
 * Everything is row-major and contiguous, of the layer's dtype ("reals" below): f32, or f64 for those who check
 * gradients.
 *
 * A layer may be run by any number of threads at once, each with a trace of its own. Those calls that change it (init,
 * update, backward, zero_gradients) need it alone. Bits do not depend on threads, nor on a sample's place in the batch.
 * Common errors: MHA_ERR_ARG for a NULL pointer or a wrong value, naming it; MHA_ERR_MEMORY.
 */
#ifndef MHA_VARIANTS_H
#define MHA_VARIANTS_H

#include "mha/attn.h"
#include "mha/rng.h"
#include "mha/rope.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_variant mha_variant;

MHA_API void mha_variant_free(mha_variant *layer);

/* ---- parameters ---- */

/* Numbers in all parameters, biases included. Creating a layer allocates none of them. */
MHA_API int64_t mha_variant_parameter_count(const mha_variant *layer);

/* Allocates the parameters and draws them as PyTorch's constructors would, in the order of mha_variant_parameters: a
 * linear layer's weight and then its bias, uniform in +-1/sqrt(in); plain matrices uniform in [0, 1). An f64 layer gets
 * the same float32 numbers. `rng` NULL draws nothing and sets zeros, for parameters that are about to be loaded. */
MHA_API mha_status mha_variant_init(mha_variant *layer, mha_rng *rng, mha_error *err);

/* The list of parameters, by name: "q_proj.weight" [out, in], "heads.1.k_proj.bias" [out] ... `data` is the layer's own
 * memory, NULL before mha_variant_init. The list is what io.h saves and loads:
 *
 *     const mha_named_tensor *list = mha_variant_parameters(layer, &count);
 *     mha_tensors_write(ctx, "layer.safetensors", list, count, 0, &err);
 *
 *     mha_variant_init(layer, NULL, &err);
 *     mha_tensors_read(file, list, count, &err);
 *     mha_variant_update(layer, &err);
 */
MHA_API const mha_named_tensor *mha_variant_parameters(const mha_variant *layer, int64_t *count);
/* Must follow every change of parameters from outside: packs them for the matrix product. */
MHA_API mha_status mha_variant_update(mha_variant *layer, mha_error *err);

/* Gradients, in the same order and under the same names; `data` is NULL before the first backward or zero_gradients. */
MHA_API const mha_named_tensor *mha_variant_gradients(const mha_variant *layer, int64_t *count);
MHA_API mha_status mha_variant_zero_gradients(mha_variant *layer, mha_error *err);

/* ---- forward ---- */

/* A mask with its shape: [q, k], [batch, q, k] (never per head) or [batch, heads, q, k]. Extents of batch, heads and q
 * may be 1, which serves all; the last one is Lk. Where heads are experts, their axis has all of these. Any other shape
 * is refused. */
typedef struct mha_mask {
    const void *data; /* NULL = none */
    int rank;         /* 2..4 */
    int64_t shape[4]; /* [rank] */
} mha_mask;

typedef struct mha_variant_input {
    size_t size;          /* sizeof(mha_variant_input) */
    int64_t batch, q_len; /* B, Lq  > 0 */
    int64_t kv_len;       /* tokens of key and value; 0 = Lq */
    const void *query;    /* [B, Lq, d_in] */
    const void *key,
        *value; /* [B, kv_len, d_in]  key NULL = query, value NULL = key; NULL where a variant takes x alone */

    /* Masks, on top of the variant's own causal one. A row that `keep` leaves no key looks at all keys alike (those
     * that a causal variant lets it see), whatever additive or blocked say, as a score of -1e9 for every blocked key
     * makes it. Its q counts as 0, also in the trace: so do its scores. */
    mha_mask keep;     /* bytes; 0 = blocked */
    mha_mask additive; /* reals, added to the scaled scores; -infinity blocks */
    mha_mask blocked;  /* reals, times -1e10 and then added, in the layer's dtype: 1 = blocked; not with additive */

    const int64_t *positions;          /* [B, Lq] for rotation; NULL = past_len .. past_len + Lq - 1 */
    int64_t past_len;                  /* P  tokens whose keys and values are given; 0 = none */
    const void *past_key, *past_value; /* [B, Hkv, P, D], rotated already; not read where P is 0 */

    /* Dropout of the weights happens with `training` alone, if the layer has any; one that has none then refuses these.
     * At most one of dropout_keep and rng. */
    int training;
    const uint8_t *dropout_keep; /* [B, H, Lq, Lk]  0 = dropped; else drawn: */
    mha_rng *rng;                /* as PyTorch draws; NULL = from dropout_seed, as attn.h says */
    uint64_t dropout_seed;

    /* What the trace shall hold besides what backward needs: B H Lq Lk numbers each. */
    int want_weights;       /* after softmax, before dropout */
    int want_scores;        /* at the stage: */
    mha_scores score_stage; /* MHA_SCORES_RAW: scaled, no masks yet */
} mha_variant_input;

/* What a forward call leaves behind, for backward and for those who want to look. Reused from call to call; of any
 * layers. It may be looked into after the layer has been freed. */
typedef struct mha_trace mha_trace;
MHA_API mha_status mha_trace_create(mha_ctx *ctx, mha_trace **trace, mha_error *err);
MHA_API void mha_trace_free(mha_trace *trace);

/* output [B, Lq, d_out]; it must not overlap the inputs. Makes a plan of the operator for this shape, or one for each
 * sample where heads are selected. Errors besides the common ones: more tokens than the layer's context_length; a
 * mask of a wrong shape; what this variant does not take (key, positions, past ...), by name; parameters that were
 * neither drawn nor loaded. */
MHA_API mha_status mha_variant_forward(const mha_variant *layer, const mha_variant_input *input, void *output,
                                       mha_trace *trace, mha_error *err);

/* ---- looking inside ---- */

typedef enum mha_step {
    MHA_STEP_Q = 0,   /* [B, H, Lq, D] after projection and rotation; columns of heads not computed hold anything */
    MHA_STEP_K,       /* [B, Hkv, Lk, D] likewise, the past first: the key cache for the next call */
    MHA_STEP_V,       /* [B, Hkv, Lk, D] */
    MHA_STEP_SCORES,  /* [B, n, Lq, Lk] with want_scores; n = H, or the heads computed, in the order chosen */
    MHA_STEP_WEIGHTS, /* [B, n, Lq, Lk] with want_weights */
    MHA_STEP_CONTEXT, /* [B, Lq, n D] */
    MHA_STEP_MIXED,   /* [B, Lq, d_model] the sum over experts that o_proj reads */
    MHA_STEP_LOGITS,  /* [B, choices] the selector's opinion */
    MHA_STEP_GATES    /* [B, n] factors of the chosen heads, or [B, 1] of the chosen option */
} mha_step;

typedef struct mha_step_view {
    const void *data; /* reals, valid until the trace is used again */
    int rank;
    int64_t shape[4], stride[4];
} mha_step_view;

/* 0 if the last forward call has no such step. */
MHA_API int mha_trace_step(const mha_trace *trace, mha_step step, mha_step_view *view);

/* What the selector chose for sample b: experts or heads in falling order of their logits, or the one index of the
 * adaptive layer's option; *count of them (count may be NULL). NULL where nothing was selected. */
MHA_API const int32_t *mha_trace_chosen(const mha_trace *trace, int64_t b, int64_t *count);
/* With the adaptive layer: how many heads sample b had, and so how many of n in scores and weights. Else n. */
MHA_API int64_t mha_trace_heads(const mha_trace *trace, int64_t b);
/* Multiplications and additions of matrix products that the last forward call did: 2 rows in out for each projection,
 * 4 Lq Lk D for each head and sample (masked or not). Heads that were not computed are not in it. */
MHA_API int64_t mha_trace_flops(const mha_trace *trace);

/* ---- backward ---- */

typedef struct mha_variant_gradient {
    size_t size;                 /* sizeof(mha_variant_gradient) */
    const void *output;          /* [B, Lq, d_out] gradient of the output, given */
    void *query, *key, *value;   /* replaced, shaped as in the input; NULL = not wanted. Where key or value is NULL in
                                  * the input, it must be NULL here: its share is added to what it stands for */
    void *past_key, *past_value; /* likewise; nothing to write where P is 0 */
} mha_variant_gradient;

/* `input` and `trace` are those of the forward call, unchanged. Adds to mha_variant_gradients (parameters that the call
 * did not touch, such as experts that no sample chose, get nothing). Cost: about twice the forward call. */
MHA_API mha_status mha_variant_backward(mha_variant *layer, const mha_variant_input *input, const mha_trace *trace,
                                        const mha_variant_gradient *gradient, mha_error *err);

/* ---- constructors ----
 *
 * Each is a few options of the layer above. Field names are those of the walk-throughs; 0 is the default that is named.
 * docs/layers/ has a page for each variant with the shapes of every step. A constructor refuses sizes not in 1..2^24,
 * heads that do not divide the width, and what is named at the fields; mha_variant_init refuses heads wider than
 * MHA_HEAD_DIM_MAX. Free with mha_variant_free.
 */

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
