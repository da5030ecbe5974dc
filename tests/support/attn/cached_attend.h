/* cached_attend.h - the operator on a KV cache, held against attention in double over the tokens that a naive copy
 * says the cache has. */
#ifndef TEST_CACHED_ATTEND_H
#define TEST_CACHED_ATTEND_H

#include "support/attn/cached.h"

enum { CACHED_ROWS_MOST = 24 };

/* How the rows of a call are given. */
typedef enum cached_rows {
    CACHED_ROWS_ALIKE,
    CACHED_ROWS_BY_LENGTHS,
    CACHED_ROWS_PACKED,
    CACHED_ROWS_WAYS
} cached_rows;

/* rows[n] rows of each entry n of the call, on `sequence` or MHA_CACHE_ALL; `group` query heads to a key/value head.
 * MHA_CACHE_ALL with CACHED_ROWS_ALIKE reads rows[0]. Writes the status of the bind. Returns NULL, or the law that is
 * broken. */
const char *cached_attend(mha_ctx *ctx, mha_cache *cache, const cached_model *m, int64_t sequence, cached_rows way,
                          const int64_t *rows, int64_t group, mha_status *status);

#endif
