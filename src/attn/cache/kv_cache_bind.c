/* kv_cache_bind.c - sets the description and the arguments with which the operator reads a KV cache. */
#include "attn/cache/kv_cache.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "math/types/element.h"
#include <inttypes.h>

/* Sets the window of the call. The caller's window may be narrower than the cache's window, because the cache then
 * contains all required keys. */
static mha_status bind_window(const mha_cache *c, mha_attn_desc *desc, mha_error *err)
{
    const int64_t left = c->desc.window - 1;
    if (c->desc.window == 0) return MHA_OK;
    if (!desc->window.on) desc->window = (mha_window){1, left, -1};
    if (desc->window.left >= 0 && desc->window.left <= left) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG,
                     "window.left must be from 0 to %" PRId64 ", the limit of the cache's window (got %" PRId64 ")",
                     left, desc->window.left);
}

/* Checks that the cache contains all keys that the last `rows` rows of a sequence attend to. */
static mha_status check_sequence(const mha_cache *c, int64_t b, int64_t rows, mha_error *err)
{
    const mha_cache_desc *d = &c->desc;
    const int64_t length = c->lengths[b], past = length - rows;
    if (rows == 0 || length == 0) return MHA_OK;
    if (past < 0)
        return mha__fail(err, MHA_ERR_ARG,
                         "rows of sequence %" PRId64 " must be at most its %" PRId64 " tokens (got %" PRId64 ")", b,
                         length, rows);
    if (past < d->keep_first && rows > d->window)
        return mha__fail(err, MHA_ERR_ARG,
                         "rows of sequence %" PRId64 " from position %" PRId64 " must be at most window = %" PRId64
                         " while the sequence has fewer than keep_first = %" PRId64 " tokens (got %" PRId64 ")",
                         b, past, d->window, d->keep_first, rows);
    return mha__cache_check_seen(c, b, past, err);
}

/* Returns the number of rows of entry n of the call, from q_lens, packed queries, or q_len. */
static int64_t rows_of(const mha_attn_desc *desc, const int64_t *q_lens, const int64_t *cu, int64_t n)
{
    return q_lens ? q_lens[n] : cu ? cu[n + 1] - cu[n] : desc->q_len;
}

/* Checks the rows of a call in which sequences [first, end) of the cache become entries 0, 1, ... */
static mha_status check_rows(const mha_cache *c, int64_t first, int64_t end, const mha_attn_desc *desc,
                             const int64_t *q_lens, const int64_t *cu, mha_error *err)
{
    for (int64_t n = 0; n < end - first; n++) {
        if (cu && (cu[n] < 0 || cu[n + 1] < cu[n]))
            return mha__fail(err, MHA_ERR_ARG,
                             "args.cu_seqlens_q[%" PRId64 "] must be from 0 to the next entry (got %" PRId64
                             ", next %" PRId64 ")",
                             n, cu[n], cu[n + 1]);
        const int64_t rows = rows_of(desc, q_lens, cu, n);
        if (rows < 0 || rows > desc->q_len)
            return mha__fail(err, MHA_ERR_ARG,
                             "q_lens[%" PRId64 "] must be from 0 to q_len = %" PRId64 " (got %" PRId64 ")", n,
                             desc->q_len, rows);
        MHA__TRY(check_sequence(c, first + n, rows, err));
    }
    return MHA_OK;
}

/* Writes the arrays that args will point to. Earlier bound calls may still read these arrays, so they are written only
 * after every check has passed. Returns the maximum length. A sequence without tokens gets length 0, so its rows attend
 * to no key. */
static int64_t view_rows(const mha_cache *c, int64_t first, int64_t end, const mha_attn_desc *desc,
                         const int64_t *q_lens, const int64_t *cu)
{
    int64_t *lengths = c->view, *offsets = lengths + c->desc.batch, *prefixes = offsets + c->desc.batch, longest = 0;
    for (int64_t b = first; b < end; b++) {
        const int64_t past = c->lengths[b] - rows_of(desc, q_lens, cu, b - first);
        lengths[b] = c->lengths[b];
        offsets[b] = mha__max64(0, past);
        prefixes[b] = mha__max64(0, mha__min64(c->desc.keep_first, past));
        longest = mha__max64(longest, lengths[b]);
    }
    return longest;
}

