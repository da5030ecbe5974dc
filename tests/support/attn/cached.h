/* cached.h - a small KV cache whose elements encode their token, and a naive model of its expected contents. */
#ifndef TEST_CACHED_H
#define TEST_CACHED_H

#include "mha/cache.h"
#include "support/attn/tensor.h"
#include "support/rng.h"

enum { CACHED_B = 3, CACHED_HKV = 2, CACHED_D = 5, CACHED_DV = 3 };
enum { CACHED_B_MOST = 4, CACHED_MOST = 400, CACHED_PAGE_LEAST = 16 };

/* The default description of these tests, with pages of 16 keys. */
extern const mha_cache_desc cached_plain;

/* Creates a cache; fails the running test on an error. */
mha_cache *cached_create(mha_ctx *ctx, const mha_cache_desc *desc);
/* Appends n * count f32 tokens, stored as [n][count][Hkv][D], so strides are not contiguous. Entry m begins with token
 * first + m * count. */
mha_status cached_append(mha_cache *cache, const mha_cache_desc *desc, int64_t sequence, int64_t n, int64_t count,
                         const int64_t *counts, int64_t first, mha_error *err);
/* Makes the keys (or values) of such tokens in any type and layout; for q8_0 in f32, from which q8_0 is quantized. */
void cached_tokens(tensor *t, const mha_cache_desc *desc, bool value, const int64_t shape[2], mha_dtype dtype,
                   const tensor_layout *layout, int64_t first);
/* Returns element d of head g of the key (or value) of a token; the value is exact in every type. */
double cached_element(const mha_cache_desc *desc, int64_t id, int64_t g, int64_t d, bool value);

/* The expected contents of a cache: the tokens of each sequence, and the pages that may have been freed. */
typedef struct cached_model {
    mha_cache_desc desc; /* the complete description, with the defaults filled in */
    int64_t length[CACHED_B_MOST], id[CACHED_B_MOST][CACHED_MOST];
    bool gone[CACHED_B_MOST][CACHED_MOST / CACHED_PAGE_LEAST];
} cached_model;

void cached_start(cached_model *m, const mha_cache_desc *desc);
void cached_note(cached_model *m, int64_t b, int64_t count, int64_t first);
void cached_note_fork(cached_model *m, int64_t from, int64_t to, int64_t length);
void cached_note_length(cached_model *m, int64_t b, int64_t length);
/* Returns true if every key to which rows from `position` on may attend is present, including their own keys; keys
 * of keep_first do not count. */
bool cached_seen(const cached_model *m, int64_t b, int64_t position);
/* Returns the number of keys that keep_first retains, in whole pages. */
int64_t cached_pinned(const cached_model *m);

/* Returns NULL, or the violated invariant. Every token must be at the position given by the page table and have its
 * original bits, unless its page left the window. No page may be held unnecessarily. */
const char *cached_broken(const mha_cache *cache, const cached_model *m);
/* Like cached_broken, but fails the running test on a violation. */
void cached_holds(const mha_cache *cache, const cached_model *m);

#endif
