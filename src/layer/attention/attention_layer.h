/* attention_layer.h - the attention layer of models (mha/layer.h) and variants (mha/variants.h): its struct, the state
 * of a call, and the steps of both passes.
 *
 *     x -> q, k, v -> norms, rotation -> cache or cached keys -> operator -> experts -> output projection
 *
 * A call that records (MHA_ATTN_LSE in `outputs`) stores the activations that the backward pass reads. Elements
 * ("reals") are f32, or f64 in layers of variants. A 16-bit dtype of the layer only applies to calls that do not
 * record. */
#ifndef MHA_LAYER_ATTENTION_ATTENTION_LAYER_H
#define MHA_LAYER_ATTENTION_ATTENTION_LAYER_H

#include "base/arena.h"
#include "layer/activation_edit.h"
#include "layer/linear/linear.h"
#include "layer/real.h"
#include "mha/attn_grads.h"
#include "mha/layer.h"
#include <stdbool.h>

/* ---- the layer ---- */

/* A linear map y = W x + b, computed in double or, if `linear` is not NULL, by that linear layer in the layer's
 * dtype. */
typedef struct mha__scorer {
    int64_t in, out;
    double *weight, *bias; /* [out, in], [out] */
    mha_linear *linear;
} mha__scorer;

struct mha_attn_layer {
    mha_ctx *ctx;
    /* Options with defaults filled in; pointers are NULL or point into this struct. kv_heads is the count that the
     * operator reads; dtype may be f64. */
    mha_attn_layer_options options;
    int64_t k_heads, v_heads; /* head counts of the projections; options.kv_heads is a multiple of both */
    mha_rope_options rope;    /* rotation; head_dim is 0 without rope */
    /* Projections of q, k and v; only project[0] if it is fused or if all three have the same input and no head is
     * skipped. If `o` is NULL, y is the context. */
    mha_linear *project[3], *o;
    int64_t out; /* width of y */
    /* If each head of q, k and v is packed as a separate matrix (computed_heads.h): the matrices of all heads, and a
     * mask in which `one_head + heads - 1 - h` selects only head h. Otherwise NULL. */
    mha__matrix *head_part;
    uint8_t *one_head;
    /* Output projections of experts (expert_output.h). Unused if expert e fills columns [e D, (e + 1) D) of the sum, as
     * in models. */
    mha_expert_output expert_output;
    mha_linear *expert_o;
    const void *expert_bias; /* [experts, E] */
    double *scores;          /* memory of both scorers; NULL without a selection */
    /* true for variants: scores have the layer's dtype, and selected heads are summed greatest score first, to
     * reproduce published results. false for models: scores are double, and heads are summed by index. */
    bool as_published;
    mha__scorer score, hidden; /* linear maps that score the heads; `out` is 0 without a selection */
    /* weights and biases of q_norm and k_norm, then [H] ALiBi slopes and [H] sinks if the layer has them */
    float *norms;
    struct mha__disentangled *relative; /* terms of relative positions (disentangled.h); NULL = none */
    struct mha__latent *latent;         /* projections of latent attention, instead of `project`; NULL = none */
};

/* Returns the width of the norm of q or k: head_dim or, with whole_norms, the width of all heads of the projection. */
static inline int64_t mha__attn_norm_width(const mha_attn_layer_options *o, int64_t heads)
{
    return o->whole_norms ? heads * o->head_dim : o->head_dim;
}
/* Returns the elements in the weight of the norm of q or k. */
static inline int64_t mha__attn_norm_weights(const mha_attn_layer_options *o, int64_t heads)
{
    return o->head_gains ? heads * o->head_dim : mha__attn_norm_width(o, heads);
}
static inline bool mha__attn_is_half(const mha_attn_layer *layer)
{
    return layer->options.dtype == MHA_BF16 || layer->options.dtype == MHA_F16;
}
/* Returns the bytes per element of x, y, and q, k and v before rounding. */
static inline size_t mha__attn_real(const mha_attn_layer *layer)
{
    return layer->options.dtype == MHA_F64 ? sizeof(double) : sizeof(float);
}
/* Returns the elements per row of q, k and v together; q must have as many rows as k and v. */
static inline int64_t mha__qkv_width(const mha_attn_layer_options *o)
{
    return (o->heads + 2 * o->kv_heads) * o->head_dim;
}
/* Returns true if the outputs of experts are summed before the output projection. The context then holds only the kept
 * experts of each sequence, in the order of its list, since a sequence may keep few of many experts. */
