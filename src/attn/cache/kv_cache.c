/* kv_cache.c - creates and describes a KV cache and removes tokens. kv_cache_append.c adds tokens. */
#include "attn/cache/kv_cache.h"

#include "attn/plan/params.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "math/types/element.h"
#include <inttypes.h>
#include <string.h>

enum { PAGE_SIZE = 128, PAGE_SIZE_MIN = 16 };
static const uint64_t PAGE_BYTES_MAX = UINT64_C(1) << 40; /* [bytes] larger than any page that can be allocated */

/* ---- creation ---- */

static mha_status resolve(const mha_cache_desc *desc, mha_cache_desc *d, mha_error *err)
{
    MHA__TRY(mha__options_need(d, sizeof *d, desc, "mha_cache_desc", err));
    if (d->dtype == MHA_DTYPE_DEFAULT) d->dtype = MHA_F32;
    if (d->v_head_dim == 0) d->v_head_dim = d->head_dim;
    if (d->page_size == 0) d->page_size = PAGE_SIZE;
    if (d->v_from_k != 0 && d->v_from_k != 1) return mha__fail_int(err, "v_from_k", d->v_from_k, "0 or 1");
    if (d->v_from_k && d->v_head_dim > d->head_dim)
        return mha__fail(err, MHA_ERR_ARG,
                         "v_head_dim must be at most head_dim = %" PRId64 " with v_from_k (got %" PRId64 ")",
                         d->head_dim, d->v_head_dim);
    if (d->batch <= 0) return mha__fail_int(err, "batch", d->batch, "positive");
    if (d->kv_heads <= 0) return mha__fail_int(err, "kv_heads", d->kv_heads, "positive");
    MHA__TRY(mha__attn_check_width("head_dim", d->head_dim, false, err));
    MHA__TRY(mha__attn_check_width("v_head_dim", d->v_head_dim, true, err));
    MHA__TRY(mha__attn_check_blocks("head_dim", d->head_dim, d->dtype, err));
    MHA__TRY(mha__attn_check_blocks("v_head_dim", d->v_head_dim, d->dtype, err));
    if (!mha__cache_converts(mha__cache_source(d->dtype), d->dtype))
        return mha__fail(err, MHA_ERR_ARG, "dtype must be one of f32, f64, bf16, f16, q8_0, q4_0, f8_e4m3 (got %s)",
                         mha__quote_dtype(&(mha__quoted){0}, d->dtype));
    if (d->page_size < PAGE_SIZE_MIN || !mha__is_power_of_two(d->page_size))
        return mha__fail_int(err, "page_size", d->page_size, "0 (default 128) or a power of two of at least 16");
    if (d->capacity < 0) return mha__fail_int(err, "capacity", d->capacity, "0 (grow on demand) or positive");
    if (d->window < 0) return mha__fail_int(err, "window", d->window, "0 (keep all keys) or positive");
    if (d->keep_first < 0 || d->keep_first > MHA__POSITION_MAX)
        return mha__fail_int(err, "keep_first", d->keep_first, "from 0 to 2^60");
    if (d->keep_first > 0 && d->window == 0)
        return mha__fail_int(err, "keep_first", d->keep_first, "0 without a window");
    return MHA_OK;
}

static mha_status page_bytes(const mha_cache_desc *d, int64_t width, size_t *bytes, mha_error *err)
{
    const int64_t shape[] = {d->kv_heads, d->page_size, mha__element_count(d->dtype, width)};
    if (mha__bytes(shape, 3, mha__element_size(d->dtype), bytes) && *bytes <= PAGE_BYTES_MAX) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG,
                     "kv_heads * page_size * head_dim must be at most 2^40 bytes (got %" PRId64 " * %" PRId64
                     " * %" PRId64 " elements of %s)",
                     d->kv_heads, d->page_size, width, mha_dtype_name(d->dtype));
}

/* Bytes of `sequences`, `lengths` and `view` per sequence. */
enum { BYTES_PER_SEQUENCE = sizeof(mha__sequence) + 4 * sizeof(int64_t) };

