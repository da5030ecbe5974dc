/* attention_layer.h - the one attention layer of models (mha/layer.h) and variants (mha/variants.h): its struct, one
 * call, and the steps of both directions.
 *
 *     x -> q, k, v -> norms, rotation -> cache or cached keys -> operator -> experts -> output projection
 *
 * A call that records (MHA_ATTN_LSE in `outputs`) keeps what the backward pass reads. Elements are f32; in layers of
 * variants also f64. Only calls that do not record use the 16-bit dtype of a layer. */
#ifndef MHA_LAYER_ATTENTION_ATTENTION_LAYER_H
#define MHA_LAYER_ATTENTION_ATTENTION_LAYER_H

#include "layer/arena.h"
#include "layer/linear/linear.h"
#include "layer/real.h"
#include "mha/attn_grads.h"
#include "mha/layer.h"
#include <stdbool.h>

/* ---- the layer ---- */

/* y = W x + b in double, or rounded as a linear layer of the layer's dtype unless that is NULL. */
typedef struct mha__scorer {
    int64_t in, out;
    double *weight, *bias; /* [out, in], [out] */
    mha_linear *linear;
} mha__scorer;

struct mha_attn_layer {
    mha_ctx *ctx;
    /* Defaults are filled in; pointers refer to this struct or are NULL. kv_heads is the count that the operator reads;
     * dtype may be f64. */
    mha_attn_layer_options options;
    int64_t k_heads, v_heads; /* head counts of the projections; options.kv_heads is a multiple of both */
    mha_rope_options rope;    /* rotation; head_dim 0 without rope */
    /* q, k and v; or all three in the first, if they have one input and no head is skipped. o NULL: the output is the
     * context */
    mha_linear *project[3], *o;
    int64_t out; /* width of y */
    /* If each head of q, k and v is packed as a matrix of its own (computed_heads.h): the matrices of all heads, and a
     * mask, where `one_head + heads - 1 - h` selects head h alone. Else NULL. */
    mha__matrix *head_part;
    uint8_t *one_head;
    /* Output of experts (expert_output.h), unless expert e fills the columns e D .. of the sum, as in models. */
    mha_expert_output expert_output;
    mha_linear *expert_o;
    const void *expert_bias; /* [experts, E] */
    double *scores;          /* memory of both scorers, or NULL */
    /* Variants: scores have the layer's dtype, and sums over selected heads run in the order of selection, greatest
     * score first. So the published digits were recorded, and models have others. Models: scores are double, and sums
     * run by index. */
    bool as_published;
    mha__scorer score, hidden; /* score the heads; `out` is 0 without a selection */
    float *norms; /* weights and biases of q_norm and k_norm, then [H] ALiBi slopes if the layer has them */
};

/* The width of the norms of q and of k: D, or all heads of the projection. */
static inline int64_t mha__attn_norm_width(const mha_attn_layer_options *o, int64_t heads)
{
    return o->whole_norms ? heads * o->head_dim : o->head_dim;
}
static inline bool mha__attn_is_half(const mha_attn_layer *layer)
{
    return layer->options.dtype == MHA_BF16 || layer->options.dtype == MHA_F16;
}
/* Bytes per element of x and y, and of q, k and v before they are rounded. */
static inline size_t mha__attn_real(const mha_attn_layer *layer)
{
    return layer->options.dtype == MHA_F64 ? sizeof(double) : sizeof(float);
}
/* Elements of q, k and v in a row, if q has as many rows as k and v. */
static inline int64_t mha__qkv_width(const mha_attn_layer_options *o)
{
    return (o->heads + 2 * o->kv_heads) * o->head_dim;
}
/* True if the outputs of experts are summed before the output projection. There may be many more experts than a
 * sequence keeps, so the context then holds those of each sequence, in the order of its list. */
