/* kv_cache_append.c - appends tokens to a KV cache. All arguments are checked first, then all pages are counted and
 * reserved, and only then is the cache modified. Pages before the window are released before new pages are taken, so a
 * windowed cache uses constant memory while its sequence grows. */
#include "attn/cache/kv_cache.h"
#include "attn/plan/operand.h"
#include "attn/plan/plan.h"
#include "attn/plan/rotary.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* A checked append to sequences [first, end), with all strides set. */
typedef struct addition {
    int64_t first, end;
    mha_cache_tokens tokens;
    mha_attn_rope rope; /* with all defaults set; only if tokens.rope is not NULL */
} addition;

static int64_t count_of(const addition *a, int64_t sequence)
{
    return a->tokens.counts ? a->tokens.counts[sequence - a->first] : a->tokens.count;
}

static mha__cache_rows keys_of(const mha_cache *c, const addition *a)
{
    return (mha__cache_rows){&a->tokens.k, a->tokens.dtype, c->desc.head_dim, a->tokens.rope ? &a->rope : NULL};
}

static mha__cache_rows values_of(const mha_cache *c, const addition *a)
{
    return (mha__cache_rows){&a->tokens.v, a->tokens.dtype, c->desc.v_head_dim, NULL};
}

static mha_status bind_view(const mha_cache *c, const char *name, const addition *a, int64_t width, mha_cview *view,
                            mha_error *err)
{
    const int64_t shape[4] = {a->end - a->first, c->desc.kv_heads, a->tokens.count, width};
    return mha__bind_input(name, view, shape, mha_dtype_size(a->tokens.dtype), err);
}

/* Checks the rotary embedding of new keys and their positions. Values that are part of the keys must not be rotated. */
static mha_status bind_rope(const mha_cache *c, addition *a, mha_error *err)
{
    const size_t size = a->tokens.dtype == MHA_F64 ? sizeof(double) : sizeof(float);
    const int64_t shape[4] = {a->end - a->first, a->tokens.count, 1, 1};
    if (!a->tokens.rope) return MHA_OK;
    MHA__TRY(mha__rope_resolve(a->tokens.rope, c->desc.head_dim, size, &a->rope, err));
    if (c->desc.v_from_k && a->rope.first < c->desc.v_head_dim)
        return mha__fail(err, MHA_ERR_ARG,
                         "rope.first must be at least v_head_dim = %" PRId64 " with v_from_k (got %" PRId64 ")",
                         c->desc.v_head_dim, a->rope.first);
    mha_cview *at = &a->rope.k_positions;
    if (at->data) MHA__TRY(mha__bind_input("rope.k_positions", at, shape, sizeof(int64_t), err));
    for (int64_t b = a->first; b < a->end; b++)
        for (int64_t t = 0; t < count_of(a, b); t++) {
            const int64_t p = mha__cache_position(&a->rope, b - a->first, t, c->lengths[b] + t);
            if (p < 0 || p >= a->rope.positions)
                return mha__rope_position_error(&a->rope, "k_positions", at->data, "token", t, b, p, err);
        }
    return MHA_OK;
}

/* Checks the elements of new tokens as they will be stored. Only conversions from f32 to blocks restrict their
 * values. */
static mha_status check_values(const mha_cache *c, const char *name, const addition *a, const mha__cache_rows *rows,
                               mha_error *err)
{
    const float end = mha__cache_end(c->desc.dtype);
    float row[MHA_HEAD_DIM_MAX];
    for (int64_t b = a->first; b < a->end && isfinite(end); b++)
        for (int64_t g = 0; g < c->desc.kv_heads; g++)
            for (int64_t t = 0; t < count_of(a, b); t++) {
                mha__cache_load(rows, b - a->first, g, t, c->lengths[b] + t, row);
                for (int64_t i = 0; i < rows->width; i++)
                    if (isfinite(row[i]) && fabsf(row[i]) >= end)
                        return mha__fail(err, MHA_ERR_ARG,
                                         "%s[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                                         "] must be below %g in magnitude in %s%s (got %g)",
                                         name, b - a->first, g, t, i, (double)end, mha_dtype_name(c->desc.dtype),
                                         rows->rope ? " after the rotation" : "", (double)row[i]);
            }
    return MHA_OK;
}

