/* mask.h - the keys that a row attends to. Lengths, causal, window and the width of `keep` define an interval of keys
 * per row, plus an optional prefix. Slopes, bias, keep and the block mask act on the scores of a block. */
#ifndef MHA_ATTN_MASK_MASK_H
#define MHA_ATTN_MASK_MASK_H

#include "attn/plan/scratch.h"

/* Rows of one head, and the intervals of keys that they attend to. */
typedef struct mha__rows {
    int64_t b, h, first, count;
    int64_t result;         /* index of the head in the outputs: h, unless a list of heads is given */
    int64_t position;       /* position of row `first` among the keys; 0 if positions are not used */
    const int64_t *lo, *hi; /* row r attends to keys in [lo[r], hi[r]) and in its prefix; an empty interval is [0, 0) */
    const int64_t *prefix;  /* row r also attends to [0, prefix[r]), inside or before its interval; the same for all
                             * existing rows, else 0 */
} mha__rows;

/* The keys that the rows of a tile attend to: the range from the first to the last key of any row, and the range of
 * keys that all rows attend to.
 */
typedef struct mha__span {
    int64_t lo, hi;               /* empty if lo = hi */
    int64_t prefix, band;         /* if not empty, no row attends to [prefix, band) */
    int64_t common_lo, common_hi; /* if not empty, every row attends to [common_lo, common_hi) */
} mha__span;

/* Returns the position of row i of batch b, minus i; 0 if positions are not used. */
int64_t mha__mask_offset(const mha__call *call, int64_t b);
/* Computes lo, hi and prefix for `count` rows of batch b, starting at row `first`. */
void mha__mask_intervals(const mha__call *call, int64_t b, int64_t first, int64_t count, int64_t *lo, int64_t *hi,
                         int64_t *prefix);
mha__span mha__mask_span(const mha__rows *rows);
/* Same as mha__mask_span for the rows of a tile, but faster if all rows attend to the same keys. */
mha__span mha__mask_tile(const mha__call *call, const mha__rows *rows);
/* Same as mha__mask_tile without the intervals of the rows. Returns false if the intervals are needed, because rows may
 * attend to different keys. */
bool mha__mask_shared(const mha__call *call, const mha__rows *rows, mha__span *span);

/* Stores the range [*first, *end) of keys of the block at `start`; no row attends to any other key of the block.
 * Returns false if no row attends to any key of the block. */
bool mha__mask_block(const mha__call *call, const mha__rows *rows, const mha__span *span, int64_t start, int64_t *first,
                     int64_t *end);

/* Returns true if mha__mask_apply would change no score of keys [first, end), except scores of dropped pages. */
bool mha__mask_is_open(const mha__call *call, const mha__rows *rows, const mha__span *span, int64_t first, int64_t end);
/* Returns true if mha__mask_apply only masks keys in this call, so that mha__mask_strip can replace it. */
bool mha__mask_is_pure(const mha__call *call);
/* Sets masked entries of the strip of keys [first, end) to -infinity, except entries of dropped pages. The decode
 * kernels, which use strips, have no f64 version. */
void mha__mask_strip(const mha__call *call, const mha__rows *rows, int64_t first, int64_t end, float *strip);

/* Applies functions, ALiBi slopes, bias, masks, intervals and dropped pages to the panel `s`: one row per key in
 * [first, end), one lane per query row. Uses scratch->extra and scratch->bytes. Returns false if no score changed. */
bool mha__mask_apply(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, const mha__span *span,
                     int64_t first, int64_t end, void *s);

/* Sets masked entries of the panel `mask` to -infinity, and all other entries to other values. `s` contains the final
 * scores of the same rows and keys: user functions of scores may mask a key depending on its score. */
void mha__mask_only(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, const mha__span *span,
                    int64_t first, int64_t end, const void *s, void *mask);

#endif
