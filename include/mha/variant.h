/* variant.h - an attention layer that can be drawn, run, trained, saved and looked into.
 *
 *     q = query Wq^T + bq      k = key Wk^T + bk      v = value Wv^T + bv
 *     context = softmax(q k^T / divisor, over the keys that a row may see) v, for each head; heads beside each other
 *     output = context Wo^T + bo, or the context itself
 *
 * Every variant of the field is this one layer with other options, and perhaps a selector that looks at the mean of the
 * query's tokens and chooses which heads a sample needs. variants.h has a constructor for each; all else is here:
 *
 *     mha_variant *layer;
 *     mha_weight_split_options o = { .size = sizeof o, .d_in = 6, .d_out = 6, .num_heads = 2, .context_length = 5 };
 *     mha_weight_split_create(NULL, &o, &layer, &err);
 *     mha_rng_manual_seed(&rng, 123);
 *     mha_variant_init(layer, &rng, &err);                                    // the numbers that PyTorch draws
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
#ifndef MHA_VARIANT_H
#define MHA_VARIANT_H

#include "mha/attn.h"
#include "mha/rng.h"

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

#ifdef __cplusplus
}
#endif
#endif
