/* attention_backward.h - an attention layer that can be gone back through: a forward call that leaves its steps in a
 * trace, and the way back from there. Weights are read as the checkpoint stores them, since packed ones only serve the
 * way forward. */
#ifndef MHA_LAYER_ATTENTION_ATTENTION_BACKWARD_H
#define MHA_LAYER_ATTENTION_ATTENTION_BACKWARD_H

#include "layer/selection/head_selection.h"

typedef struct mha__attn_slots {
    mha__grad_slot q, k, v, qkv, o; /* q, k and v, or qkv */
    mha__grad_slot q_norm, k_norm;
    mha__grad_slot choice, choice_hidden;
} mha__attn_slots;

/* True if a projection learns, for which x is read. */
static inline bool mha__attn_learns(const mha__attn_slots *slots)
{
    return slots->q.dweight || slots->k.dweight || slots->v.dweight || slots->qkv.dweight;
}

typedef struct mha__attn_trace {
    float *plain;   /* [B L, (H + 2 Hkv) D] q, k, v before the norms of q and k; NULL where there are none */
    float *qkv;     /* [B L, (H + 2 Hkv) D] as the operator read them */
    float *context; /* [B L, H D] */
    float *lse;     /* [B, H, L]; H the most heads that a sequence may get */
    mha__chosen chosen;
} mha__attn_trace;

typedef struct mha__attn_scratch {
    float *dqkv;     /* [B L, (H + 2 Hkv) D]; with dcontext, for the way back alone */
    float *dcontext; /* [B L, H D] */
    mha__choice_grads choice;
    void *left; /* of the projection of q, k and v, where that rounds what it reads */
    void *space;
    size_t space_bytes;
} mha__attn_scratch;

void mha__attn_trace_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in,
                          mha__attn_trace *trace);
void mha__attn_scratch_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in,
                            size_t space_bytes, mha__attn_scratch *scratch);

/* A plan for both directions, of mha__attn_desc_both.
 * Freed with mha_attn_plan_free. */
mha_status mha__attn_plan_both(const mha_attn_layer *layer, const mha_layer_input *in, double dropout,
                               mha_attn_plan **plan, mha_error *err);

/* What of single heads and rows is wanted of the way back; data NULL = not. */
typedef struct mha__attn_also {
    mha_view dgates;     /* [B, H] */
    mha_view row_taylor; /* [B, H, L] */
} mha__attn_also;

/* One call: what is the same in both directions, and `also`. */
typedef struct mha__attn_call {
    const mha_attn_plan *plan; /* mha__attn_plan_both */
    const mha_layer_input *in;
    double dropout;        /* share of the probabilities that is dropped, */
    uint64_t dropout_seed; /* and which */
    mha__attn_also also;
} mha__attn_call;

/* As mha__attn_layer_attend and _output, in f32 to the bit. */
mha_status mha__attn_keep(const mha_attn_layer *layer, const mha__attn_call *call, const float *x,
                          const mha__attn_trace *trace, const mha__attn_scratch *scratch, float *y, mha_error *err);
/* x is that of the forward call. dx [B L, E] is replaced; NULL = not wanted, and without gradients of the projections
 * the way then ends at the operator. The gradient of the context is left in scratch->dcontext. */
mha_status mha__attn_back(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_slots *slots,
                          const float *x, const mha__attn_trace *trace, const mha__attn_scratch *scratch,
                          const float *dy, float *dx, mha_error *err);

#endif
