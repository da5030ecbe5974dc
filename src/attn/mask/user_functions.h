/* user_functions.h - calls the user functions of scores and masks (mha/score_functions.h) for the rows of a panel. */
#ifndef MHA_ATTN_MASK_USER_FUNCTIONS_H
#define MHA_ATTN_MASK_USER_FUNCTIONS_H

#include "attn/mask/mask.h"

/* Returns true if functions.block masks all pairs of these rows and keys. Requires functions.block. */
bool mha__functions_skip(const mha__call *call, const mha__rows *rows, int64_t first, int64_t end);

/* Applies functions.score to a panel `s` of keys [first, end). Uses `extra` of the scratch memory. */
void mha__functions_score(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t first,
                          int64_t end, void *s);

/* Sets entries that functions.keep masks to -infinity. Uses `extra` and `bytes` of the scratch memory. Returns false if
 * functions.block states that no entry is masked. */
bool mha__functions_keep(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t first,
                         int64_t end, void *s);

/* Converts the gradients of the results of functions.score to the gradients of its inputs. `scores` is a panel of these
 * inputs; ds has one row of `stride` elements per key. Uses `extra` and `s` of the scratch memory. */
void mha__functions_back(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t first,
                         int64_t end, const void *scores, void *ds, int64_t stride);

#endif
