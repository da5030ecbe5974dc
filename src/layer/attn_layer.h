/* attn_layer.h - what model and block share with the attention layer: one plan of the operator for a whole pass. */
#ifndef MHA_LAYER_ATTN_LAYER_H
#define MHA_LAYER_ATTN_LAYER_H

#include "mha/layer.h"
#include <stdbool.h>

/* Takes the caller's struct and checks batch and length, so that batch * length * 4096 bytes do not overflow. */
mha_status mha__layer_input(mha_layer_input *local, const mha_layer_input *given, mha_error *err);

/* The operator's plan for an input of this shape; any layer that is alike may run it. Freed with mha_attn_plan_free. */
mha_status mha__attn_layer_plan(const mha_attn_layer *layer, const mha_layer_input *in, mha_attn_plan **plan,
                                mha_error *err);
/* True if both want the same of the operator. */
bool mha__attn_layer_alike(const mha_attn_layer *a, const mha_attn_layer *b);

/* Bytes that mha__attn_layer_run needs; MHA_ERR_MEMORY if they are more than a size_t holds. */
mha_status mha__attn_layer_bytes(const mha_attn_layer *layer, const mha_attn_plan *plan, const mha_layer_input *in,
                                 size_t *bytes, mha_error *err);
/* mha_attn_layer_forward with a plan made before; in->workspace is there. Allocates nothing. */
mha_status mha__attn_layer_run(const mha_attn_layer *layer, const mha_attn_plan *plan, const mha_layer_input *in,
                               const float *x, float *y, mha_error *err);

/* The same for a block: its attention layer, the bytes of a call, and a call that allocates nothing. */
const mha_attn_layer *mha__block_attn(const mha_block *block);
mha_status mha__block_bytes(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in, size_t *bytes,
                            mha_error *err);
mha_status mha__block_run(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in, float *x,
                          mha_error *err);

#endif
