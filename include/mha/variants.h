/* variants.h - the published variants of multi-head attention, as one layer that can be initialized, run, trained,
 * saved and inspected.
 *
 *     q = query Wq^T + bq      k = key Wk^T + bk      v = value Wv^T + bv
 *     context = softmax(q k^T / divisor, over the keys that a row may attend to) v, for each head; heads concatenated
 *     output = context Wo^T + bo, or the context itself
 *
 * Every variant is this one layer with different options. Some variants have a selector, which selects the heads of
 * each sample from the mean of the sample's query tokens. The second half of this header declares a constructor for
 * each variant:
 *
 *     mha_variant *layer;
 *     mha_weight_split_options o = { .size = sizeof o, .d_in = 6, .d_out = 6, .num_heads = 2, .context_length = 5 };
 *     mha_weight_split_create(NULL, &o, &layer, &err);
 *     mha_rng_manual_seed(&rng, 123);
 *     mha_variant_init(layer, &rng, &err);                                    // the weights of PyTorch with this seed
 *     mha_variant_input in = { .size = sizeof in, .batch = 2, .q_len = 5, .query = x };
 *     mha_variant_forward(layer, &in, y, trace, &err);                        // trace: intermediate values, or NULL
 *     mha_variant_gradient g = { .size = sizeof g, .output = dy, .query = dx };
 *     mha_variant_backward(layer, &in, trace, &g, &err);                      // accumulates into mha_variant_gradients
 *
 * Names: B batch, Lq and Lk tokens of query and key (cached keys included), H heads, Hkv key/value heads, D head
 * width. All arrays are row-major and contiguous, of the layer's dtype: f32, or f64 for gradient checks.
 *
 * Any number of threads may run a layer concurrently, each with its own trace. Calls that modify the layer (init,
 * update, backward, zero_gradients) require exclusive access. Results are bitwise identical for any number of threads
 * and any position of a sample in the batch. Common errors: MHA_ERR_ARG, which names the argument, for a NULL pointer
 * or an invalid value; MHA_ERR_MEMORY. */
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

/* Returns the total number of elements in all parameters, including biases. Creating a layer does not allocate them. */
MHA_API int64_t mha_variant_parameter_count(const mha_variant *layer);

/* Allocates the parameters and initializes them as PyTorch's constructors would, in the order of
 * mha_variant_parameters. The weight and then the bias of a linear layer are uniform in +-1/sqrt(in); plain matrices
 * are uniform in [0, 1). An f64 layer gets the same values, which are rounded to float32. If `rng` is NULL, all
 * parameters are set to 0, for example before loading them. */
MHA_API mha_status mha_variant_init(mha_variant *layer, mha_rng *rng, mha_error *err);

/* Returns the named parameters: "q_proj.weight" [out, in], "heads.1.k_proj.bias" [out] ... `data` points to memory of
 * the layer and is NULL before mha_variant_init. io.h saves and loads such a list:
 *
 *     const mha_named_tensor *list = mha_variant_parameters(layer, &count);
 *     mha_tensors_write(ctx, "layer.safetensors", list, count, 0, &err);
 *
 *     mha_variant_init(layer, NULL, &err);
 *     mha_tensors_read(file, list, count, &err);
 *     mha_variant_update(layer, &err); */
MHA_API const mha_named_tensor *mha_variant_parameters(const mha_variant *layer, int64_t *count);
/* Packs the parameters for the matrix product. Call it after every change to the parameters. */
MHA_API mha_status mha_variant_update(mha_variant *layer, mha_error *err);

/* Returns the gradients, in the same order and under the same names; `data` is NULL before the first backward or
 * zero_gradients. */
MHA_API const mha_named_tensor *mha_variant_gradients(const mha_variant *layer, int64_t *count);
MHA_API mha_status mha_variant_zero_gradients(mha_variant *layer, mha_error *err);

/* ---- forward ---- */

/* A mask with its shape: [q, k], [batch, q, k] (the same for all heads) or [batch, heads, q, k]. The dimensions batch,
 * heads and q may be 1, which broadcasts; the last dimension is Lk. If heads are experts, the heads axis covers all
 * experts. Any other shape is an error. */
