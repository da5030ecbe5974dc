/* kv_cache.h - inside of a KV cache. Shared by cache*.c; the manual is mha/cache.h.
 *
 * A pool of physical pages, counted by the sequences that hold them, and a table that says which page each sequence's
 * logical page n (its keys from n * page_size on) is: -1 where there is none.
 *
 *     logical page   0 .. pinned .. dropped .. ceil(length / page_size) .. width
 *                    held    |   -1    |   held                |   -1
 *
 * Invariant: refs[page] is the number of table entries that name it; a page on the free stack has FREE there instead.
 */
#ifndef MHA_ATTN_CACHE_KV_CACHE_H
#define MHA_ATTN_CACHE_KV_CACHE_H

#include "base/ctx.h"
#include "mha/cache.h"
#include <stdbool.h>

enum { MHA__PAGE_FREE = -1, MHA__PAGE_NONE = -1 };

/* What a cache knows of one sequence. */
typedef struct mha__sequence {
    int64_t length;
    int64_t dropped; /* logical pages [pinned, dropped) were given back; never below pinned */
    bool copies;     /* within an append: its last page is shared and must be copied */
} mha__sequence;

struct mha_cache {
    mha_ctx *ctx;
    mha_cache_desc desc;      /* every default filled in */
    size_t k_bytes, v_bytes;  /* of a page */
    int64_t pinned;           /* logical pages that hold keep_first tokens */
    mha__sequence *sequences; /* [batch] */
    int64_t *view;            /* [3][batch] lengths, offsets and prefixes, as mha_cache_bind hands them out */
    int32_t *table;           /* [batch][width] */
    int64_t width;
    char *k, *v;         /* [pages] */
    int64_t *refs;       /* [pages] */
    int32_t *free_pages; /* a stack */
    int64_t pages, free_count;
};

/* ---- kv_cache.c ---- */

/* Sequences [*first, *end) that `sequence` names. */
mha_status mha__cache_range(const mha_cache *cache, int64_t sequence, int64_t *first, int64_t *end, mha_error *err);
/* Pages that hold `length` keys. */
int64_t mha__cache_pages_of(const mha_cache *cache, int64_t length);
int32_t *mha__cache_entry(const mha_cache *cache, int64_t sequence, int64_t page);
/* The first key that a row at `position` sees through the window. */
int64_t mha__cache_first_seen(const mha_cache *cache, int64_t position);
/* MHA_ERR_ARG unless a row at `position`, behind the pinned pages, and all that follow find every key they may see. */
mha_status mha__cache_check_seen(const mha_cache *cache, int64_t sequence, int64_t position, mha_error *err);
/* MHA_ERR_ARG if `count` more tokens would make a sequence longer than can be counted. */
mha_status mha__cache_check_growth(const mha_cache *cache, int64_t sequence, int64_t count, mha_error *err);

/* ---- kv_cache_pages.c ---- */

/* Sees to it that `count` pages are free, `coming` of them by being given back before they are taken, and that the
 * table is `width` wide. On failure nothing has changed that anyone could see. */
mha_status mha__cache_reserve(mha_cache *cache, int64_t count, int64_t coming, int64_t width, mha_error *err);
int32_t mha__cache_take(mha_cache *cache);                 /* one of the reserved */
void mha__cache_give_back(mha_cache *cache, int32_t page); /* one holder less */
void mha__cache_recycle(mha_cache *cache, int32_t page);   /* onto the free stack, if nobody holds it */

/* ---- kv_cache_write.c ---- */

/* What new tokens are expected to be: the type that is stored, but f32 for q8_0. */
mha_dtype mha__cache_source(mha_dtype stored);
/* True if numbers of type `from` can be stored as `to`. */
bool mha__cache_converts(mha_dtype from, mha_dtype to);
/* False for a finite number that would become NaN, and with it the 31 others of its block. */
bool mha__cache_holds(mha_dtype stored, float x);
/* Writes tokens [0, count) of entry n of `view` to the keys from `position` on of a sequence whose pages are there.
 * `width` is D or Dv, `pages` the cache's k or v. */
void mha__cache_write(mha_cache *cache, int64_t sequence, int64_t position, int64_t count, const mha_cview *view,
                      mha_dtype dtype, int64_t n, int64_t width, char *pages);

#endif
