/* block_mask.h - the block mask: skips keys that are masked for every row, and masks individual scores of the
 * remaining keys. */
#ifndef MHA_ATTN_MASK_BLOCK_MASK_H
#define MHA_ATTN_MASK_BLOCK_MASK_H

#include "attn/mask/mask.h"

/* Shrinks keys [*first, *end) at both ends by the mask blocks that are masked for every row. */
void mha__blocks_narrow(const mha__call *call, const mha__rows *rows, int64_t *first, int64_t *end);

/* Sets masked entries of a panel `s` of keys [first, end) to -infinity. Uses `extra` and `bytes` of the scratch memory.
 * Returns false if no entry was masked. */
bool mha__blocks_apply(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t first,
                       int64_t end, void *s);

/* Returns true if every row attends to all keys [first, end) as far as the block mask is concerned. */
bool mha__blocks_all_kept(const mha__call *call, const mha__rows *rows, int64_t first, int64_t end);
/* Returns true if the block mask keeps the mask block of `key` for row r. Stores the end of this mask block in *end. */
bool mha__blocks_key_kept(const mha__call *call, const mha__rows *rows, int64_t r, int64_t key, int64_t *end);

#endif