typedef struct mha_mask {
    const void *data; /* NULL = no mask */
    int rank;         /* 2..4 */
    int64_t shape[4]; /* [rank] */
} mha_mask;

typedef struct mha_variant_input {
    size_t size;          /* sizeof(mha_variant_input) */
    int64_t batch, q_len; /* B, Lq  > 0 */
    int64_t kv_len;       /* number of tokens in key and value; 0 = Lq */
    const void *query;    /* [B, Lq, d_in] */
    const void *key,
        *value; /* [B, kv_len, d_in]  key NULL = query, value NULL = key; NULL if the variant has one input */

    /* Masks, applied in addition to the variant's own causal mask. A row for which `keep` masks every key attends
     * uniformly to all keys that the causal mask allows, regardless of additive and blocked. This equals the effect of
     * a score of -1e9 for every masked key. The query and the scores of such a row count as 0, even in the trace. */
    mha_mask keep;     /* bytes; 0 = masked */
    mha_mask additive; /* of the layer's dtype; added to the scaled scores; -infinity masks */
    mha_mask blocked;  /* of the layer's dtype; multiplied by -1e10 and added: 1 = masked; not with additive */

    const int64_t *positions;          /* [B, Lq] for rotation; NULL = past_len .. past_len + Lq - 1 */
    int64_t past_len;                  /* P  number of cached tokens, whose keys and values are in past_key and
                                        * past_value; 0 = none */
    const void *past_key, *past_value; /* [B, Hkv, P, D], already rotated; not read if P is 0 */

    /* Dropout of the attention weights is applied with `training` only, if the layer has dropout. A layer without
     * dropout rejects dropout_keep and rng. At most one of dropout_keep and rng may be set. */
    int training;
    const uint8_t *dropout_keep; /* [B, H, Lq, Lk]  0 = dropped; NULL = sampled */
    mha_rng *rng;                /* generator that samples the mask as PyTorch does; NULL = sampled from dropout_seed,
                                  * as in attn.h */
    uint64_t dropout_seed;

    /* Additional values to record in the trace, B H Lq Lk elements each. */
    int want_weights;       /* after softmax, before dropout */
    int want_scores;        /* at score_stage */
    mha_scores score_stage; /* stage of the scores; MHA_SCORES_RAW: scaled, before masks */
} mha_variant_input;

/* The record of a forward call, for backward and for inspection. A trace can be reused for further calls, with any
 * layer, and may be read after the layer has been freed. */
typedef struct mha_trace mha_trace;
MHA_API mha_status mha_trace_create(mha_ctx *ctx, mha_trace **trace, mha_error *err);
MHA_API void mha_trace_free(mha_trace *trace);

/* Writes output [B, Lq, d_out]. The output must not overlap the inputs. Creates an operator plan for this shape, or one
 * per sample if heads are selected. Errors in addition to the common ones: more tokens than the layer's context_length;
 * a mask of a wrong shape; an input that this variant does not accept (key, positions, past ...), naming it; parameters
 * that were neither initialized nor loaded. */
MHA_API mha_status mha_variant_forward(const mha_variant *layer, const mha_variant_input *input, void *output,
                                       mha_trace *trace, mha_error *err);

/* ---- inspection ---- */

typedef enum mha_step {
    MHA_STEP_Q = 0,   /* [B, H, Lq, D] after projection and rotation; columns of skipped heads are unspecified */
    MHA_STEP_K,       /* [B, Hkv, Lk, D] like MHA_STEP_Q, cached keys first: the key cache for the next call */
    MHA_STEP_V,       /* [B, Hkv, Lk, D] values after projection, cached ones first */
    MHA_STEP_SCORES,  /* [B, n, Lq, Lk] with want_scores; n = H, or the number of computed heads, in the order of
                       * selection */
    MHA_STEP_WEIGHTS, /* [B, n, Lq, Lk] with want_weights */
    MHA_STEP_CONTEXT, /* [B, Lq, n D] outputs of the computed heads, concatenated */
    MHA_STEP_MIXED,   /* [B, Lq, d_model] sum over experts, weighted by their gates: the input of o_proj */
    MHA_STEP_LOGITS,  /* [B, choices] output of the selector */
    MHA_STEP_GATES    /* [B, n] gates of the selected heads, or [B, 1] of the selected option */
} mha_step;

