/* head_count_per_sequence.h - layers that call the operator separately for each sequence, with its own plan. This is
 * done if the head count varies per sequence (MHA_CHOICE_OPTIONS), or if each sequence computes only a few of many
 * experts. */
#ifndef MHA_LAYER_SELECTION_HEAD_COUNT_PER_SEQUENCE_H
#define MHA_LAYER_SELECTION_HEAD_COUNT_PER_SEQUENCE_H

#include "layer/selection/head_selection.h"

static inline bool mha__attn_splits(const mha_attn_layer *layer)
{
    return layer->options.choice.of == MHA_CHOICE_OPTIONS || mha__experts_summed(layer);
}

/* Rejects inputs and outputs that refer to single heads. */
mha_status mha__attn_split_check(const mha_layer_input *in, mha_error *err);
/* Returns the greatest head count of a call to the operator; the layer's head count if it does not vary. */
int64_t mha__attn_max_heads(const mha_attn_layer *layer);

/* Runs the forward pass, or the backward pass if `grads` is not NULL; `args` and `grads` describe the whole call. The
 * forward pass sets the context of padding to zero. The backward pass does not write dq, dk and dv of padding, nor of
 * experts that are not kept. It sets dgates [sequences, S] to the sum over the heads of the selected option, or to the
 * gradients of kept experts. */
mha_status mha__attn_split_run(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_trace *trace,
                               const mha_attn_args *args, const mha_attn_grads *grads, void *dgates, mha_error *err);

#endif
