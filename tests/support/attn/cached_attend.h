/* cached_attend.h - runs the operator on a KV cache and compares it with attention in double over the tokens of the
 * naive model. */
#ifndef TEST_CACHED_ATTEND_H
#define TEST_CACHED_ATTEND_H

#include "support/attn/cached.h"

enum { CACHED_ROWS_MOST = 24 };

/* How the number of rows of a call is specified. */
typedef enum cached_rows {
    CACHED_ROWS_ALIKE,
    CACHED_ROWS_BY_LENGTHS,
    CACHED_ROWS_PACKED,
    CACHED_ROWS_WAYS
} cached_rows;

/* Attends with rows[n] query rows for each entry n of the call, on `sequence` or MHA_CACHE_ALL, with `group` query
 * heads per key/value head. MHA_CACHE_ALL with CACHED_ROWS_ALIKE reads only rows[0]. Stores the status of the bind.
 * Returns NULL, or the violated invariant. */
const char *cached_attend(mha_ctx *ctx, mha_cache *cache, const cached_model *m, int64_t sequence, cached_rows way,
                          const int64_t *rows, int64_t group, mha_status *status);

#endif