typedef struct mha_step_view {
    const void *data; /* of the layer's dtype; valid until the trace is reused */
    int rank;
    int64_t shape[4], stride[4];
} mha_step_view;

/* Stores a view of a step of the last forward call in *view and returns 1; returns 0 if the call does not have this
 * step. */
MHA_API int mha_trace_step(const mha_trace *trace, mha_step step, mha_step_view *view);

/* Returns the selection for sample b: experts or heads in descending order of their logits, or, for the adaptive
 * layer, the index of its option. *count (may be NULL) gets the number of entries. NULL if the layer does not select
 * heads. */
MHA_API const int32_t *mha_trace_chosen(const mha_trace *trace, int64_t b, int64_t *count);
/* Returns the number of heads that sample b used. For the adaptive layer, only this many of the n heads in
 * MHA_STEP_SCORES and MHA_STEP_WEIGHTS are valid; for other layers, the number is n. */
MHA_API int64_t mha_trace_heads(const mha_trace *trace, int64_t b);
/* Returns the number of floating-point operations of the matrix products in the last forward call: 2 rows in out for
 * each projection, 4 Lq Lk D for each head and sample (masked or not). Heads that were not computed are not
 * counted. */
MHA_API int64_t mha_trace_flops(const mha_trace *trace);

/* ---- backward ---- */

typedef struct mha_variant_gradient {
    size_t size;                 /* sizeof(mha_variant_gradient) */
    const void *output;          /* [B, Lq, d_out] input: gradient of the output */
    void *query, *key, *value;   /* overwritten, shaped as in the input; NULL = not computed. If key or value is NULL
                                    in the input, it must be NULL here: its gradient is added to that of its
                                    substitute */
    void *past_key, *past_value; /* gradients of the cached keys and values; overwritten; NULL = not computed; not
                                    written if P is 0 */
} mha_variant_gradient;

/* Runs the backward pass. `input` and `trace` are those of the forward call, unchanged. Accumulates into
 * mha_variant_gradients; parameters that the call did not use, such as experts that no sample selected, are
 * unaffected. Cost: about twice the forward call. */
MHA_API mha_status mha_variant_backward(mha_variant *layer, const mha_variant_input *input, const mha_trace *trace,
                                        const mha_variant_gradient *gradient, mha_error *err);

/* ---- constructors ----
 *
 * Each constructor sets a few options of the layer above. Fields are named as in the walk-throughs; 0 selects the
 * default given at the field. docs/layers/ has a page for each variant with the shapes of every step. A constructor
 * rejects sizes outside 1..2^24, head counts that do not divide the width, and values outside the limits given at the
 * fields. mha_variant_init rejects heads wider than MHA_HEAD_DIM_MAX. Free the layer with mha_variant_free. */

/* How the divisor of the scores is defined. */
typedef enum mha_scale_rule {
    MHA_SCALE_HEAD_DIM = 0, /* sqrt of the width of one head */
    MHA_SCALE_D_OUT         /* sqrt of the total width of all heads, as in one of the PyTorch walk-throughs */
} mha_scale_rule;

/* How the selection of heads, which is not differentiable, is trained: through a gate g that multiplies the output of
 * each selected head or option. Pruning: g = sigmoid(logit of the head). Adaptive: g = softmax(logits)[selected
 * option] (as in Fedus et al. 2021). Unselected heads are never computed; their logits get a gradient only through the
 * softmax. Gates and their gradients are of the layer's dtype. */
typedef enum mha_selection {
    MHA_SELECTION_HARD = 0,        /* g = 1, no gradient, as in the published code */
    MHA_SELECTION_SOFT,            /* g as defined above, with its gradient */
    MHA_SELECTION_STRAIGHT_THROUGH /* g = 1 forward, gradient of the soft gate backward (Bengio et al. 2013) */
} mha_selection;

/* ---- attention with one head ---- */

