/* head_count_per_sequence.h - layers whose head count varies per sequence (MHA_CHOICE_OPTIONS): each sequence is a
 * separate call of the operator with its own plan. */
#ifndef MHA_LAYER_SELECTION_HEAD_COUNT_PER_SEQUENCE_H
#define MHA_LAYER_SELECTION_HEAD_COUNT_PER_SEQUENCE_H

#include "layer/selection/head_selection.h"
#include "mha/attn_grads.h"

static inline bool mha__attn_splits(const mha_attn_layer *layer)
{
    return layer->options.choice.of == MHA_CHOICE_OPTIONS;
}

/* Refuses inputs and outputs that refer to single heads. */
mha_status mha__attn_split_check(const mha_layer_input *in, mha_error *err);
/* The greatest head count that a sequence may select; the layer's head count if it does not vary. */
int64_t mha__attn_most_heads(const mha_attn_layer *layer);

/* One call of the operator for all sequences. */
typedef struct mha__split {
    const mha_attn_args *args; /* arguments of the whole call */
    const mha__chosen *chosen;
    /* With gradients, both directions are f32 and use: */
    float *lse;     /* [greatest head count, B L]; NULL: forward pass only, in the layer's dtype */
    double dropout; /* fraction of the probabilities that is dropped */
    /* Backward pass, else NULL: out, dout, and dq, dk, dv where wanted, of the whole call. dgates [sequences, S]
     * receives the sum over the heads of the selected option. */
    const mha_attn_grads *grads;
    float *dgates;
} mha__split;

/* Forward pass, which sets the context of padding to zero; or backward pass, which does not write dq, dk and dv of
 * padding. */
mha_status mha__attn_split_run(const mha_attn_layer *layer, const mha_layer_input *in, const mha__split *split,
                               mha_error *err);

#endif
