/* cached.h - a small KV cache whose tokens say which ones they are, and a naive copy of what it should hold. */
#ifndef TEST_CACHED_H
#define TEST_CACHED_H

#include "mha/cache.h"
#include "support/attn/tensor.h"
#include "support/rng.h"

enum { CACHED_B = 3, CACHED_HKV = 2, CACHED_D = 5, CACHED_DV = 3 };
enum { CACHED_B_MOST = 4, CACHED_MOST = 400, CACHED_PAGE_LEAST = 16 };

/* A description with these numbers and pages of 16 keys. */
extern const mha_cache_desc cached_plain;

/* Fails the running test if it cannot. */
mha_cache *cached_create(mha_ctx *ctx, const mha_cache_desc *desc);
/* n * count tokens, f32, to a cache of this description, as [n][count][Hkv][D], so strides are not contiguous; entry m
 * begins with token first + m * count. */
mha_status cached_append(mha_cache *cache, const mha_cache_desc *desc, int64_t sequence, int64_t n, int64_t count,
                         const int64_t *counts, int64_t first, mha_error *err);
/* Keys (or values) of such tokens, of any type and layout, f32 being what q8_0 is made of. */
void cached_tokens(tensor *t, const mha_cache_desc *desc, bool value, const int64_t shape[2], mha_dtype dtype,
                   const tensor_layout *layout, int64_t first);
/* Element d of head g of the key (or value) of a token: exact in every type. */
double cached_element(const mha_cache_desc *desc, int64_t id, int64_t g, int64_t d, bool value);

/* What the cache should hold: the tokens of each sequence, and which of its pages may have been given back. */
typedef struct cached_model {
    mha_cache_desc desc; /* no field is left to its default */
    int64_t length[CACHED_B_MOST], id[CACHED_B_MOST][CACHED_MOST];
    bool gone[CACHED_B_MOST][CACHED_MOST / CACHED_PAGE_LEAST];
} cached_model;

void cached_start(cached_model *m, const mha_cache_desc *desc);
void cached_note(cached_model *m, int64_t b, int64_t count, int64_t first);
void cached_note_fork(cached_model *m, int64_t from, int64_t to, int64_t length);
void cached_note_length(cached_model *m, int64_t b, int64_t length);
/* Whether every key is there that rows from `position` on may see, themselves included, unless keep_first has it. */
bool cached_seen(const cached_model *m, int64_t b, int64_t position);
/* Keys that keep_first holds, in whole pages. */
int64_t cached_pinned(const cached_model *m);

/* NULL, or the law that is broken: every token is where the table says, with the bits it was given, unless its page
 * fell out of the window; and no page is held without need. */
const char *cached_broken(const mha_cache *cache, const cached_model *m);
/* Fails the running test where it is. */
void cached_holds(const mha_cache *cache, const cached_model *m);

#endif