static inline bool mha__experts_summed(const mha_attn_layer *layer)
{
    return layer->options.choice.of == MHA_CHOICE_EXPERTS && layer->expert_output != MHA_EXPERT_SLOT;
}
static inline int64_t mha__context_width(const mha_attn_layer *layer)
{
    const mha_attn_layer_options *o = &layer->options;
    return (mha__experts_summed(layer) ? o->choice.keep : o->heads) * o->head_dim;
}

/* Frees what the struct refers to. */
void mha__attn_layer_release(mha_attn_layer *layer);
/* True if both layers describe the same call of the operator. */
bool mha__attn_layer_alike(const mha_attn_layer *a, const mha_attn_layer *b);

/* ---- one call ---- */

/* Gradients per head and per row that the backward pass also returns; data NULL = not wanted. */
typedef struct mha__attn_also {
    mha_view dgates;     /* [B, H] */
    mha_view row_taylor; /* [B, H, L] */
    mha_view dbias;      /* as the bias of the input */
} mha__attn_also;

/* `outputs` of a call of both directions. */
#define MHA__ATTN_BOTH (MHA_ATTN_LSE | MHA_ATTN_GRADS)

/* The arguments that both directions share. Only `plan` and `in` are needed in a call that does not record. */
typedef struct mha__attn_call {
    const mha_attn_plan *plan; /* from mha__attn_plan; unused if the head count varies per sequence */
    const mha_layer_input *in;
    uint32_t outputs;      /* of the operator, besides those that `in` requests: MHA_ATTN_LSE if the call records */
    double dropout;        /* fraction of the probabilities that is dropped */
    uint64_t dropout_seed; /* and which */
    mha__attn_also also;
    /* Only variants use: */
    const void *key, *value;           /* [B, kv_length, E] inputs of k and v; NULL = x */
    int64_t kv_length;                 /* tokens of key and value; 0 = in->length */
    int64_t past;                      /* tokens before them, whose keys and values are given; 0 = none */
    const void *past_key, *past_value; /* [B, Hkv, past, D] */
    mha_cview drop;                    /* as dropout_keep in mha_attn_args; data NULL = none */
    mha_cview empty;   /* [B, H, L] bytes; q of rows that are not 0 counts as 0, without a gradient; data NULL = none */
    mha_scores scores; /* stage, with MHA_ATTN_SCORES */
} mha__attn_call;

static inline bool mha__attn_records(const mha__attn_call *call)
{
    return (call->outputs & MHA_ATTN_LSE) != 0;
}
static inline int64_t mha__attn_rows(const mha__attn_call *call)
{
    return call->in->batch * call->in->length;
}
static inline int64_t mha__attn_kv_length(const mha__attn_call *call)
{
    return call->kv_length ? call->kv_length : call->in->length;
}
static inline int64_t mha__attn_keys(const mha__attn_call *call)
{
    return call->past + mha__attn_kv_length(call);
}

/* What each sequence of a call selected (selection/head_selection.h). S is the number of scores: one per head or per
 * option. Arrays are [sequences, S] unless noted. */
typedef struct mha__chosen {
    double *mean;   /* [sequences, E] */
    double *hidden; /* [sequences, P] or NULL */
    double *score;
    double *soft;  /* trained gates (selection_gates.h) */
    double *gate;  /* gate of each head, or of the option for all its heads; 0 = not selected */
    void *gates;   /* reals; gate times the call's own gate: what the operator reads */
    uint8_t *kept; /* 1 or 0 */
    int32_t *list; /* indices of the selected scores: ascending, or greatest score first with as_published */
    void *rounded; /* [sequences, E + P + S] reals: scratch of rounded scores; NULL if they are double */
} mha__chosen;

/* What a call computes: arrays of reals unless noted; NULL = not needed. Lk counts all keys, n is the greatest head
 * count that a sequence may have. */