static mha_status check_counts(const mha_cache *c, const addition *a, mha_error *err)
{
    for (int64_t b = a->first; b < a->end; b++) {
        const int64_t count = count_of(a, b);
        if (count < 0 || count > a->tokens.count)
            return mha__fail(err, MHA_ERR_ARG, "counts[%" PRId64 "] must be from 0 to %" PRId64 " (got %" PRId64 ")",
                             b - a->first, a->tokens.count, count);
        MHA__TRY(mha__cache_check_growth(c, b, count, err));
    }
    return MHA_OK;
}

static mha_status resolve_addition(const mha_cache *c, int64_t sequence, const mha_cache_tokens *tokens, addition *a,
                                   mha_error *err)
{
    MHA__TRY(mha__cache_range(c, sequence, &a->first, &a->end, err));
    MHA__TRY(mha__options_need(&a->tokens, sizeof a->tokens, tokens, "mha_cache_tokens", err));
    if (a->tokens.dtype == MHA_DTYPE_DEFAULT) a->tokens.dtype = mha__cache_source(c->desc.dtype);
    if (!mha__cache_converts(a->tokens.dtype, c->desc.dtype))
        return mha__fail(err, MHA_ERR_ARG, "tokens.dtype must be convertible to the %s of the cache (got %s)",
                         mha_dtype_name(c->desc.dtype), mha_dtype_name(a->tokens.dtype));
    const int64_t shape[] = {a->end - a->first, c->desc.kv_heads, a->tokens.count,
                             mha__max64(c->desc.head_dim, c->desc.v_head_dim)};
    size_t bytes;
    if (a->tokens.count < 0 || !mha__bytes(shape, 4, sizeof(double), &bytes) || bytes > PTRDIFF_MAX)
        return mha__fail(err, MHA_ERR_ARG,
                         "tokens.count must be at least 0, and the keys must fit the address space (got %" PRId64 ")",
                         a->tokens.count);
    MHA__TRY(check_counts(c, a, err));
    MHA__TRY(bind_view(c, "k", a, c->desc.head_dim, &a->tokens.k, err));
    MHA__TRY(bind_rope(c, a, err));
    const mha__cache_rows keys = keys_of(c, a), values = values_of(c, a);
    MHA__TRY(check_values(c, "k", a, &keys, err));
    if (c->desc.v_from_k) return MHA_OK;
    MHA__TRY(bind_view(c, "v", a, c->desc.v_head_dim, &a->tokens.v, err));
    return check_values(c, "v", a, &values, err);
}

/* Returns the end of the range of logical pages, starting at `dropped`, that no new row attends to. */
static int64_t droppable(const mha_cache *c, int64_t sequence)
{
    const mha__sequence *s = &c->sequences[sequence];
    return mha__max64(s->dropped, mha__cache_first_seen(c, c->lengths[sequence]) / c->desc.page_size);
}

/* Releases the pages of a sequence that leave its window. Returns the number of pages that become free. */
static int64_t release_dropped(mha_cache *c, int64_t sequence)
{
    int64_t freed = 0;
    for (int64_t page = c->sequences[sequence].dropped; page < droppable(c, sequence); page++)
        freed += --c->refs[*mha__cache_entry(c, sequence, page)] == 0;
    return freed;
}

/* Marks the last page of a sequence for copying if other sequences share it. Returns the number of new pages that the
 * append requires.
 */
static int64_t release_shared(mha_cache *c, int64_t sequence, int64_t count)
{
    mha__sequence *s = &c->sequences[sequence];
    const int64_t length = c->lengths[sequence];
    const int64_t need = mha__cache_pages_of(c, length + count) - mha__cache_pages_of(c, length);
    s->copies = false;
    if (length % c->desc.page_size == 0) return need;
    int64_t *refs = &c->refs[*mha__cache_entry(c, sequence, length / c->desc.page_size)];
    s->copies = *refs > 1;
    *refs -= s->copies;
    return need + s->copies;
}

static void restore_counts(mha_cache *c, int64_t sequence, int64_t count)
{
    mha__sequence *s = &c->sequences[sequence];
    if (count == 0) return;
    for (int64_t page = s->dropped; page < droppable(c, sequence); page++)
        c->refs[*mha__cache_entry(c, sequence, page)]++;
    if (s->copies) c->refs[*mha__cache_entry(c, sequence, c->lengths[sequence] / c->desc.page_size)]++;
}

static void drop_pages(mha_cache *c, int64_t sequence)
{
    mha__sequence *s = &c->sequences[sequence];
    for (const int64_t end = droppable(c, sequence); s->dropped < end; s->dropped++) {
        int32_t *entry = mha__cache_entry(c, sequence, s->dropped);
        mha__cache_recycle(c, *entry);
        *entry = MHA__PAGE_NONE;
    }
}

