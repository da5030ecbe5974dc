/* gguf_layout.h - the order of a tensor's elements in GGUF files, for writing. */
#ifndef MHA_MODEL_GGUF_GGUF_LAYOUT_H
#define MHA_MODEL_GGUF_GGUF_LAYOUT_H

#include "mha/io.h"
#include "model/gguf/gguf_parts.h"

/* Returns true for a tensor of all experts, and for one that has every second column of such a tensor. */
static inline bool mha__gguf_is_stack(mha__gguf_change change)
{
    return change >= MHA__GGUF_STACK;
}

static inline bool mha__gguf_is_half(mha__gguf_change change)
{
    return change >= MHA__GGUF_GATE;
}

/* Copies the elements of a tensor in the order of files. `heads` is the head count of MHA__GGUF_ROWS_Q and
 * MHA__GGUF_ROWS_K. Returns false, and copies nothing, if the order is the same. */
bool mha__gguf_lay_out(const mha_tensor *tensor, mha__gguf_change change, int64_t heads, const float *from, float *to);

#endif