typedef struct mha__attn_trace {
    void *plain;            /* as qkv: q, k, v before the norms of q and k */
    void *qkv;              /* see mha__qkv; NULL where `half` is computed directly */
    void *past_k, *past_v;  /* [B, Hkv, Lk, D] with `past` */
    uint16_t *half, *mixed; /* qkv and context in 16 bit */
    void *context;          /* [B L, H D], or kept experts only */
    void *sum;              /* [B L, E] of the experts */
    void *lse;              /* [B, n, L] */
    void *probs, *scores;   /* [B, n, L, Lk] */
    mha__chosen chosen;
} mha__attn_trace;

/* Gradients of a selection. */
typedef struct mha__choice_grads {
    void *dgates;    /* [sequences, S] reals; gradients of the operator's gates */
    double *dscore;  /* [sequences, S] */
    double *dhidden; /* [sequences, P] or NULL */
    double *dmean;   /* [sequences, E] */
} mha__choice_grads;

/* What a call needs while it runs. */
typedef struct mha__attn_scratch {
    void *left;  /* rounded input of the linear layers */
    void *space; /* workspace of the operator */
    size_t space_bytes;
    /* only with MHA_ATTN_GRADS: */
    void *dqkv;              /* as qkv */
    void *dpast_k, *dpast_v; /* as past_k and past_v */
    void *dcontext, *dsum;   /* as context and sum */
    mha__choice_grads choice;
} mha__attn_scratch;

/* `space_bytes`: of the plan. */
void mha__attn_trace_take(mha__arena *arena, const mha_attn_layer *layer, const mha__attn_call *call,
                          mha__attn_trace *trace);
void mha__attn_scratch_take(mha__arena *arena, const mha_attn_layer *layer, const mha__attn_call *call,
                            size_t space_bytes, mha__attn_scratch *scratch);

/* q, k and v in one buffer: rows [q of H heads | k of Hkv | v of Hkv], or, if k and v have another number of rows, rows
 * of q and then rows [k | v]. */
typedef struct mha__qkv {
    char *q, *k, *v;
    char *written_v;                   /* where the projection writes v: heads of k and v are repeated later */
    int64_t q_row, kv_row;             /* elements per row */
    int64_t q_rows, kv_rows, elements; /* of the whole call */
} mha__qkv;
/* `size`: bytes per element. */
mha__qkv mha__qkv_of(const mha_attn_layer *layer, const mha__attn_call *call, void *buffer, size_t size);

/* ---- steps: attention_call.c ---- */

/* Copies the caller's struct and checks batch and length: batch * length * 4096 bytes must not overflow. */
mha_status mha__layer_input(mha_layer_input *local, const mha_layer_input *given, mha_error *err);
/* Allocates a workspace of `bytes` unless the caller passed one. *own must be freed; NULL if nothing was allocated. */
mha_status mha__layer_workspace(mha_ctx *ctx, size_t bytes, mha_layer_input *in, void **own, const char *what,
                                mha_error *err);
/* The cache sequence that the input belongs to, or MHA_CACHE_ALL. */
int64_t mha__layer_sequence(const mha_layer_input *in);

/* The description of a call to the operator, in f32 if the call records and the layer's dtype has 16 bits. */
mha_status mha__attn_describe(const mha_attn_layer *layer, const mha__attn_call *call, mha_attn_desc *desc,
                              mha_error *err);
/* Creates the plan of a call; every layer that mha__attn_layer_alike accepts may run it. Freed with mha_attn_plan_free.
 */
mha_status mha__attn_plan(const mha_attn_layer *layer, const mha__attn_call *call, mha_attn_plan **plan,
                          mha_error *err);
/* The operator's arguments; q, k and v are in trace->qkv or trace->half. */
mha_attn_args mha__attn_args(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_trace *trace);

/* ---- steps: repeat_kv_heads.c, past_keys.c, attention_rows.c ---- */

/* Repeats each head of k and v until both have kv_heads, in place; `back`: sums the gradients of the copies, so that
 * rows of dqkv begin with the gradients of the projections' outputs. */
