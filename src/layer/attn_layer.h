/* attn_layer.h - what the block shares with the attention layer. */
#ifndef MHA_LAYER_ATTN_LAYER_H
#define MHA_LAYER_ATTN_LAYER_H

#include "mha/layer.h"

/* Takes the caller's struct and checks batch and length, so that batch * length * 4096 bytes do not overflow. */
mha_status mha__layer_input(mha_layer_input *local, const mha_layer_input *given, mha_error *err);

#endif