static inline bool mha__experts_summed(const mha_attn_layer *layer)
{
    return layer->options.choice.of == MHA_CHOICE_EXPERTS && layer->expert_output != MHA_EXPERT_SLOT;
}
static inline int64_t mha__context_width(const mha_attn_layer *layer)
{
    const mha_attn_layer_options *o = &layer->options;
    return (mha__experts_summed(layer) ? o->choice.keep : o->heads) * o->head_dim;
}

/* Projections that a layer of a model lacks. Without q, k and v, mha__latent_set must add them. Without the output
 * projection, the caller reads the context of the call's trace, in f32, and computes the projection. */
enum { MHA__WITHOUT_QKV = 1, MHA__WITHOUT_OUTPUT = 2 };
/* Like mha_attn_layer_create, but without the projections in `without`. */
mha_status mha__attn_layer_create(mha_ctx *ctx, const mha_attn_layer_options *options, unsigned without,
                                  mha_attn_layer **layer, mha_error *err);
/* Frees the memory that the struct points to, but not the struct. */
void mha__attn_layer_release(mha_attn_layer *layer);
/* Returns true if both layers describe a call to the operator identically. */
bool mha__attn_layer_equivalent(const mha_attn_layer *a, const mha_attn_layer *b);

/* ---- state of a call ---- */

/* Optional gradients of the backward pass; data NULL = not computed. */
typedef struct mha__attn_also {
    mha_view dgates;     /* [B, H] gradients of the caller's gates */
    mha_view row_taylor; /* [B, H, L] row_taylor of mha_attn_grads */
    mha_view dbias;      /* shaped like the bias of the input */
    float *dtable;       /* accumulated gradient of the table of relative positions (disentangled.h) */
} mha__attn_also;

/* `outputs` of a call that has a forward and a backward pass. */
enum { MHA__ATTN_BOTH = MHA_ATTN_LSE | MHA_ATTN_GRADS };

/* The arguments that the forward and backward pass share. A call that does not record requires only `plan` and `in`. */
typedef struct mha__attn_call {
    const mha_attn_plan *plan; /* from mha__attn_plan; NULL for a shard; unused if the head count varies per sequence */
    const mha_layer_input *in;
    uint32_t outputs; /* outputs of the operator in addition to the outputs that `in` requests; MHA_ATTN_LSE if the
                            * call records */
    const mha__site_edit *edit; /* receives q, k and v, and the context; NULL = none. Only in f32 */
    double dropout;             /* fraction of the probabilities to drop */
    uint64_t dropout_seed;      /* seed of the random dropout mask */
    mha__attn_also also;
    /* Used only by variants, and by cross-attention that records: */
    const void *key, *value; /* [B, kv_length, E] inputs of k and v; NULL = x */
    /* The fields below are used only by variants: */
    int64_t kv_length;                 /* tokens of key and value; 0 = in->length */
    int64_t past;                      /* number of preceding tokens whose keys and values the caller passes */
    const void *past_key, *past_value; /* [B, Hkv, past, D] */
    mha_cview drop;                    /* mask like dropout_keep in mha_attn_args; data NULL = none */
    mha_cview empty;   /* [B, H, L] bytes; a nonzero byte sets q of the row to 0, with gradient 0; data NULL = none */
    mha_scores scores; /* stage of the scores that MHA_ATTN_SCORES records */
} mha__attn_call;