void mha__attn_layer_share(const mha_attn_layer *layer, int64_t rows, bool back, float *qkv);
/* Joins given keys and values [B, Hkv, past, D] and those of this call, in qkv, to k and v [B, Hkv, Lk, D]; or, without
 * `join`, splits k and v into both (past_k, past_v NULL = not wanted). Does nothing in a call without past keys. */
void mha__attn_move_past(const mha_attn_layer *layer, const mha__attn_call *call, bool join, void *qkv, void *k,
                         void *v, void *past_k, void *past_v);
/* Sets q, or its gradient, to 0 in rows that call->empty marks. */
void mha__attn_clear_empty(const mha_attn_layer *layer, const mha__attn_call *call, void *qkv);

/* Converts rows of f32 to the layer's 16-bit type, or back; adds fills [H D] to every row of context [rows, H D];
 * copies rows to `to` unless it is NULL, from f32 or, if `halves` is not NULL, from 16 bit. */
void mha__attn_convert(const mha_attn_layer *layer, int64_t rows, int64_t width, float *reals, uint16_t *halves,
                       bool widen);
void mha__attn_fill(const mha_attn_layer *layer, int64_t rows, const float *fills, float *context);
void mha__attn_show(const mha_attn_layer *layer, int64_t rows, int64_t width, const float *reals, uint16_t *halves,
                    float *to);

/* ---- the whole ---- */

/* Everything up to the context, or the sum of experts; then the output projection to y for rows [first, first + rows)
 * of B L. Neither allocates memory, unless the head count varies per sequence. */
mha_status mha__attn_attend(const mha_attn_layer *layer, const mha__attn_call *call, const void *x,
                            const mha__attn_trace *trace, const mha__attn_scratch *scratch, mha_error *err);
void mha__attn_output(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_trace *trace,
                      const mha__attn_scratch *scratch, int64_t first, int64_t rows, void *y);

/* Bytes of the workspace of a call that does not record; MHA_ERR_MEMORY if they exceed a size_t. */
mha_status mha__attn_layer_bytes(const mha_attn_layer *layer, const mha__attn_call *call, size_t *bytes,
                                 mha_error *err);
/* Lays out in->workspace. */
mha_status mha__attn_layer_place(const mha_attn_layer *layer, const mha__attn_call *call, mha__attn_trace *trace,
                                 mha__attn_scratch *scratch, mha_error *err);

/* Weights are read as the checkpoint stores them: packed weights serve the forward pass only. */
typedef struct mha__attn_slots {
    mha__grad_slot q, k, v, qkv, o; /* q, k and v, or qkv; the other slots are empty */
    mha__grad_slot q_norm, k_norm;
    mha__grad_slot choice, choice_hidden, expert_o;
    bool heads; /* q, k and v are read head by head (computed_heads.h); they are then not packed */
} mha__attn_slots;

/* True if a projection of q, k or v is trained: its weight gradient reads x. */
static inline bool mha__attn_learns(const mha__attn_slots *slots)
{
    return slots->q.dweight || slots->k.dweight || slots->v.dweight || slots->qkv.dweight;
}

/* Where the backward pass writes gradients of its inputs; all NULL = not wanted. */
typedef struct mha__attn_inputs_grad {
    void *x[3];                  /* of q, k and v; the same array twice receives the sum */
    void *past_key, *past_value; /* as in the call; NULL = not wanted */
} mha__attn_inputs_grad;

/* attention_backward.c. x is the input of the forward call. Without gradients of inputs and projections the backward
 * pass stops at the operator. scratch->dcontext receives the gradient of the context. */
mha_status mha__attn_back(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_slots *slots,
                          const void *x, const mha__attn_trace *trace, const mha__attn_scratch *scratch, const void *dy,
                          const mha__attn_inputs_grad *dx, mha_error *err);

#endif