/* softmax(q k^T / sqrt(d_out)) v.  docs/layers/self-attention.md */
typedef struct mha_self_attention_options {
    size_t size;
    mha_dtype dtype;     /* f32 (default) or f64, here and in all options below */
    int64_t d_in, d_out; /* > 0 */
    int qkv_bias;        /* 1 = the projections of q, k and v have biases */
    int plain_matrices;  /* 1 = w_q, w_k, w_v [d_in, d_out], multiplied as x @ w, initialized in [0, 1), without
                          * biases */
} mha_self_attention_options;
MHA_API mha_status mha_self_attention_create(mha_ctx *ctx, const mha_self_attention_options *options,
                                             mha_variant **layer, mha_error *err);

/* Self-attention where token i attends to tokens 0..i, with dropout of the attention weights.
 * docs/layers/causal-attention.md */
typedef struct mha_causal_attention_options {
    size_t size;
    mha_dtype dtype;
    int64_t d_in, d_out;
    int64_t context_length; /* maximum number of tokens per sequence; 0 = unlimited */
    double dropout;         /* 0..1 */
    int qkv_bias;
} mha_causal_attention_options;
MHA_API mha_status mha_causal_attention_create(mha_ctx *ctx, const mha_causal_attention_options *options,
                                               mha_variant **layer, mha_error *err);

/* ---- attention with several heads ---- */

/* num_heads causal heads with separate matrices, whose outputs are concatenated; no output projection. Parameters
 * "heads.N.q_proj.weight" ...; dropout is sampled head by head.  docs/layers/stacked-heads.md */
typedef struct mha_stacked_heads_options {
    size_t size;
    mha_dtype dtype;
    int64_t d_in, d_out; /* d_out is the total width of all heads; must be divisible by num_heads */
    int64_t num_heads;
    int64_t context_length; /* 0 = unlimited */
    double dropout;
    int qkv_bias;
    int plain_matrices; /* 1 = "heads.N.w_q" [d_in, d_out / num_heads] ..., as in mha_self_attention_options */
    mha_scale_rule scale_rule;
} mha_stacked_heads_options;
MHA_API mha_status mha_stacked_heads_create(mha_ctx *ctx, const mha_stacked_heads_options *options, mha_variant **layer,
                                            mha_error *err);

/* One matrix for all heads, split after the projection; causal; o_proj with bias.  docs/layers/weight-split.md */
typedef struct mha_weight_split_options {
    size_t size;
    mha_dtype dtype;
    int64_t d_in, d_out; /* d_out must be divisible by num_heads */
    int64_t num_heads;
    int64_t context_length; /* 0 = unlimited */
    double dropout;
    int qkv_bias;
    mha_scale_rule scale_rule;
} mha_weight_split_options;
MHA_API mha_status mha_weight_split_create(mha_ctx *ctx, const mha_weight_split_options *options, mha_variant **layer,
                                           mha_error *err);

/* q, k and v from three inputs, with biases, without an output projection; masked by input.blocked.
 * docs/layers/qkv-attention.md */
typedef struct mha_qkv_attention_options {
    size_t size;
    mha_dtype dtype;
    int64_t input_dim, num_heads, output_dim; /* output_dim must be divisible by num_heads */
} mha_qkv_attention_options;
MHA_API mha_status mha_qkv_attention_create(mha_ctx *ctx, const mha_qkv_attention_options *options, mha_variant **layer,
                                            mha_error *err);

/* The layer of Vaswani et al. 2017: q, k, v, o_proj with biases; masked by input.keep.  docs/layers/standard-mha.md */
typedef struct mha_standard_mha_options {
    size_t size;
    mha_dtype dtype;
    int64_t d_model, num_heads; /* d_model must be divisible by num_heads, here and in all options below */
} mha_standard_mha_options;
MHA_API mha_status mha_standard_mha_create(mha_ctx *ctx, const mha_standard_mha_options *options, mha_variant **layer,
                                           mha_error *err);

/* num_heads / num_kv_heads query heads share a key/value head: grouped-query attention (Ainslie et al. 2023), and
 * multi-query attention (Shazeer 2019) if num_kv_heads is 1. Query head h uses h / (num_heads / num_kv_heads).
 * docs/layers/grouped-query.md */