static inline bool mha__attn_records(const mha__attn_call *call)
{
    return (call->outputs & MHA_ATTN_LSE) != 0;
}
static inline int64_t mha__attn_rows(const mha__attn_call *call)
{
    return call->in->batch * call->in->length;
}
static inline int64_t mha__attn_kv_length(const mha_attn_layer *layer, const mha__attn_call *call)
{
    if (layer->options.cross) return call->in->source->tokens;
    return call->kv_length ? call->kv_length : call->in->length;
}
static inline int64_t mha__attn_keys(const mha_attn_layer *layer, const mha__attn_call *call)
{
    return call->past + mha__attn_kv_length(layer, call);
}
/* Returns true if k and v were computed before the call (mha_layer_source). */
static inline bool mha__attn_kv_given(const mha_attn_layer *layer, const mha__attn_call *call)
{
    return layer->options.cross && call->in->source->kv;
}

/* The head selection for each sequence of a call (selection/head_selection.h). S is the number of scores: one per head
 * or per option. Arrays are [sequences, S] unless noted. */
typedef struct mha__chosen {
    double *mean;   /* [sequences, E] means of the tokens */
    double *hidden; /* [sequences, P] hidden layer of the scores, or NULL */
    double *score;
    double *soft;  /* trained gates (selection_gates.h) */
    double *gate;  /* gate of each head, or of each option, applied to all its heads; 0 = not selected */
    void *gates;   /* gate times the caller's gate (reals); read by the operator */
    uint8_t *kept; /* 1 = selected, 0 = not */
    int32_t *list; /* indices of the selected scores: ascending, or greatest score first with as_published */
    void *rounded; /* [sequences, E + P + S] reals: scratch for means, hidden values and scores rounded to the
                    * layer dtype; NULL unless as_published */
} mha__chosen;

/* The results of a call: arrays of reals unless noted; NULL = not needed. Lk is the number of all keys, and n is the
 * greatest head count of a sequence. */
typedef struct mha__attn_trace {
    void *plain;            /* q, k and v before the norms of q and k, in the layout of qkv */
    void *qkv;              /* q, k and v in the layout of mha__qkv; NULL if the projection writes `half` directly */
    void *past_k, *past_v;  /* [B, Hkv, Lk, D] past and new keys and values; NULL without past keys */
    uint16_t *half, *mixed; /* `qkv` and `context` in the layer's 16-bit type */
    void *context;          /* [B L, H D], or only the columns of kept experts if experts are summed */
    void *sum;              /* [B L, E] sum of the experts */
    void *lse;              /* [B, n, L] log-sum-exp of each row */
    void *probs, *scores;   /* [B, n, L, Lk] */
    float *q_latent, *kv_latent; /* [B L, ...] vectors of latent attention before their norms (latent.h) */
    mha__chosen chosen;
} mha__attn_trace;

/* Gradients of a selection. */
typedef struct mha__choice_grads {
    void *dgates;    /* [sequences, S] gradients of the operator's gates (reals) */
    double *dscore;  /* [sequences, S] gradients of the scores */
    double *dhidden; /* [sequences, P] gradients of the hidden layer, or NULL */
    double *dmean;   /* [sequences, E] gradients of `mean` */
} mha__choice_grads;

/* Temporary memory for a call. */
typedef struct mha__attn_scratch {
    void *left;  /* rounded input of the linear layers */
    void *space; /* workspace of the operator */
    size_t space_bytes;
    float *terms[2]; /* [B L, rows of the table] products of q and k with relative positions; NULL without them */
    float *bias;     /* [sequences, H, M, M] terms of relative positions; M = length of the longest sequence */
    int32_t *distance_rows; /* [2 M - 1] row of the table for the distances 1 - M to M - 1 */
    /* Latent attention: [B L, ...] output of a second projection, a normalized vector, and rounded inputs. */
    float *expanded, *normed;
    void *latent_left;
    /* The absorbed form of latent attention: [B L, H, kv_rank + rope] queries and [B L, kv_rank + rope] keys of the
     * operator, its output [B L, H, kv_rank], and rounded inputs per thread. */
    float *absorbed, *latent_keys, *latent_out;
    void *head_left;
    /* The fields below are used only with MHA_ATTN_GRADS: */
    float *dbias;            /* gradient of `bias` */
    float *dlatent;          /* gradient of a vector of latent attention */
    void *dqkv;              /* gradients in the layout of qkv */
    void *dpast_k, *dpast_v; /* gradients in the layout of past_k and past_v */
    void *dcontext, *dsum;   /* gradients in the layout of context and sum */
    float *dsinks;           /* [H] gradient of the sinks in this call; NULL without sinks */
    mha__choice_grads choice;
} mha__attn_scratch;

