/* cached_attend.h - computes attention over a KV cache and compares the result with attention in double over the tokens
 * of the reference model. */
#ifndef TEST_CACHED_ATTEND_H
#define TEST_CACHED_ATTEND_H

#include "support/attn/cached.h"

enum { CACHED_ROWS_MAX = 24 };

/* How a call specifies the number of rows: equal for all sequences, by lengths, or packed. */
typedef enum cached_rows {
    CACHED_ROWS_ALIKE,
    CACHED_ROWS_BY_LENGTHS,
    CACHED_ROWS_PACKED,
    CACHED_ROWS_WAYS
} cached_rows;

/* Computes attention with rows[n] query rows for batch entry n, on `sequence` or MHA_CACHE_ALL, with `group` query
 * heads per key/value head. With CACHED_ROWS_ALIKE, all entries have rows[0] rows. Sets *status to the status of the
 * call that failed, or MHA_OK. Returns NULL, or the violated invariant. */
const char *cached_attend(mha_ctx *ctx, mha_cache *cache, const cached_model *m, int64_t sequence, cached_rows way,
                          const int64_t *rows, int64_t group, mha_status *status);

#endif
