/* cached.h - a small KV cache whose tokens say which ones they are, and a model of what it should hold. */
#ifndef TEST_CACHED_H
#define TEST_CACHED_H

#include "mha/cache.h"
#include "support/rng.h"

enum { CACHED_B = 3, CACHED_HKV = 2, CACHED_D = 5, CACHED_DV = 3, CACHED_MOST = 400 };

/* A description with these numbers and pages of 16 keys. */
extern const mha_cache_desc cached_plain;

/* Fails the running test if it cannot. */
mha_cache *cached_create(mha_ctx *ctx, const mha_cache_desc *desc);
/* n * count tokens in memory as [n][count][HKV][D], so strides are not contiguous; entry m begins with token
 * first + m * count. */
mha_status cached_append(mha_cache *cache, int64_t sequence, int64_t n, int64_t count, const int64_t *counts,
                         int64_t first, mha_error *err);

/* What the cache should hold: the tokens of each sequence. */
typedef struct cached_model {
    int64_t length[CACHED_B], id[CACHED_B][CACHED_MOST];
} cached_model;

void cached_note(cached_model *m, int64_t b, int64_t count, int64_t first);
/* Every token is where the table says, unless its page was given back, which only pages behind `window` may be; no page
 * is held without need. */
void cached_holds(const mha_cache *cache, const cached_model *m, int64_t window, int64_t keep_first);
/* A random change of both. */
void cached_change(mha_cache *cache, cached_model *m, rng *r, int64_t *next_id, const mha_cache_desc *desc);

#endif
