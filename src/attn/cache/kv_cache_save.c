/* kv_cache_save.c - converts a KV cache to a list of tensors and back. Loaded tensors are untrusted, so all of them are
 * checked before the cache is modified. */
#include "attn/cache/kv_cache.h"
#include "base/error.h"
#include "base/size.h"
#include "math/types/element.h"
#include <inttypes.h>
#include <string.h>

enum { LENGTHS, PAGES, KEYS, VALUES };
static const char *const names[MHA_CACHE_TENSORS] = {"lengths", "pages", "k", "v"};

/* Returns the type of saved tensors. Types that only caches store are saved as integers, types that every file format
 * has. Each has its own, so that no cache loads the bytes of another type. */
static mha_dtype saved_dtype(const mha_cache *c)
{
    switch (c->desc.dtype) {
    case MHA_Q8_0:
        return MHA_U8;
    case MHA_Q4_0:
        return MHA_U16;
    case MHA_F8_E4M3:
        return MHA_I8;
    default:
        return c->desc.dtype;
    }
}

/* Returns the columns of saved rows of `width` elements. */
static int64_t kept_width(const mha_cache *c, int64_t width)
{
    const mha_dtype dtype = c->desc.dtype;
    return mha__element_count(dtype, width) * (int64_t)(mha__element_size(dtype) / mha_dtype_size(saved_dtype(c)));
}

/* Returns the columns of the tensor "v": 0 if values are parts of the keys. */
static int64_t value_width(const mha_cache *c)
{
    return c->desc.v_from_k ? 0 : kept_width(c, c->desc.v_head_dim);
}

/* Returns one more than the index of the highest page that was ever used. */
static int64_t pages_in_use(const mha_cache *c)
{
    int64_t pages = c->pages;
    while (pages > 0 && c->refs[pages - 1] == MHA__PAGE_FREE)
        pages--;
    return pages;
}

void mha_cache_save(const mha_cache *c, mha_named_tensor t[MHA_CACHE_TENSORS])
{
    if (!t) return;
    memset(t, 0, MHA_CACHE_TENSORS * sizeof *t);
    if (!c) return;
    const mha_cache_desc *d = &c->desc;
    const int64_t pages = pages_in_use(c);
    t[LENGTHS] = (mha_named_tensor){names[LENGTHS], MHA_I64, 1, {d->batch}, c->lengths};
    t[PAGES] = (mha_named_tensor){names[PAGES], MHA_I32, 2, {d->batch, c->width}, c->table};
    t[KEYS] = (mha_named_tensor){
        names[KEYS], saved_dtype(c), 4, {pages, d->kv_heads, d->page_size, kept_width(c, d->head_dim)}, c->k};
    t[VALUES] =
        (mha_named_tensor){names[VALUES], saved_dtype(c), 4, {pages, d->kv_heads, d->page_size, value_width(c)}, c->v};
}

/* ---- loading ---- */

/* Finds a tensor in the list and checks it. Its dimensions must match those of `want` that are not negative. */
static mha_status find(const mha_named_tensor *tensors, int count, const mha_named_tensor *want,
                       const mha_named_tensor **found, mha_error *err)
{
    const mha_named_tensor *t = NULL;
    size_t bytes;
    for (int n = 0; n < count && !t; n++)
        if (tensors[n].name && strcmp(tensors[n].name, want->name) == 0) t = &tensors[n];
    if (!t) return mha__fail(err, MHA_ERR_FORMAT, "tensor \"%s\" must be present", want->name);
    if (t->dtype != want->dtype)
        return mha__fail(err, MHA_ERR_FORMAT, "tensor \"%s\": dtype must be %s (got %s)", want->name,
                         mha_dtype_name(want->dtype), mha_dtype_name(t->dtype));
    if (t->rank != want->rank)
        return mha__fail(err, MHA_ERR_FORMAT, "tensor \"%s\": rank must be %d (got %d)", want->name, want->rank,
                         t->rank);
    for (int n = 0; n < t->rank; n++)
        if (t->shape[n] < 0 || (want->shape[n] >= 0 && t->shape[n] != want->shape[n]))
            return mha__fail(err, MHA_ERR_FORMAT, "tensor \"%s\": shape[%d] must be %" PRId64 " (got %" PRId64 ")",
                             want->name, n, want->shape[n], t->shape[n]);
    if (!mha__bytes(t->shape, t->rank, mha_dtype_size(t->dtype), &bytes) || bytes > PTRDIFF_MAX ||
        (bytes > 0 && !t->data))
        return mha__fail(err, MHA_ERR_FORMAT, "tensor \"%s\": data must not be NULL and must be addressable (got %p)",
                         want->name, t->data);
    *found = t;
    return MHA_OK;
}