/* Initializes all fields except pages and table, which are allocated with the first tokens or for `capacity`. */
static mha_status fill(mha_cache *c, mha_error *err)
{
    const mha_cache_desc *d = &c->desc;
    size_t bytes;
    MHA__TRY(page_bytes(d, d->head_dim, &c->k_bytes, err));
    if (!d->v_from_k) MHA__TRY(page_bytes(d, d->v_head_dim, &c->v_bytes, err));
    if (!mha__mul((size_t)d->batch, BYTES_PER_SEQUENCE, &bytes))
        return mha__fail_int(err, "batch", d->batch, "small enough for the address space");
    c->pinned = mha__cache_pages_of(c, d->keep_first);
    c->sequences = mha__calloc(c->ctx, (size_t)d->batch, sizeof *c->sequences);
    c->lengths = mha__calloc(c->ctx, (size_t)d->batch, sizeof *c->lengths);
    c->view = mha__calloc(c->ctx, (size_t)d->batch, 3 * sizeof *c->view);
    if (!c->sequences || !c->lengths || !c->view) return mha__no_memory(err, bytes, "the sequences of a KV cache");
    for (int64_t b = 0; b < d->batch; b++)
        c->sequences[b].dropped = c->pinned;
    return d->capacity > 0 ? mha__cache_reserve(c, mha__cache_pages_of(c, d->capacity), 0, 0, err) : MHA_OK;
}

mha_status mha_cache_create(mha_ctx *ctx, const mha_cache_desc *desc, mha_cache **out, mha_error *err)
{
    mha_cache_desc resolved;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__ctx_find(&ctx, err));
    MHA__TRY(resolve(desc, &resolved, err));
    mha_cache *c = mha__calloc(ctx, 1, sizeof *c);
    if (!c) return mha__no_memory(err, sizeof *c, "a KV cache");
    c->ctx = ctx;
    c->desc = resolved;
    const mha_status status = fill(c, err);
    if (status == MHA_OK)
        *out = c;
    else
        mha_cache_free(c);
    return status;
}

void mha_cache_free(mha_cache *c)
{
    if (!c) return;
    void *const all[] = {c->sequences, c->lengths, c->view, c->table, c->k, c->v, c->refs, c->free_pages, c};
    mha_ctx *ctx = c->ctx;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        mha__free(ctx, all[n]);
}

/* ---- properties and checks ---- */

mha_status mha__cache_range(const mha_cache *c, int64_t sequence, int64_t *first, int64_t *end, mha_error *err)
{
    if (!c) return mha__fail(err, MHA_ERR_ARG, "cache must not be NULL");
    if (sequence < MHA_CACHE_ALL || sequence >= c->desc.batch)
        return mha__fail(err, MHA_ERR_ARG,
                         "sequence must be MHA_CACHE_ALL or below batch = %" PRId64 " (got %" PRId64 ")", c->desc.batch,
                         sequence);
    *first = sequence == MHA_CACHE_ALL ? 0 : sequence;
    *end = sequence == MHA_CACHE_ALL ? c->desc.batch : sequence + 1;
    return MHA_OK;
}

int64_t mha__cache_pages_of(const mha_cache *c, int64_t length)
{
    return mha__ceil_div(length, c->desc.page_size);
}

int64_t mha__cache_first_seen(const mha_cache *c, int64_t position)
{
    return c->desc.window > 0 ? mha__max64(0, position - (c->desc.window - 1)) : 0;
}

mha_status mha__cache_check_seen(const mha_cache *c, int64_t sequence, int64_t position, mha_error *err)
{
    const int64_t from = c->pinned * c->desc.page_size, to = c->sequences[sequence].dropped * c->desc.page_size;
    if (from >= to || mha__cache_first_seen(c, position) >= to) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG,
                     "position must not require dropped keys (got position %" PRId64 " in sequence %" PRId64
                     ", whose keys %" PRId64 " to %" PRId64 " were dropped)",
                     position, sequence, from, to - 1);
}

mha_status mha__cache_check_growth(const mha_cache *c, int64_t sequence, int64_t count, mha_error *err)
{
    if (count <= MHA__POSITION_MAX - c->lengths[sequence]) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "count must keep sequence %" PRId64 " below 2^60 tokens (got %" PRId64 ")",
                     sequence, count);
}

int64_t mha_cache_length(const mha_cache *c, int64_t sequence)
{
    return c && sequence >= 0 && sequence < c->desc.batch ? c->lengths[sequence] : -1;
}

int64_t mha_cache_pages(const mha_cache *c)
{
    return c ? c->pages - c->free_count : 0;
}

size_t mha_cache_bytes(const mha_cache *c)
{
    if (!c) return 0;
    return sizeof *c + (size_t)c->pages * (c->k_bytes + c->v_bytes + sizeof *c->refs + sizeof *c->free_pages) +
           (size_t)c->desc.batch * (BYTES_PER_SEQUENCE + (size_t)c->width * sizeof *c->table);
}