/* Allocate the arrays of a trace or of scratch memory from an arena. `space_bytes` is the workspace that the plan
 * requires. */
void mha__attn_trace_take(mha__arena *arena, const mha_attn_layer *layer, const mha__attn_call *call,
                          mha__attn_trace *trace);
void mha__attn_scratch_take(mha__arena *arena, const mha_attn_layer *layer, const mha__attn_call *call,
                            size_t space_bytes, mha__attn_scratch *scratch);

/* q, k and v in one buffer: rows [q of H heads | k of Hkv | v of Hkv], or, if the number of rows differs, all rows of q
 * and then rows [k | v]. */
typedef struct mha__qkv {
    char *q, *k, *v;
    char *written_v;                   /* where the projection writes v, before heads of k and v are repeated */
    int64_t q_row, kv_row;             /* elements from one row to the next */
    int64_t q_rows, kv_rows, elements; /* rows of q, rows of k and v, and elements of the buffer */
} mha__qkv;
/* Returns the addresses of q, k and v in `buffer`, whose elements have `size` bytes. */
mha__qkv mha__qkv_of(const mha_attn_layer *layer, const mha__attn_call *call, void *buffer, size_t size);

/* ---- steps: layer_input.c, attention_call.c ---- */

/* Copies the caller's struct, and checks everything but the values of lengths: batch * length * 4096 bytes must not
 * overflow. */
mha_status mha__layer_input(mha_layer_input *local, const mha_layer_input *given, mha_error *err);
/* mha__layer_input for calls that compute: also checks the lengths, which calls for a workspace do not read. */
mha_status mha__layer_call_input(mha_layer_input *local, const mha_layer_input *given, mha_error *err);
/* Allocates a workspace of `bytes`, or checks the size of the one that the caller passed. *own is NULL if nothing was
 * allocated. */
mha_status mha__layer_workspace(mha_ctx *ctx, size_t bytes, mha_layer_input *in, void **own, const char *what,
                                mha_error *err);
/* Ends the use of the workspace: frees `own`, or clears the red zones of the caller's workspace. */
void mha__layer_workspace_end(mha_ctx *ctx, const mha_layer_input *in, void *own);
/* Returns the cache sequence that the input belongs to, or MHA_CACHE_ALL. */
int64_t mha__layer_sequence(const mha_layer_input *in);

/* Checks the input of a layer with `cross`; `given` requires that keys and values are computed. */
mha_status mha__cross_input(const mha_attn_layer *layer, const mha_layer_input *in, bool given, mha_error *err);

/* Describes a call to the operator. With a 16-bit dtype, a call that records is described as f32. */
mha_status mha__attn_describe(const mha_attn_layer *layer, const mha__attn_call *call, mha_attn_desc *desc,
                              mha_error *err);
/* Creates the plan of a call; every layer for which mha__attn_layer_equivalent is true may use it. Free with
 * mha_attn_plan_free. */
mha_status mha__attn_plan(const mha_attn_layer *layer, const mha__attn_call *call, mha_attn_plan **plan,
                          mha_error *err);
/* Returns the arguments of the operator; q, k and v are in trace->qkv or trace->half. */
mha_attn_args mha__attn_args(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_trace *trace,
                             const mha__attn_scratch *scratch);

/* ---- steps: repeat_kv_heads.c, past_keys.c, attention_rows.c ---- */

/* Repeats each head of k and v in place until both have kv_heads heads. With `back`, instead sums the gradients of the
 * copies, so that rows of dqkv begin with the gradients of the projections' outputs. */
void mha__attn_repeat_kv_heads(const mha_attn_layer *layer, int64_t rows, bool back, float *qkv);
/* With `join`, concatenates past keys and values [B, Hkv, past, D] and new ones in qkv to k and v [B, Hkv, Lk, D].
 * Without `join`, splits k and v into these two parts; past_k and past_v may be NULL. Does nothing without past
 * keys. */
