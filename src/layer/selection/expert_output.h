/* expert_output.h - mixtures of experts whose outputs are summed before the output projection, each after its own
 * projection or unchanged (mha_expert_output in variants.h). Experts with separate columns are not summed. */
#ifndef MHA_LAYER_SELECTION_EXPERT_OUTPUT_H
#define MHA_LAYER_SELECTION_EXPERT_OUTPUT_H

#include "layer/selection/head_selection.h"

/* Computes sum [B L, E] over the kept experts of each sequence from context [B L, kept D]. The operator has applied the
 * gates, except to the biases of experts. */
void mha__experts_sum(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                      const void *context, void *sum);
/* mha__experts_back computes dcontext from dsum for kept experts and adds their weight gradients to the slot.
 * mha__experts_gates_back adds the bias gradients to the slot, and the gradients of the gates through the biases to
 * dgates, which the operator has written. */
mha_status mha__experts_back(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                             const mha__grad_slot *slot, const void *context, const void *dsum, void *dcontext,
                             mha_error *err);
void mha__experts_gates_back(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                             const mha__grad_slot *slot, const void *dsum, void *dgates);

#endif
