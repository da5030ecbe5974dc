/* attention_backward.h - an attention layer's forward pass with a trace, and the backward pass from that trace. Weights
 * are read as the checkpoint stores them: packed weights serve the forward pass only. */
#ifndef MHA_LAYER_ATTENTION_ATTENTION_BACKWARD_H
#define MHA_LAYER_ATTENTION_ATTENTION_BACKWARD_H

#include "layer/selection/head_selection.h"

typedef struct mha__attn_slots {
    mha__grad_slot q, k, v, qkv, o; /* q, k and v, or qkv; the other slots are empty */
    mha__grad_slot q_norm, k_norm;
    mha__grad_slot choice, choice_hidden;
} mha__attn_slots;

/* True if a projection of q, k or v is trained: its weight gradient reads x. */
static inline bool mha__attn_learns(const mha__attn_slots *slots)
{
    return slots->q.dweight || slots->k.dweight || slots->v.dweight || slots->qkv.dweight;
}

typedef struct mha__attn_trace {
    float *plain;   /* [B L, (H + 2 Hkv) D] q, k, v before the norms of q and k; NULL without those norms */
    float *qkv;     /* [B L, (H + 2 Hkv) D] as the operator reads them */
    float *context; /* [B L, H D] */
    float *lse;     /* [B, H, L]; H is the greatest head count that a sequence may have */
    mha__chosen chosen;
} mha__attn_trace;

typedef struct mha__attn_scratch {
    float *dqkv;     /* [B L, (H + 2 Hkv) D]; used by the backward pass only, as is dcontext */
    float *dcontext; /* [B L, H D] */
    mha__choice_grads choice;
    void *left; /* rounded input of the projection of q, k and v, if that rounds */
    void *space;
    size_t space_bytes;
} mha__attn_scratch;

void mha__attn_trace_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in,
                          mha__attn_trace *trace);
void mha__attn_scratch_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in,
                            size_t space_bytes, mha__attn_scratch *scratch);

/* Creates a plan for both directions from mha__attn_desc_both. Freed with mha_attn_plan_free. */
mha_status mha__attn_plan_both(const mha_attn_layer *layer, const mha_layer_input *in, double dropout,
                               mha_attn_plan **plan, mha_error *err);

/* Gradients per head and per row that the backward pass also returns; data NULL = not wanted. */
typedef struct mha__attn_also {
    mha_view dgates;     /* [B, H] */
    mha_view row_taylor; /* [B, H, L] */
} mha__attn_also;

/* One call: the arguments that both directions share, and `also`. */
typedef struct mha__attn_call {
    const mha_attn_plan *plan; /* from mha__attn_plan_both */
    const mha_layer_input *in;
    double dropout;        /* fraction of the probabilities that is dropped */
    uint64_t dropout_seed; /* and which */
    mha__attn_also also;
} mha__attn_call;

/* mha__attn_layer_attend and _output with a trace; in f32 bitwise identical to them. */
mha_status mha__attn_keep(const mha_attn_layer *layer, const mha__attn_call *call, const float *x,
                          const mha__attn_trace *trace, const mha__attn_scratch *scratch, float *y, mha_error *err);
/* x is the input of the forward call. dx [B L, E] is overwritten; NULL = not wanted. Without dx and gradients of the
 * projections the backward pass stops at the operator. scratch->dcontext receives the gradient of the context. */
mha_status mha__attn_back(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_slots *slots,
                          const float *x, const mha__attn_trace *trace, const mha__attn_scratch *scratch,
                          const float *dy, float *dx, mha_error *err);

#endif