/* ---- truncation ---- */

/* Releases the logical pages of a sequence from `page` on. */
static void release_pages(mha_cache *c, int64_t sequence, int64_t page)
{
    const int64_t end = mha__cache_pages_of(c, c->lengths[sequence]);
    for (; page < end; page++) {
        int32_t *entry = mha__cache_entry(c, sequence, page);
        if (*entry != MHA__PAGE_NONE) mha__cache_page_release(c, *entry);
        *entry = MHA__PAGE_NONE;
    }
}

/* Truncates a sequence to `length`. The caller must have checked `length`. The pinned pages are never dropped. */
static void shorten(mha_cache *c, int64_t sequence, int64_t length)
{
    mha__sequence *s = &c->sequences[sequence];
    release_pages(c, sequence, mha__cache_pages_of(c, length));
    c->lengths[sequence] = length;
    if (length <= c->pinned * c->desc.page_size) s->dropped = c->pinned;
}

/* Checks that one sequence can be truncated to `length`. */
static mha_status check_length(const mha_cache *c, int64_t sequence, int64_t length, mha_error *err)
{
    if (length < 0 || length > c->lengths[sequence])
        return mha__fail(err, MHA_ERR_ARG,
                         "length must be from 0 to %" PRId64 ", the length of sequence %" PRId64 " (got %" PRId64 ")",
                         c->lengths[sequence], sequence, length);
    if (length <= c->pinned * c->desc.page_size) return MHA_OK;
    return mha__cache_check_seen(c, sequence, length, err);
}

mha_status mha__cache_check_truncate(const mha_cache *c, int64_t sequence, int64_t length, mha_error *err)
{
    int64_t first = 0, end = 0;
    MHA__TRY(mha__cache_range(c, sequence, &first, &end, err));
    if (sequence != MHA_CACHE_ALL) return check_length(c, sequence, length, err);
    for (int64_t b = first; b < end; b++)
        MHA__TRY(check_length(c, b, mha__min64(length, c->lengths[b]), err));
    return MHA_OK;
}

mha_status mha_cache_truncate(mha_cache *c, int64_t sequence, int64_t length, mha_error *err)
{
    int64_t first = 0, end = 0;
    MHA__TRY(mha__cache_check_truncate(c, sequence, length, err));
    MHA__TRY(mha__cache_range(c, sequence, &first, &end, err));
    for (int64_t b = first; b < end; b++)
        if (c->lengths[b] > length) shorten(c, b, length);
    return MHA_OK;
}

mha_status mha__cache_check_fork(const mha_cache *c, int64_t from, int64_t to, int64_t length, mha_error *err)
{
    if (!c) return mha__fail(err, MHA_ERR_ARG, "cache must not be NULL");
    if (from < 0 || from >= c->desc.batch)
        return mha__fail(err, MHA_ERR_ARG, "from must be one sequence, from 0 to %" PRId64 " (got %" PRId64 ")",
                         c->desc.batch - 1, from);
    MHA__TRY(check_length(c, from, length, err));
    if (to >= 0 && to < c->desc.batch && to != from) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG,
                     "to must be below batch = %" PRId64 " and must not be from = %" PRId64 " (got %" PRId64 ")",
                     c->desc.batch, from, to);
}

mha_status mha_cache_fork(mha_cache *c, int64_t from, int64_t to, int64_t length, mha_error *err)
{
    MHA__TRY(mha__cache_check_fork(c, from, to, length, err));
    shorten(c, to, 0);
    for (int64_t page = 0; page < mha__cache_pages_of(c, length); page++) {
        const int32_t shared = *mha__cache_entry(c, from, page);
        *mha__cache_entry(c, to, page) = shared;
        if (shared != MHA__PAGE_NONE) c->refs[shared]++;
    }
    c->lengths[to] = length;
    if (length > c->pinned * c->desc.page_size) c->sequences[to].dropped = c->sequences[from].dropped;
    return MHA_OK;
}

mha_status mha_cache_clear(mha_cache *c, int64_t sequence, mha_error *err)
{
    int64_t first = 0, end = 0;
    MHA__TRY(mha__cache_range(c, sequence, &first, &end, err));
    for (int64_t b = first; b < end; b++)
        shorten(c, b, 0);
    return MHA_OK;
}
