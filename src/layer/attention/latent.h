/* latent.h - multi-head latent attention (DeepSeek-V2, 2024): keys and values of all heads are projections of one
 * vector per token, and all heads also share one rotated key; queries may also be projections of a vector.
 *
 *     c = kv_norm(first kv_rank columns of kv_a(x)); the other `rope` columns are the shared key
 *     [key, value] of head h = kv_b(c);    q = q_b(q_norm(q_a(x))), or q_b(x) without q_a
 *
 * In the expanded form, the operator and the cache receive ordinary heads of width D. Their first `rope` columns are
 * rotated, and the following `nope` columns are not; q, k and v are padded with zeros to D.
 *
 * In the absorbed form (latent_absorbed.c, latent_heads.c), used with a cache of latent vectors, the operator
 * receives one key head [c, shared key] for all query heads, and c as its value. kv_b is applied to q and to the output
 * of the operator instead:
 *
 *     q_nope (kv_b_key c) = (kv_b_key^T q_nope) c;    sum_j p_j kv_b_value c_j = kv_b_value (sum_j p_j c_j) */
#ifndef MHA_LAYER_ATTENTION_LATENT_H
#define MHA_LAYER_ATTENTION_LATENT_H

#include "layer/attention/attention_layer.h"

typedef struct mha__latent_options {
    int64_t q_rank, kv_rank, nope, rope, value; /* q_rank 0 = q has no latent vector; value: width of a value */
    mha_matrix q_a, q_b, kv_a, kv_b;            /* `out` is not read; rows of a head are nope, rope; nope, value */
    mha_norm q_norm, kv_norm;                   /* over q_rank, kv_rank */
} mha__latent_options;

typedef struct mha__latent {
    mha__latent_options options; /* weights are NULL, but the weights of the norms point into `norms` */
    mha_linear *q_a, *q_b, *kv_a, *kv_b;
    mha_linear **head; /* [2 H] kv_b per head: nope -> kv_rank, the transposed part of the key; kv_rank -> value */
    float norms[];     /* [q_rank + kv_rank] */
} mha__latent;

/* Creates *linear, or packs it again if it exists, which cannot fail. */
mha_status mha__latent_keep(const mha_attn_layer *layer, int64_t in, const mha_matrix *matrix, mha_linear **linear,
                            mha_error *err);
/* Adds the projections to a layer that has none or, if the layer has them, packs them again; the latter cannot fail. */
mha_status mha__latent_set(mha_attn_layer *layer, const mha__latent_options *options, mha_error *err);
void mha__latent_free(mha_attn_layer *layer);

void mha__latent_trace_take(mha__arena *arena, const mha_attn_layer *layer, const mha__attn_call *call,
                            mha__attn_trace *trace);
void mha__latent_scratch_take(mha__arena *arena, const mha_attn_layer *layer, const mha__attn_call *call,
                              mha__attn_scratch *scratch);
/* Computes q, k and v in trace->qkv before rotation. */
void mha__latent_project(const mha_attn_layer *layer, const mha__attn_call *call, const float *x,
                         const mha__attn_trace *trace, const mha__attn_scratch *scratch);
/* The steps of mha__latent_project that both forms have in common: q_a and q_b, whose output is scratch->expanded; and
 * kv_a, whose output is trace->kv_latent, with its norm in scratch->normed. */
void mha__latent_queries(const mha_attn_layer *layer, const mha__attn_call *call, const float *x,
                         const mha__attn_trace *trace, const mha__attn_scratch *scratch);
void mha__latent_vectors(const mha_attn_layer *layer, const mha__attn_call *call, const float *x,
                         const mha__attn_trace *trace, const mha__attn_scratch *scratch);

/* ---- absorbed form ---- */

/* Returns true if the call has a cache of latent vectors. */
bool mha__latent_absorbs(const mha_attn_layer *layer, const mha_layer_input *in);
/* Checks the widths of the cache of a call. */
mha_status mha__latent_check_cache(const mha_attn_layer *layer, const mha_layer_input *in, mha_error *err);
/* Packs kv_b per head, or packs it again, which cannot fail. */
mha_status mha__latent_pack_heads(mha_attn_layer *layer, const mha_matrix *kv_b, mha_error *err);
void mha__latent_absorbed_take(mha__arena *arena, const mha_attn_layer *layer, const mha__attn_call *call,
                               mha__attn_scratch *scratch);
/* Computes the queries scratch->absorbed from scratch->expanded or, if `context` is not NULL, the context [rows, H, D]
 * from scratch->latent_out. */
void mha__latent_multiply(const mha_attn_layer *layer, const mha__attn_scratch *scratch, int64_t rows, float *context);
/* Computes the context in trace->context, and appends the tokens to the cache. `args` are those of mha__attn_args. */
mha_status mha__latent_attend(const mha_attn_layer *layer, const mha__attn_call *call, const float *x,
                              const mha__attn_trace *trace, const mha__attn_scratch *scratch, mha_attn_args *args,
                              mha_error *err);

/* ---- backward pass of the expanded form ---- */

/* Backpropagates scratch->dqkv; dx NULL = not computed. */
mha_status mha__latent_back(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_slots *slots,
                            const float *x, const mha__attn_trace *trace, const mha__attn_scratch *scratch, float *dx,
                            mha_error *err);

#endif
