/* head_count_per_sequence.h - layers whose number of heads changes from sequence to sequence (MHA_CHOICE_OPTIONS):
 * each sequence is a call of the operator for itself, with a plan of its own. */
#ifndef MHA_LAYER_SELECTION_HEAD_COUNT_PER_SEQUENCE_H
#define MHA_LAYER_SELECTION_HEAD_COUNT_PER_SEQUENCE_H

#include "layer/selection/head_selection.h"
#include "mha/attn_grads.h"

static inline bool mha__attn_splits(const mha_attn_layer *layer)
{
    return layer->options.choice.of == MHA_CHOICE_OPTIONS;
}

/* Refuses what is wanted of single heads. */
mha_status mha__attn_split_check(const mha_layer_input *in, mha_error *err);
/* The most heads that a sequence may get; those of the layer where they do not change. */
int64_t mha__attn_most_heads(const mha_attn_layer *layer);

/* A call of the operator for all sequences. */
typedef struct mha__split {
    const mha_attn_args *args; /* of the whole call */
    const mha__chosen *chosen;
    /* With gradients, both ways are in f32 and have: */
    float *lse;     /* [most heads, B L]; NULL: forward alone, in the layer's type */
    double dropout; /* share of the probabilities that is dropped */
    /* The way back, else NULL: of the whole call, out, dout, and dq, dk and dv where they are wanted. dgates
     * [sequences, S] get the sum over the heads of what was chosen. */
    const mha_attn_grads *grads;
    float *dgates;
} mha__split;

/* Forward, where context of padding becomes zeros; or the way back, which leaves dq, dk and dv of padding alone. */
mha_status mha__attn_split_run(const mha_attn_layer *layer, const mha_layer_input *in, const mha__split *split,
                               mha_error *err);

#endif
