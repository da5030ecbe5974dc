/* mask.h - the keys that a row attends to. Lengths, causal, window and the width of `keep` define an interval of keys
 * per row, plus an optional prefix. Slopes, bias, keep and the block mask act on the scores of a block. */
#ifndef MHA_ATTN_MASK_MASK_H
#define MHA_ATTN_MASK_MASK_H

#include "attn/plan/scratch.h"

/* Rows of one head, and the keys they attend to. */
typedef struct mha__rows {
    int64_t b, h, first, count;
    int64_t result;         /* head index in the outputs: h, unless there is a list of heads */
    int64_t position;       /* position of row `first` among the keys; 0 if positions do not matter */
    const int64_t *lo, *hi; /* row r attends to keys in [lo[r], hi[r]) and in its prefix; an empty interval is [0, 0) */
    const int64_t *prefix;  /* [0, prefix[r]): the same for all existing rows, else 0; in the interval, or before it */
} mha__rows;

/* The keys that rows of a tile attend to: from the first to the last key of any row, and the part common to all rows.
 */
typedef struct mha__span {
    int64_t lo, hi;               /* empty if lo = hi */
    int64_t prefix, band;         /* no row attends to [prefix, band), if not empty */
    int64_t common_lo, common_hi; /* every row attends to [common_lo, common_hi), if not empty */
} mha__span;

/* Number of existing rows and keys of batch b. */
int64_t mha__mask_queries(const mha__call *call, int64_t b);
int64_t mha__mask_keys(const mha__call *call, int64_t b);
/* Position of row i of batch b minus i; 0 if positions do not matter. */
int64_t mha__mask_offset(const mha__call *call, int64_t b);
/* Fills lo, hi and prefix of `count` rows of batch b from row `first` on. */
void mha__mask_intervals(const mha__call *call, int64_t b, int64_t first, int64_t count, int64_t *lo, int64_t *hi,
                         int64_t *prefix);
mha__span mha__mask_span(const mha__rows *rows);
/* The same for all rows of a tile; computed once if they attend to the same keys. */
mha__span mha__mask_tile(const mha__call *call, const mha__rows *rows);

/* Returns the keys [*first, *end) of the block at `start` that need work; false if no row attends to any. */
bool mha__mask_block(const mha__call *call, const mha__rows *rows, const mha__span *span, int64_t start, int64_t *first,
                     int64_t *end);

/* True if mask.c changes no score of these keys; dropped pages aside. */
bool mha__mask_is_open(const mha__call *call, const mha__span *span, int64_t first, int64_t end);

/* Applies slopes, bias, keep, block mask, intervals and dropped pages to a panel `s` whose rows are keys [first, end),
 * one lane per row. Uses `extra` and `bytes` of the scratch memory. Returns false if nothing changed. */
bool mha__mask_apply(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, const mha__span *span,
                     int64_t first, int64_t end, void *s);

#endif