static mha_status find_all(const mha_cache *c, const mha_named_tensor *tensors, int count,
                           const mha_named_tensor *t[MHA_CACHE_TENSORS], mha_error *err)
{
    const mha_cache_desc *d = &c->desc;
    const mha_named_tensor want[MHA_CACHE_TENSORS] = {
        {names[LENGTHS], MHA_I64, 1, {d->batch}, NULL},
        {names[PAGES], MHA_I32, 2, {d->batch, -1}, NULL},
        {names[KEYS], saved_dtype(c), 4, {-1, d->kv_heads, d->page_size, kept_width(c, d->head_dim)}, NULL},
        {names[VALUES], saved_dtype(c), 4, {-1, d->kv_heads, d->page_size, value_width(c)}, NULL}};
    for (int n = 0; n < MHA_CACHE_TENSORS; n++)
        MHA__TRY(find(tensors, count, &want[n], &t[n], err));
    if (t[KEYS]->shape[0] == t[VALUES]->shape[0] && t[KEYS]->shape[0] <= INT32_MAX) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT,
                     "tensors \"k\" and \"v\" must have the same number of pages (got %" PRId64 " and %" PRId64 ")",
                     t[KEYS]->shape[0], t[VALUES]->shape[0]);
}

static int64_t length_at(const mha_named_tensor *lengths, int64_t b)
{
    int64_t length;
    memcpy(&length, (const char *)lengths->data + (size_t)b * sizeof length, sizeof length);
    return length;
}

static int32_t page_at(const mha_named_tensor *pages, int64_t b, int64_t n)
{
    int32_t page;
    memcpy(&page, (const char *)pages->data + (size_t)(b * pages->shape[1] + n) * sizeof page, sizeof page);
    return page;
}

/* Loads the table of a sequence: pages of "k" up to its length, with -1 for pages before the window and after the end.
 * Sets the sequence, its table entries and the reference counts of `c`, whose table must be as wide as the tensor. */
static mha_status load_sequence(mha_cache *c, int64_t b, const mha_named_tensor *const t[MHA_CACHE_TENSORS],
                                mha_error *err)
{
    const int64_t length = length_at(t[LENGTHS], b), width = t[PAGES]->shape[1];
    mha__sequence *s = &c->sequences[b];
    if (length < 0 || mha__ceil_div(length, c->desc.page_size) > width)
        return mha__fail(err, MHA_ERR_FORMAT,
                         "tensor \"lengths\"[%" PRId64 "] must fit the %" PRId64 " pages of a sequence (got %" PRId64
                         ")",
                         b, width, length);
    const int64_t held = mha__cache_pages_of(c, length);
    const int64_t first_page = mha__cache_first_seen(c, length) / c->desc.page_size;
    for (int64_t n = 0; n < width; n++) {
        const int32_t page = page_at(t[PAGES], b, n);
        const bool dropped = page == MHA__PAGE_NONE && n == s->dropped && n < first_page;
        if (n < held ? (page < 0 || page >= t[KEYS]->shape[0]) && !dropped : page != MHA__PAGE_NONE)
            return mha__fail(err, MHA_ERR_FORMAT,
                             "tensor \"pages\"[%" PRId64 ", %" PRId64
                             "] must be a page index, or -1 for a page that is not stored (got %" PRId32 ")",
                             b, n, page);
        s->dropped += dropped;
        *mha__cache_entry(c, b, n) = page;
        if (page >= 0) c->refs[page] = mha__max64(c->refs[page], 0) + 1;
    }
    c->lengths[b] = length;
    return MHA_OK;
}

/* Loads all sequences into `c`, a new cache that already has the pages. */
static mha_status load(mha_cache *c, const mha_named_tensor *const t[MHA_CACHE_TENSORS], mha_error *err)
{
    const int64_t pages = t[KEYS]->shape[0];
    MHA__TRY(mha__cache_reserve(c, mha__max64(pages, c->pages), 0, t[PAGES]->shape[1], err));
    for (int64_t b = 0; b < c->desc.batch; b++)
        MHA__TRY(load_sequence(c, b, t, err));
    if (pages > 0) {
        memcpy(c->k, t[KEYS]->data, (size_t)pages * c->k_bytes);
        if (c->v) memcpy(c->v, t[VALUES]->data, (size_t)pages * c->v_bytes);
    }
    c->free_count = 0;
    for (int64_t page = c->pages - 1; page >= 0; page--)
        if (c->refs[page] == MHA__PAGE_FREE) c->free_pages[c->free_count++] = (int32_t)page;
    return MHA_OK;
}

mha_status mha_cache_load(mha_cache *c, const mha_named_tensor *tensors, int count, mha_error *err)
{
    const mha_named_tensor *t[MHA_CACHE_TENSORS];
    mha_cache *new;
    if (!c) return mha__fail(err, MHA_ERR_ARG, "cache must not be NULL");
    if (!tensors || count < 0)
        return mha__fail(err, MHA_ERR_ARG, "tensors must not be NULL and count must be at least 0 (got %d)", count);
    MHA__TRY(find_all(c, tensors, count, t, err));
    MHA__TRY(mha_cache_create(c->ctx, &c->desc, &new, err));
    const mha_status status = load(new, t, err);
    if (status == MHA_OK) {
        const mha_cache old = *c;
        *c = *new;
        *new = old;
    }
    mha_cache_free(new);
    return status;
}
