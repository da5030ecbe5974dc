/* kv_cache_pages.c - manages the pages of a KV cache: memory, reference counts, and the page table. */
#include "attn/cache/kv_cache.h"
#include "base/error.h"
#include "base/size.h"
#include <inttypes.h>
#include <string.h>

/* ---- memory ---- */

typedef struct memory {
    char *k, *v;
    int64_t *refs;
    int32_t *free_pages;
} memory;

static void release(mha_ctx *ctx, const memory *m)
{
    mha__free(ctx, m->k);
    mha__free(ctx, m->v);
    mha__free(ctx, m->refs);
    mha__free(ctx, m->free_pages);
}

/* Grows the pool. New memory is cleared, so that saving a partly filled page never exposes the previous content of the
 * memory. */
static mha_status grow_pool(mha_cache *c, int64_t pages, mha_error *err)
{
    const size_t count = (size_t)pages;
    const memory old = {c->k, c->v, c->refs, c->free_pages};
    const memory new = {mha__calloc(c->ctx, count, c->k_bytes),
                        c->v_bytes ? mha__calloc(c->ctx, count, c->v_bytes) : NULL,
                        mha__calloc(c->ctx, count, sizeof *c->refs), mha__calloc(c->ctx, count, sizeof *c->free_pages)};
    if (!new.k || (c->v_bytes && !new.v) || !new.refs || !new.free_pages) {
        release(c->ctx, &new);
        return mha__no_memory(err, count * (c->k_bytes + c->v_bytes), "the pages of a KV cache");
    }
    if (c->pages > 0) {
        memcpy(new.k, c->k, (size_t)c->pages * c->k_bytes);
        if (new.v) memcpy(new.v, c->v, (size_t)c->pages * c->v_bytes);
        memcpy(new.refs, c->refs, (size_t)c->pages * sizeof *c->refs);
        memcpy(new.free_pages, c->free_pages, (size_t)c->free_count * sizeof *c->free_pages);
    }
    release(c->ctx, &old);
    c->k = new.k, c->v = new.v, c->refs = new.refs, c->free_pages = new.free_pages;
    for (int64_t page = pages - 1; page >= c->pages; page--) { /* in descending order, so that the lowest page is on top
                                                                * of the stack */
        c->refs[page] = MHA__PAGE_FREE;
        c->free_pages[c->free_count++] = (int32_t)page;
    }
    c->pages = pages;
    return MHA_OK;
}

static mha_status reserve_pages(mha_cache *c, int64_t missing, mha_error *err)
{
    const int64_t wanted = mha__max64(c->pages + missing, c->pages + c->pages / 2);
    size_t bytes;
    if (wanted > INT32_MAX || !mha__mul((size_t)wanted, c->k_bytes + c->v_bytes, &bytes) || bytes > PTRDIFF_MAX)
        return mha__fail(err, MHA_ERR_MEMORY,
                         "the number of pages of %zu bytes must fit the address space (got %" PRId64 ")",
                         c->k_bytes + c->v_bytes, wanted);
    return grow_pool(c, wanted, err);
}

/* Allocates a copy of the page table with `wanted` pages per sequence. */
static mha_status copy_table(const mha_cache *c, int64_t wanted, int32_t **copy, mha_error *err)
{
    size_t entries;
    if (!mha__mul((size_t)c->desc.batch, (size_t)wanted, &entries) || entries > PTRDIFF_MAX / sizeof **copy)
        return mha__fail(err, MHA_ERR_MEMORY,
                         "the page table must fit the address space (got %" PRId64 " times %" PRId64 " pages)",
                         c->desc.batch, wanted);
    int32_t *table = mha__alloc(c->ctx, entries * sizeof *table);
    if (!table) return mha__no_memory(err, entries * sizeof *table, "the page table of a KV cache");
    memset(table, 0xFF, entries * sizeof *table); /* MHA__PAGE_NONE */
    for (int64_t b = 0; b < c->desc.batch && c->width > 0; b++)
        memcpy(table + b * wanted, c->table + b * c->width, (size_t)c->width * sizeof *table);
    *copy = table;
    return MHA_OK;
}

/* The table is replaced after the last step that can fail: arguments that are bound to the cache refer to it. */
mha_status mha__cache_reserve(mha_cache *c, int64_t count, int64_t coming, int64_t width, mha_error *err)
{
    const int64_t missing = count - coming - c->free_count, wanted = mha__max64(width, 2 * c->width);
    int32_t *table = NULL;
    if (missing > 0 && c->desc.capacity > 0 && c->pages > 0)
        return mha__fail(err, MHA_ERR_MEMORY,
                         "the cache is full: capacity must be at least %" PRId64 " pages of %" PRId64
                         " keys (got %" PRId64 ")",
                         c->pages + missing, c->desc.page_size, c->pages);
    if (width > c->width) MHA__TRY(copy_table(c, wanted, &table, err));
    const mha_status status = missing > 0 ? reserve_pages(c, missing, err) : MHA_OK;
    if (status != MHA_OK || !table) {
        mha__free(c->ctx, table);
        return status;
    }
    mha__free(c->ctx, c->table);
    c->table = table;
    c->width = wanted;
    return MHA_OK;
}

/* ---- page references ---- */

int32_t mha__cache_page_acquire(mha_cache *c)
{
    const int32_t page = c->free_pages[--c->free_count];
    c->refs[page] = 1;
    return page;
}

void mha__cache_recycle(mha_cache *c, int32_t page)
{
    if (c->refs[page] != 0) return;
    c->refs[page] = MHA__PAGE_FREE;
    c->free_pages[c->free_count++] = page;
}

void mha__cache_page_release(mha_cache *c, int32_t page)
{
    c->refs[page]--;
    mha__cache_recycle(c, page);
}