void mha__attn_move_past(const mha_attn_layer *layer, const mha__attn_call *call, bool join, void *qkv, void *k,
                         void *v, void *past_k, void *past_v);
/* Sets q, or its gradient, to 0 in the rows that call->empty marks. */
void mha__attn_clear_empty(const mha_attn_layer *layer, const mha__attn_call *call, void *qkv);

/* Functions on rows. mha__attn_convert converts f32 to the layer's 16-bit type, or back with `widen`. mha__attn_fill
 * adds fills [H D] to every row of context [rows, H D]. mha__attn_show copies rows to `to` unless it is NULL, from
 * `halves` if that is not NULL, otherwise from `reals`. */
void mha__attn_convert(const mha_attn_layer *layer, int64_t rows, int64_t width, float *reals, uint16_t *halves,
                       bool widen);
void mha__attn_fill(const mha_attn_layer *layer, int64_t rows, const float *fills, float *context);
void mha__attn_show(const mha_attn_layer *layer, int64_t rows, int64_t width, const float *reals, uint16_t *halves,
                    float *to);

/* ---- a complete call ---- */

/* mha__attn_attend computes everything up to the context, or up to the sum of experts. mha__attn_output applies the
 * output projection and writes y for rows [first, first + rows) of B L. Both allocate memory only if the head count
 * varies per sequence. */
mha_status mha__attn_attend(const mha_attn_layer *layer, const mha__attn_call *call, const void *x,
                            const mha__attn_trace *trace, const mha__attn_scratch *scratch, mha_error *err);
void mha__attn_output(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_trace *trace,
                      const mha__attn_scratch *scratch, int64_t first, int64_t rows, void *y);

/* Computes the workspace size of a call that does not record; fails with MHA_ERR_MEMORY if the size overflows a
 * size_t. */
mha_status mha__attn_layer_bytes(const mha_attn_layer *layer, const mha__attn_call *call, size_t *bytes,
                                 mha_error *err);
/* Places the arrays of a call in in->workspace, which has at least mha__attn_layer_bytes. */
void mha__attn_layer_place(const mha_attn_layer *layer, const mha__attn_call *call, mha__attn_trace *trace,
                           mha__attn_scratch *scratch);

/* The weights of a backward pass, in the layout of the checkpoint; packed weights are for the forward pass only. */
typedef struct mha__attn_slots {
    mha__grad_slot q, k, v, qkv, o;       /* q, k and v, or qkv; unused slots are empty */
    mha__grad_slot q_norm, k_norm, sinks; /* sinks: only dweight [H] is used */
    mha__grad_slot pos_key, pos_query;    /* projections of relative positions; unused if k and q project them */
    mha__grad_slot q_a, q_a_norm, kv_a, kv_a_norm, kv_b; /* latent attention, whose q_b is `q` */
    mha__grad_slot choice, choice_hidden, expert_o;
    bool heads; /* q, k and v are read head by head (computed_heads.h) and not packed */
} mha__attn_slots;

/* Returns true if a projection of q, k or v is trained. Its weight gradient requires x. */
static inline bool mha__attn_learns(const mha__attn_slots *slots)
{
    return slots->q.dweight || slots->k.dweight || slots->v.dweight || slots->qkv.dweight;
}

/* Destinations of the input gradients of the backward pass; NULL = not computed. */
typedef struct mha__attn_inputs_grad {
    void *x[3];                  /* inputs of q, k and v; an array that is given twice receives the sum */
    void *past_key, *past_value; /* in the layout of past_key and past_value of mha__attn_call */
} mha__attn_inputs_grad;

/* Backward pass (attention_backward.c). x is the input of the forward call. If neither input gradients nor projection
 * gradients are requested, the backward pass stops at the operator. scratch->dcontext receives the gradient of the
 * context. */
mha_status mha__attn_back(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_slots *slots,
                          const void *x, const mha__attn_trace *trace, const mha__attn_scratch *scratch, const void *dy,
                          const mha__attn_inputs_grad *dx, mha_error *err);

#endif