typedef struct mha_grouped_query_options {
    size_t size;
    mha_dtype dtype;
    int64_t d_model, num_heads;
    int64_t num_kv_heads; /* must divide num_heads; 0 = num_heads / kv_groups */
    int64_t kv_groups;    /* query heads per key/value head; must divide num_heads; 0 = 1; not with num_kv_heads */
} mha_grouped_query_options;
MHA_API mha_status mha_grouped_query_create(mha_ctx *ctx, const mha_grouped_query_options *options, mha_variant **layer,
                                            mha_error *err);

/* The attention of LLaMA checkpoints: grouped-query attention with rotary position embeddings and a key/value cache,
 * without biases. docs/layers/llama-attention.md */
typedef struct mha_llama_attention_options {
    size_t size;
    mha_dtype dtype; /* f64 without rotation only */
    int64_t hidden_size, num_heads;
    int64_t num_kv_heads;   /* must divide num_heads; 0 = num_heads */
    int64_t context_length; /* max_position_embeddings: maximum number of tokens, cached ones included; 0 = unlimited */
    int causal;             /* 1 = token i attends to tokens 0..i; 0 = only input.additive masks */
    int rotary;             /* 1 = q and k are rotated by input.positions */
    mha_rope_options rope;  /* read with `rotary` only; zeros = theta 10000, pairs (i, i + D/2); size and head_dim are
                             * ignored */
} mha_llama_attention_options;
MHA_API mha_status mha_llama_attention_create(mha_ctx *ctx, const mha_llama_attention_options *options,
                                              mha_variant **layer, mha_error *err);

/* ---- head selection ---- */

typedef enum mha_expert_output {
    MHA_EXPERT_PROJECT = 0, /* the default: each expert has its own o_proj from head_dim to d_model */
    MHA_EXPERT_SLOT,        /* expert e writes head_dim columns of the sum, from column e * head_dim on; num_experts
                             * must be num_heads */
    MHA_EXPERT_PLAIN        /* the output of an expert is added without projection; head_dim must be d_model, so
                             * num_heads is 1 */
} mha_expert_output;

/* Mixture of experts in which each expert is a head. A router selects the top_k experts of each sample and weights
 * them by the softmax of their logits. Experts that are not selected are not computed.  docs/layers/moe-heads.md */
typedef struct mha_moe_heads_options {
    size_t size;
    mha_dtype dtype;
    int64_t d_model, num_heads; /* head_dim = d_model / num_heads */
    int64_t num_experts;        /* 1..4096; 0 = num_heads */
    int64_t top_k;              /* 1..num_experts; 0 = 2, or 1 if num_experts is 1 */
    mha_expert_output expert_output;
} mha_moe_heads_options;
MHA_API mha_status mha_moe_heads_create(mha_ctx *ctx, const mha_moe_heads_options *options, mha_variant **layer,
                                        mha_error *err);

/* A predictor scores the heads, and each sample keeps the best (int)(num_heads * (1 - prune_ratio)) of them; the count
 * is computed in double. Pruned heads are not computed: neither their projections nor their attention nor their part of
 * o_proj. A ratio that keeps no head is allowed; the output is then the bias of o_proj.  docs/layers/head-pruning.md */
typedef struct mha_head_pruning_options {
    size_t size;
    mha_dtype dtype;
    int64_t d_model, num_heads;
    double prune_ratio; /* fraction of heads that are pruned, 0..1 */
    mha_selection selection;
} mha_head_pruning_options;
MHA_API mha_status mha_head_pruning_create(mha_ctx *ctx, const mha_head_pruning_options *options, mha_variant **layer,
                                           mha_error *err);

enum { MHA_HEAD_OPTIONS = 16 }; /* maximum number of options */

/* A predictor (two linear layers and a ReLU) selects the number of heads that d_model is split into, per sample.
 * docs/layers/adaptive-heads.md */
typedef struct mha_adaptive_heads_options {
    size_t size;
    mha_dtype dtype;
    int64_t d_model;
    const int64_t *head_options; /* [head_option_count] head counts to select from; each must divide d_model; copied */
    int64_t head_option_count;   /* 1..MHA_HEAD_OPTIONS */
    int64_t predictor_width;     /* width of the predictor's hidden layer; 0 = 128 */
    mha_selection selection;
} mha_adaptive_heads_options;
MHA_API mha_status mha_adaptive_heads_create(mha_ctx *ctx, const mha_adaptive_heads_options *options,
                                             mha_variant **layer, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
