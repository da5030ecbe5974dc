/* mask.h - who sees what. Lengths, causal, window and the width of `keep` make an interval of keys for each row, beside
 * which it may see a prefix; slopes, bias, keep and the block mask are added to the scores of a block.
 */
#ifndef MHA_ATTN_MASK_MASK_H
#define MHA_ATTN_MASK_MASK_H

#include "attn/plan/scratch.h"

/* Some rows of one head: which they are, and which keys they see. */
typedef struct mha__rows {
    int64_t b, h, first, count;
    int64_t result;         /* which head of the results this is: h, unless there is a list of heads */
    int64_t position;       /* of row `first` among the keys; 0 if nothing depends on it */
    const int64_t *lo, *hi; /* row r sees only keys in [lo[r], hi[r]), and in the prefix; an empty interval is [0, 0) */
    const int64_t
        *prefix; /* [0, prefix[r]): the same for all rows, but 0 for those that do not exist. It lies within the
                             * interval, or before it with a gap between them */
} mha__rows;

/* Keys in use by the rows: the span from the first to the last that any row sees, and whether each row sees all of
 * it. */
typedef struct mha__span {
    int64_t lo, hi;               /* empty: lo = hi */
    int64_t prefix, band;         /* nobody sees [prefix, band), if that is not empty */
    int64_t common_lo, common_hi; /* every row sees [common_lo, common_hi), if that is not empty */
} mha__span;

/* Rows and keys of batch b that exist. */
int64_t mha__mask_queries(const mha__call *call, int64_t b);
int64_t mha__mask_keys(const mha__call *call, int64_t b);
/* How far row i of batch b stands from key i; 0 if nothing depends on it. */
int64_t mha__mask_offset(const mha__call *call, int64_t b);
/* Fills lo, hi and prefix of `count` rows of batch b from row `first` on. */
void mha__mask_intervals(const mha__call *call, int64_t b, int64_t first, int64_t count, int64_t *lo, int64_t *hi,
                         int64_t *prefix);
mha__span mha__mask_span(const mha__rows *rows);
/* The same for all rows of a tile, at once where they see the same keys. */
mha__span mha__mask_tile(const mha__call *call, const mha__rows *rows);

/* Which keys [*first, *end) of the block that begins at `start` need work; false if no row sees any. */
bool mha__mask_block(const mha__call *call, const mha__rows *rows, const mha__span *span, int64_t start, int64_t *first,
                     int64_t *end);

/* True if nothing of what mha__mask_apply applies changes these keys, dropped pages aside. */
bool mha__mask_is_open(const mha__call *call, const mha__span *span, int64_t first, int64_t end);

/* Applies slopes, bias, keep, block mask, intervals and dropped pages to a panel `s` whose rows are keys [first,
 * end), one lane per row. Uses `extra` and `bytes` of the scratch memory. Returns false if nothing needed to be done.
 * */
bool mha__mask_apply(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, const mha__span *span,
                     int64_t first, int64_t end, void *s);

#endif
