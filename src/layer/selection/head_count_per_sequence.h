/* head_count_per_sequence.h - layers in which each sequence is a separate call of the operator with its own plan: the
 * head count varies per sequence (MHA_CHOICE_OPTIONS), or a sequence computes a few of many experts. */
#ifndef MHA_LAYER_SELECTION_HEAD_COUNT_PER_SEQUENCE_H
#define MHA_LAYER_SELECTION_HEAD_COUNT_PER_SEQUENCE_H

#include "layer/selection/head_selection.h"

static inline bool mha__attn_splits(const mha_attn_layer *layer)
{
    return layer->options.choice.of == MHA_CHOICE_OPTIONS || mha__experts_summed(layer);
}

/* Refuses inputs and outputs that refer to single heads. */
mha_status mha__attn_split_check(const mha_layer_input *in, mha_error *err);
/* The greatest head count of a call of the operator; the layer's head count if it does not vary. */
int64_t mha__attn_most_heads(const mha_attn_layer *layer);

/* Forward pass, which sets the context of padding to zero; with `grads`, out, dout, and dq, dk, dv where wanted, of
 * the whole call: backward pass, which does not write dq, dk and dv of padding and of experts that are not kept. dgates
 * [sequences, S] then receives the sum over the heads of the selected option, or the gradients of kept experts. `args`
 * are those of the whole call. */
mha_status mha__attn_split_run(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_trace *trace,
                               const mha_attn_args *args, const mha_attn_grads *grads, void *dgates, mha_error *err);

#endif