static void take_pages(mha_cache *c, int64_t sequence, int64_t count)
{
    const int64_t length = c->lengths[sequence];
    const int64_t held = mha__cache_pages_of(c, length), end = mha__cache_pages_of(c, length + count);
    if (c->sequences[sequence].copies) {
        int32_t *entry = mha__cache_entry(c, sequence, held - 1);
        const int32_t shared = *entry, own = mha__cache_page_acquire(c);
        memcpy(c->k + (size_t)own * c->k_bytes, c->k + (size_t)shared * c->k_bytes, c->k_bytes);
        if (c->v) memcpy(c->v + (size_t)own * c->v_bytes, c->v + (size_t)shared * c->v_bytes, c->v_bytes);
        *entry = own;
    }
    for (int64_t page = held; page < end; page++)
        *mha__cache_entry(c, sequence, page) = mha__cache_page_acquire(c);
}

/* Reserves the pages of an append. The dropped pages of all sequences are counted before shared last pages. A page
 * that must be copied then keeps a reference, so that it is not reused before the copy. */
static mha_status reserve(mha_cache *c, const addition *a, mha_error *err)
{
    int64_t need = 0, freed = 0, width = 0;
    for (int64_t b = a->first; b < a->end; b++)
        if (count_of(a, b) > 0) freed += release_dropped(c, b);
    for (int64_t b = a->first; b < a->end; b++) {
        const int64_t count = count_of(a, b);
        if (count > 0) need += release_shared(c, b, count);
        width = mha__max64(width, mha__cache_pages_of(c, c->lengths[b] + count));
    }
    const mha_status status = mha__cache_reserve(c, need, freed, width, err);
    for (int64_t b = a->first; b < a->end && status != MHA_OK; b++)
        restore_counts(c, b, count_of(a, b));
    return status;
}

/* Returns an upper bound of the pages that `count` more tokens of a sequence require, including a copy of a shared last
 * page. */
static int64_t max_pages(const mha_cache *c, int64_t sequence, int64_t count)
{
    const int64_t length = c->lengths[sequence], size = c->desc.page_size;
    const bool shared = length % size != 0 && c->refs[*mha__cache_entry(c, sequence, length / size)] > 1;
    return mha__cache_pages_of(c, length + count) - mha__cache_pages_of(c, length) + shared;
}

mha_status mha__cache_reserve_tokens(mha_cache *c, int64_t sequence, int64_t count, mha_error *err)
{
    int64_t first = 0, end = 0, need = 0, width = 0;
    MHA__TRY(mha__cache_range(c, sequence, &first, &end, err));
    if (c->desc.capacity > 0) return MHA_OK;
    for (int64_t b = first; b < end; b++) {
        MHA__TRY(mha__cache_check_growth(c, b, count, err));
        need += max_pages(c, b, count);
        width = mha__max64(width, mha__cache_pages_of(c, c->lengths[b] + count));
    }
    return mha__cache_reserve(c, need, 0, width, err);
}

static void write_tokens(mha_cache *c, const addition *a, int64_t sequence)
{
    const int64_t count = count_of(a, sequence), n = sequence - a->first, length = c->lengths[sequence];
    const mha__cache_rows keys = keys_of(c, a), values = values_of(c, a);
    mha__cache_write(c, sequence, length, count, &keys, n, c->k);
    if (c->v) mha__cache_write(c, sequence, length, count, &values, n, c->v);
    c->lengths[sequence] += count;
}

/* Appends tokens. Each step covers all sequences before the next step begins, so a page is copied before its last
 * owner writes to it. */
mha_status mha_cache_append(mha_cache *c, int64_t sequence, const mha_cache_tokens *tokens, mha_error *err)
{
    addition a;
    MHA__TRY(resolve_addition(c, sequence, tokens, &a, err));
    MHA__TRY(reserve(c, &a, err));
    for (int64_t b = a.first; b < a.end; b++)
        if (count_of(&a, b) > 0) drop_pages(c, b);
    for (int64_t b = a.first; b < a.end; b++)
        if (count_of(&a, b) > 0) take_pages(c, b, count_of(&a, b));
    for (int64_t b = a.first; b < a.end; b++)
        if (count_of(&a, b) > 0) write_tokens(c, &a, b);
    return MHA_OK;
}
