/* attention_dropout.h - dropout of probabilities. Each decision depends only on (seed, batch, head, query, key), so the
 * backward pass samples the same mask. */
#ifndef MHA_ATTN_MASK_ATTENTION_DROPOUT_H
#define MHA_ATTN_MASK_ATTENTION_DROPOUT_H

#include "attn/mask/mask.h"

/* Returns true if the call has dropout. */
static inline bool mha__dropout_on(const mha_attn_desc *resolved)
{
    return resolved->dropout > 0 || (resolved->inputs & MHA_ATTN_DROPOUT_KEEP);
}

/* Sets `extra` of the scratch memory to -infinity for dropped weights of keys [first, end), and to 0 for kept weights.
 * Returns the factor of the kept weights. */
double mha__dropout_mask(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t first,
                         int64_t end);
/* Drops and scales weights in a panel `s` whose rows are keys [first, end). Uses `extra` of the scratch memory. */
void mha__dropout_apply(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t first,
                        int64_t end, void *s);

#endif