static void describe(const mha_cache *c, int64_t sequences, int64_t longest, mha_attn_desc *desc)
{
    const mha_cache_desc *d = &c->desc;
    desc->batch = sequences;
    desc->kv_heads = d->kv_heads;
    desc->head_dim = d->head_dim;
    desc->v_head_dim = d->v_head_dim;
    desc->kv_dtype = d->dtype;
    desc->kv_len = mha__max64(desc->kv_len, longest);
    desc->align = MHA_ALIGN_OFFSETS;
    desc->page_size = d->page_size;
    desc->pages = c->pages;
    desc->inputs |= MHA_ATTN_BLOCK_TABLE | MHA_ATTN_KV_LENS | (d->keep_first > 0 ? MHA_ATTN_PREFIX_LENS : 0);
}

/* Returns a view of the first v_head_dim elements of each key. Strides count stored elements, which are blocks in
 * q8_0 and q4_0. */
static mha_cview values_in_keys(const mha_cache *c)
{
    const mha_cache_desc *d = &c->desc;
    const int64_t row = mha__element_count(d->dtype, d->head_dim), head = d->page_size * row;
    return (mha_cview){c->k, {d->kv_heads * head, head, row, 1}};
}

static void fill(mha_cache *c, int64_t first, const int64_t *q_lens, mha_attn_args *args)
{
    const mha_cache_desc *d = &c->desc;
    int64_t *lengths = c->view + first, *offsets = lengths + d->batch, *prefixes = offsets + d->batch;
    args->k = (mha_cview){c->k, {0}};
    args->v = d->v_from_k ? values_in_keys(c) : (mha_cview){c->v, {0}};
    args->block_table = (mha_cview){c->table ? mha__cache_entry(c, first, 0) : NULL, {c->width, 1, 0, 0}};
    args->kv_lens = lengths;
    args->offsets = offsets;
    args->prefix_lens = d->keep_first > 0 ? prefixes : args->prefix_lens;
    args->q_lens = q_lens;
}

/* Binds the cache to a call. Both structs belong to the caller and may come from an older header, so copies are
 * modified and written back at the end. */
mha_status mha_cache_bind(mha_cache *c, int64_t sequence, const int64_t *q_lens, mha_attn_desc *desc,
                          mha_attn_args *args, mha_error *err)
{
    mha_attn_desc d;
    mha_attn_args a;
    int64_t first = 0, end = 0;
    MHA__TRY(mha__cache_range(c, sequence, &first, &end, err));
    MHA__TRY(mha__options_need(&d, sizeof d, desc, "mha_attn_desc", err));
    MHA__TRY(mha__options_need(&a, sizeof a, args, "mha_attn_args", err));
    if (d.q_len < 0) return mha__fail(err, MHA_ERR_ARG, "q_len must be at least 0 (got %" PRId64 ")", d.q_len);
    const int64_t *cu = d.inputs & MHA_ATTN_CU_SEQLENS ? a.cu_seqlens_q : NULL;
    if ((d.inputs & MHA_ATTN_CU_SEQLENS) && !cu)
        return mha__fail(err, MHA_ERR_ARG, "cu_seqlens_q must not be NULL with MHA_ATTN_CU_SEQLENS");
    MHA__TRY(check_rows(c, first, end, &d, q_lens, cu, err));
    MHA__TRY(bind_window(c, &d, err));
    describe(c, end - first, view_rows(c, first, end, &d, q_lens, cu), &d);
    d.inputs = q_lens ? d.inputs | MHA_ATTN_Q_LENS : d.inputs & ~(uint32_t)MHA_ATTN_Q_LENS;
    fill(c, first, q_lens, &a);
    mha__options_write(desc, &d, sizeof d);
    mha__options_write(args, &a, sizeof a);
    return MHA_OK;
}

mha_status mha_cache_describe(const mha_cache *c, int64_t sequence, int64_t count, mha_attn_desc *desc, mha_error *err)
{
    mha_attn_desc d;
    int64_t first = 0, end = 0, longest = 0;
    MHA__TRY(mha__cache_range(c, sequence, &first, &end, err));
    MHA__TRY(mha__options_need(&d, sizeof d, desc, "mha_attn_desc", err));
    if (count < 0) return mha__fail(err, MHA_ERR_ARG, "count must be at least 0 (got %" PRId64 ")", count);
    for (int64_t b = first; b < end; b++) {
        MHA__TRY(mha__cache_check_growth(c, b, count, err));
        longest = mha__max64(longest, c->lengths[b] + count);
    }
    MHA__TRY(bind_window(c, &d, err));
    describe(c, end - first, longest, &d);
    mha__options_write(desc, &d, sizeof d);
    return MHA_OK;
}
