/* expert_output.h - a mixture of experts whose outputs are projected, or added as they are, before the output
 * projection: mha_expert_output of variants.h. Experts whose columns lie side by side need no sum. */
#ifndef MHA_LAYER_SELECTION_EXPERT_OUTPUT_H
#define MHA_LAYER_SELECTION_EXPERT_OUTPUT_H

#include "layer/selection/head_selection.h"

/* sum [B L, E] over the kept experts of each sequence, from context [B L, kept D]. The operator applied the gate
 * already, except to the bias of an expert. */
void mha__experts_sum(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                      const void *context, void *sum);
/* dcontext from dsum, for kept experts. Accumulates into the slot, and adds to dgates, which the operator wrote, what
 * the biases pass to the gates. */
mha_status mha__experts_back(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                             const mha__grad_slot *slot, const void *context, const void *dsum, void *dcontext,
                             mha_error *err);
void mha__experts_gates_back(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                             const mha__grad_slot *slot, const void *dsum, void *dgates);

#endif
