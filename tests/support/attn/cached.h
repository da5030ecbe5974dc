/* cached.h - small KV caches whose elements encode their token, and a reference model of the expected contents. */
#ifndef TEST_CACHED_H
#define TEST_CACHED_H

#include "mha/cache.h"
#include "support/attn/tensor.h"
#include "support/rng.h"

enum { CACHED_B = 3, CACHED_HKV = 2, CACHED_D = 5, CACHED_DV = 3 };
enum { CACHED_B_MAX = 4, CACHED_MAX = 400, CACHED_PAGE_MIN = 16 };

/* The default description of a cache in these tests, with pages of 16 keys. */
extern const mha_cache_desc cached_plain;

/* Creates a cache; fails the running test on an error. */
mha_cache *cached_create(mha_ctx *ctx, const mha_cache_desc *desc);
/* Appends `count` f32 tokens to each of n sequences. The keys are stored as [n][count][Hkv][D], so their
 * strides are not those of a contiguous [n, Hkv, count, D]. The ids of the tokens are first, first + 1, ... */
mha_status cached_append(mha_cache *cache, const mha_cache_desc *desc, int64_t sequence, int64_t n, int64_t count,
                         const int64_t *counts, int64_t first, mha_error *err);
/* Creates the keys (or, with `value`, values) of shape[0] * shape[1] tokens in any type and layout. For a cache in
 * q8_0, q4_0 or f8_e4m3, `dtype` is f32, since the cache rounds the elements. */
void cached_tokens(tensor *t, const mha_cache_desc *desc, bool value, const int64_t shape[2], mha_dtype dtype,
                   const tensor_layout *layout, int64_t first);
/* Returns element d of head g of the key (or value) of token `id`. A cache stores it exactly: in q4_0, the rounding of
 * the f32 element has no effect on the block. */
double cached_element(const mha_cache_desc *desc, int64_t id, int64_t g, int64_t d, bool value);

/* The expected contents of a cache: the length and token ids of each sequence, and its freed pages (`gone`). */
typedef struct cached_model {
    mha_cache_desc desc; /* the description with all defaults applied */
    int64_t length[CACHED_B_MAX], id[CACHED_B_MAX][CACHED_MAX];
    bool gone[CACHED_B_MAX][CACHED_MAX / CACHED_PAGE_MIN];
} cached_model;

void cached_start(cached_model *m, const mha_cache_desc *desc);
void cached_note(cached_model *m, int64_t b, int64_t count, int64_t first);
void cached_note_fork(cached_model *m, int64_t from, int64_t to, int64_t length);
void cached_note_length(cached_model *m, int64_t b, int64_t length);
/* Returns true if all keys to which rows from `position` on may attend are in the cache, not counting the keys of
 * keep_first. */
bool cached_seen(const cached_model *m, int64_t b, int64_t position);
/* Returns the number of keys in the pages that keep_first retains. */
int64_t cached_pinned(const cached_model *m);

/* Compares a cache with the model; returns NULL, or the violated invariant. Every token must be at the position given
 * by the page table, with its original elements, unless its page is outside the window. No other page may be in use. */
const char *cached_broken(const mha_cache *cache, const cached_model *m);
/* Calls cached_broken, and fails the running test if an invariant is violated. */
void cached_holds(const mha_cache *cache, const cached_model *m);

#endif
