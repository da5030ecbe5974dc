/* attention_dropout.h - which probabilities are dropped. A drop depends on (seed, batch, head, query, key) and nothing
 * else, so the backward pass draws the same again. */
#ifndef MHA_ATTN_MASK_ATTENTION_DROPOUT_H
#define MHA_ATTN_MASK_ATTENTION_DROPOUT_H

#include "attn/mask/mask.h"

/* True if `resolved` asks for dropout. */
static inline bool mha__dropout_on(const mha_attn_desc *resolved)
{
    return resolved->dropout > 0 || (resolved->inputs & MHA_ATTN_DROPOUT_KEEP);
}

/* Fills `extra` of the scratch memory with -inf where a weight of keys [first, end) is dropped, else 0. Returns what
 * the others are multiplied by. */
double mha__dropout_mask(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t first,
                         int64_t end);
/* Drops and scales the weights of a panel `s` whose rows are keys [first, end). Uses `extra` of the scratch memory. */
void mha__dropout_apply(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t first,
                        int64_t end, void *s);

#endif
