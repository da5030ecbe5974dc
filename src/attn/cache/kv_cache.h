/* kv_cache.h - the internals of a KV cache, shared by kv_cache*.c; the manual is mha/cache.h.
 *
 * A cache is a pool of physical pages with reference counts, and a table that maps logical page n of a sequence (the
 * keys from n * page_size on) to a physical page, or to -1.
 *
 * logical page   0 .. pinned .. dropped .. ceil(length / page_size) .. width
 *                    stored  |   -1    |   stored              |   -1
 *
 * Invariant: refs[page] is the number of table entries that refer to the page; for a page on the free stack, refs[page]
 * is MHA__PAGE_FREE. */
#ifndef MHA_ATTN_CACHE_KV_CACHE_H
#define MHA_ATTN_CACHE_KV_CACHE_H

#include "base/ctx.h"
#include "mha/cache.h"
#include <stdbool.h>

enum { MHA__PAGE_FREE = -1, MHA__PAGE_NONE = -1 };

/* The state of one sequence, except for its length. */
typedef struct mha__sequence {
    int64_t dropped; /* logical pages [pinned, dropped) were released; dropped >= pinned */
    bool copies;     /* used during an append: the last page is shared and must be copied */
} mha__sequence;

struct mha_cache {
    mha_ctx *ctx;
    mha_cache_desc desc;      /* the caller's description, with all defaults set */
    size_t k_bytes, v_bytes;  /* bytes per page */
    int64_t pinned;           /* number of logical pages that contain the keep_first tokens */
    mha__sequence *sequences; /* [batch] states of the sequences */
    int64_t *lengths;         /* [batch] tokens of the sequences */
    int64_t *view;            /* [3][batch] lengths, offsets and prefixes of the bound call; set by mha_cache_bind */
    int32_t *table;           /* [batch][width] physical pages, or MHA__PAGE_NONE */
    int64_t width;
    char *k, *v;         /* memory of [pages] pages, of k_bytes and v_bytes each */
    int64_t *refs;       /* [pages] reference counts, or MHA__PAGE_FREE */
    int32_t *free_pages; /* stack of free pages */
    int64_t pages, free_count;
};

/* ---- kv_cache.c ---- */

/* Stores the sequences [*first, *end) that `sequence` selects, which may be MHA_CACHE_ALL. */
mha_status mha__cache_range(const mha_cache *cache, int64_t sequence, int64_t *first, int64_t *end, mha_error *err);
/* Returns the number of pages that contain `length` keys. */
int64_t mha__cache_pages_of(const mha_cache *cache, int64_t length);
static inline int32_t *mha__cache_entry(const mha_cache *c, int64_t sequence, int64_t page)
{
    return &c->table[sequence * c->width + page];
}

/* Returns the first key that a row at `position` attends to through the window. */
int64_t mha__cache_first_seen(const mha_cache *cache, int64_t position);
/* Returns MHA_ERR_ARG if a row at `position`, or a later row, may attend to a key after the pinned pages that the cache
 * has dropped. */
mha_status mha__cache_check_seen(const mha_cache *cache, int64_t sequence, int64_t position, mha_error *err);
/* Return the error that mha_cache_truncate or mha_cache_fork would return, without changing the cache. */
mha_status mha__cache_check_truncate(const mha_cache *cache, int64_t sequence, int64_t length, mha_error *err);
mha_status mha__cache_check_fork(const mha_cache *cache, int64_t from, int64_t to, int64_t length, mha_error *err);
/* Returns MHA_ERR_ARG if `count` more tokens would exceed the maximum length. */
mha_status mha__cache_check_growth(const mha_cache *cache, int64_t sequence, int64_t count, mha_error *err);

/* ---- kv_cache_pages.c ---- */

/* Ensures that `count` pages are free, counting `coming` pages that the caller will release first, and that the table
 * has `width` columns. On failure, the visible state is unchanged. */
mha_status mha__cache_reserve(mha_cache *cache, int64_t count, int64_t coming, int64_t width, mha_error *err);
int32_t mha__cache_page_acquire(mha_cache *cache);            /* takes a reserved page from the free stack */
void mha__cache_page_release(mha_cache *cache, int32_t page); /* removes one reference to a page */
void mha__cache_recycle(mha_cache *cache, int32_t page);      /* pushes an unreferenced page onto the free stack */

/* ---- kv_cache_append.c ---- */

/* Allocates the memory for `count` more tokens per sequence in a cache without a fixed capacity, so that appending them
 * does not change `pages`, and a plan can be created in advance. */
mha_status mha__cache_reserve_tokens(mha_cache *cache, int64_t sequence, int64_t count, mha_error *err);

/* ---- kv_cache_write.c ---- */

/* Returns the type of new tokens: f32 for q8_0, q4_0 and f8_e4m3, otherwise the stored type. */
mha_dtype mha__cache_source(mha_dtype stored);
/* Returns true if elements of type `from` can be stored as `to`. */
bool mha__cache_converts(mha_dtype from, mha_dtype to);
/* Returns the exclusive limit of the magnitude of finite elements: larger elements would become NaN, together with the
 * other 31 elements of their block. Returns infinity if there is no limit. */
float mha__cache_end(mha_dtype stored);
/* Keys or values of new tokens: [n, Hkv, count, width] of `dtype`, rotated by `rope` unless it is NULL. */
typedef struct mha__cache_rows {
    const mha_cview *view;
    mha_dtype dtype;
    int64_t width;
    const mha_attn_rope *rope;
} mha__cache_rows;

/* Returns the position by which token t of entry n is rotated, which is stored as key `key`. */
int64_t mha__cache_position(const mha_attn_rope *rope, int64_t n, int64_t t, int64_t key);
/* Loads a row as f64 if its type is f64, otherwise as f32, and rotates it, if requested, as key `key`. */
void mha__cache_load(const mha__cache_rows *rows, int64_t n, int64_t g, int64_t t, int64_t key, void *row);
/* Writes tokens [0, count) of entry n to a sequence, starting at key `position`. The pages of these keys must exist.
 * `pages` is the cache's k or v. */
void mha__cache_write(mha_cache *cache, int64_t sequence, int64_t position, int64_t count, const mha__cache_rows *rows,
                      int64_t n, char *pages);

#endif
