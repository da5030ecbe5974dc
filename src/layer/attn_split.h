/* attn_split.h - layers whose number of heads changes from sequence to sequence (MHA_CHOICE_OPTIONS): each sequence is
 * a call of the operator for itself, with a plan of its own. */
#ifndef MHA_LAYER_ATTN_SPLIT_H
#define MHA_LAYER_ATTN_SPLIT_H

#include "layer/attn_choice.h"
#include "mha/attn_grads.h"

static inline bool mha__attn_splits(const mha_attn_layer *layer)
{
    return layer->options.choice.of == MHA_CHOICE_OPTIONS;
}

/* Refuses what is wanted of single heads. */
mha_status mha__attn_split_check(const mha_layer_input *in, mha_error *err);
/* The most heads that a sequence may get; those of the layer where they do not change. */
int64_t mha__attn_most_heads(const mha_attn_layer *layer);

/* The operator on all sequences: args are those of the whole call, context of padding becomes zeros. */
mha_status mha__attn_split_forward(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                                   const mha_attn_args *args, mha_error *err);

/* Both ways with gradients: in f32, that share of the probabilities dropped, lse [most heads, B L]. */
typedef struct mha__split_both {
    const mha_attn_args *args;
    double dropout;
    float *lse;
} mha__split_both;

mha_status mha__attn_split_keep(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                                const mha__split_both *both, mha_error *err);
/* grads are those of the whole call: out, dout, and dq, dk and dv where they are wanted. dgates [sequences, S] get the
 * sum over the heads of what was chosen. */
mha_status mha__attn_split_back(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                                const mha__split_both *both, const mha_attn_grads *grads, float *dgates,
                                mha_error *err);

#endif
