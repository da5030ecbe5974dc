/* mask.c - computes the keys that each row attends to, and masks scores. Masks combine by AND: intervals are
 * intersected, and keys that keep or bias exclude become -infinity. */
#include "attn/mask/mask.h"

#include "attn/mask/block_mask.h"
#include "attn/mask/user_functions.h"
#include "attn/plan/kv_fetch.h"
#include "attn/plan/operand_table.h"
#include "base/size.h"
#include <math.h>
#include <string.h>

int64_t mha__mask_offset(const mha__call *call, int64_t b)
{
    const bool used = call->plan->positional || (call->plan->desc.outputs & (MHA_ATTN_STATS | MHA_ATTN_ROWS));
    return used ? mha__offset_of(call, b) : 0;
}

/* Returns true if all existing rows attend to the same keys. */
static bool is_plain(const mha__call *call)
{
    return !call->plan->positional && !call->args.prefix_lens;
}

void mha__mask_intervals(const mha__call *call, int64_t b, int64_t first, int64_t count, int64_t *lo, int64_t *hi,
                         int64_t *prefix)
{
    const mha_attn_desc *d = &call->plan->desc;
    const int64_t queries = mha__mask_queries(call, b), offset = mha__mask_offset(call, b);
    const int64_t end = mha__min64(mha__mask_keys(call, b), d->keep_keys);
    const int64_t prefix_len = call->args.prefix_lens ? call->args.prefix_lens[b] - d->shard.key : 0;
    const int64_t ahead = mha__max64(0, mha__min64(end, prefix_len));
    if (is_plain(call)) {
        for (int64_t r = 0; r < count; r++) {
            lo[r] = prefix[r] = 0;
            hi[r] = mha__query_of(call->plan, first + r) < queries ? end : 0;
        }
        return;
    }
    for (int64_t r = 0; r < count; r++) {
        const int64_t query = mha__query_of(call->plan, first + r), position = query + offset;
        const bool exists = query < queries;
        lo[r] = d->window.left >= 0 ? mha__max64(0, position - mha__clamp_position(d->window.left)) : 0;
        hi[r] = d->window.right >= 0 ? mha__min64(end, position + mha__clamp_position(d->window.right) + 1) : end;
        if (d->causal) hi[r] = mha__min64(hi[r], position + 1);
        if (!exists || lo[r] >= hi[r]) lo[r] = hi[r] = 0;
        prefix[r] = exists ? ahead : 0;
        if (lo[r] > prefix[r] || prefix[r] == 0) continue;
        lo[r] = 0;
        hi[r] = mha__max64(hi[r], prefix[r]);
    }
}

mha__span mha__mask_tile(const mha__call *call, const mha__rows *rows)
{
    const int64_t last = rows->count - 1;
    const bool same = is_plain(call) && rows->hi[last] == rows->hi[0];
    return same ? (mha__span){.hi = rows->hi[0], .common_hi = rows->hi[0]} : mha__mask_span(rows);
}

bool mha__mask_shared(const mha__call *call, const mha__rows *rows, mha__span *span)
{
    const bool shorter = call->plan->folded || rows->first + rows->count > mha__mask_queries(call, rows->b);
    if (!is_plain(call) || shorter) return false;
    const int64_t end = mha__min64(mha__mask_keys(call, rows->b), call->plan->desc.keep_keys);
    *span = (mha__span){.hi = end, .common_hi = end};
    return true;
}

mha__span mha__mask_span(const mha__rows *rows)
{
    mha__span s = {.lo = INT64_MAX, .common_hi = INT64_MAX};
    for (int64_t r = 0; r < rows->count; r++) {
        s.common_lo = mha__max64(s.common_lo, rows->lo[r]);
        s.common_hi = mha__min64(s.common_hi, rows->hi[r]);
        s.prefix = mha__max64(s.prefix, rows->prefix[r]);
        if (rows->lo[r] == rows->hi[r]) continue;
        s.lo = mha__min64(s.lo, rows->lo[r]);
        s.hi = mha__max64(s.hi, rows->hi[r]);
    }
    if (s.lo > s.hi) s.lo = s.hi;
    s.band = s.lo;
    if (s.prefix > 0) s.lo = 0;
    return s;
}

bool mha__mask_block(const mha__call *call, const mha__rows *rows, const mha__span *span, int64_t start, int64_t *first,
                     int64_t *end)
{
    *first = mha__max64(start, span->lo);
    *end = mha__min64(start + MHA__KEY_BLOCK, span->hi);
    if (*first >= span->prefix) *first = mha__max64(*first, span->band);
    if (*end <= span->band) *end = mha__min64(*end, span->prefix);
    if (call->plan->desc.inputs & MHA_ATTN_BLOCK_KEEP) mha__blocks_narrow(call, rows, first, end);
    return *first < *end && !(call->functions.block && mha__functions_skip(call, rows, *first, *end));
}

/* Sets entries outside the intervals to -infinity. Keys of the prefix are masked only for rows that do not exist; after
 * the prefix, keys that every row attends to are skipped. */
static bool apply_intervals(const mha__call *call, const mha__rows *rows, const mha__span *span, int64_t first,
                            int64_t end, void *s)
{
    static const int64_t none[MHA__TILE_Q];
    const mha__kernels *k = call->plan->kernels;
    if (span->common_lo <= first && end <= span->common_hi) return false;
    int64_t cut = mha__max64(first, mha__min64(end, span->prefix));
    if (cut > first) k->interval(cut - first, rows->count, first, none, rows->prefix, s);
    if (span->common_lo <= cut) cut = mha__max64(cut, mha__min64(end, span->common_hi));
    char *rest = (char *)s + (size_t)((cut - first) * k->nr) * k->real_size;
    if (cut < end) k->interval(end - cut, rows->count, cut, rows->lo, rows->hi, rest);
    return true;
}

/* Returns true if only inputs in `allowed` change scores or mask single keys. */
static bool is_scored_by(const mha__call *call, uint32_t allowed)
{
    return !call->plan->scored || !(call->plan->desc.inputs & mha__inputs_with(MHA__ON_SCORES) & ~allowed);
}

bool mha__mask_is_open(const mha__call *call, const mha__rows *rows, const mha__span *span, int64_t first, int64_t end)
{
    if (!(span->common_lo <= first && end <= span->common_hi)) return false;
    if (!call->plan->scored) return true;
    return is_scored_by(call, MHA_ATTN_BLOCK_KEEP) && mha__blocks_all_kept(call, rows, first, end);
}

bool mha__mask_is_pure(const mha__call *call)
{
    return is_scored_by(call, MHA_ATTN_KEEP | MHA_ATTN_BLOCK_KEEP);
}

static void mask_keys(int64_t first, int64_t end, float *row)
{
    for (int64_t key = first; key < end; key++)
        row[key] = -INFINITY;
}

/* Without branches, because they would often be mispredicted. */
static void mask_unkept(const uint8_t *keep, int64_t step, int64_t keys, float *row)
{
    for (int64_t key = 0; step == 1 && key < keys; key++)
        row[key] = keep[key] ? row[key] : -INFINITY;
    for (int64_t key = 0; step != 1 && key < keys; key++)
        row[key] = keep[key * step] ? row[key] : -INFINITY;
}

/* Masks a row of a strip that begins with key `first`. */
static void mask_row(const mha__call *call, const mha__rows *rows, int64_t r, int64_t first, int64_t end, float *row)
{
    const mha_attn_desc *d = &call->plan->desc;
    const int64_t hidden = mha__max64(first, rows->prefix[r]); /* the prefix is visible despite the interval */
    mask_keys(hidden - first, mha__min64(end, rows->lo[r]) - first, row);
    mask_keys(mha__max64(hidden, rows->hi[r]) - first, end - first, row);
    if (d->inputs & MHA_ATTN_KEEP)
        mask_unkept(mha__at(&call->args.keep, 1, rows->b, rows->h, rows->first + r, first), call->args.keep.stride[3],
                    end - first, row);
    if (d->inputs & MHA_ATTN_BLOCK_KEEP)
        for (int64_t key = first, last; key < end; key = last)
            if (!mha__blocks_key_kept(call, rows, r, key, &last))
                mask_keys(key - first, mha__min64(last, end) - first, row);
}

void mha__mask_strip(const mha__call *call, const mha__rows *rows, int64_t first, int64_t end, float *strip)
{
    for (int64_t r = 0; r < rows->count; r++)
        mask_row(call, rows, r, first, end, strip + r * MHA__STRIP);
}

/* ---- steps of mha__mask_apply: change the panel s of the scores of keys [first, end) ---- */

static void add_alibi(const mha__call *call, const mha__rows *rows, int64_t first, int64_t end, void *s)
{
    const double slope = mha__per_head(call, &call->args.slopes, rows->b, rows->h);
    const int64_t block = first - first % MHA__KEY_BLOCK;
    call->plan->kernels->alibi(end - first, rows->count, slope, rows->position - block, first - block, s);
}

static void add_bias(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t first,
                     int64_t end, void *s)
{
    const mha__kernels *k = call->plan->kernels;
    const mha__stored *as = &call->plan->bias;
    const mha_cview *view = &call->args.bias;
    const int64_t keys = end - first, lanes = rows->count;
    const void *bias = mha__at(view, as->size, rows->b, rows->h, rows->first, first);
    int64_t row = view->stride[2], col = view->stride[3];
    if (as->widen) {
        as->widen(lanes, keys, bias, row, col, scratch->bias, keys);
        bias = scratch->bias, row = keys, col = 1;
    }
    k->pack_rows(lanes, keys, bias, row, col, scratch->extra);
    k->bias(keys, lanes, scratch->extra, s);
}

static void apply_keep(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t first,
                       int64_t end, void *s)
{
    const mha__kernels *k = call->plan->kernels;
    const mha_cview *view = &call->args.keep;
    const int64_t keys = end - first, lanes = rows->count;
    const void *keep = mha__at(view, 1, rows->b, rows->h, rows->first, first);
    k->pack_keep(lanes, keys, keep, view->stride[2], view->stride[3], scratch->extra);
    k->bias(keys, lanes, scratch->extra, s);
}

bool mha__mask_apply(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, const mha__span *span,
                     int64_t first, int64_t end, void *s)
{
    const uint32_t inputs = call->plan->desc.inputs;
    bool changed = call->functions.score || (inputs & (MHA_ATTN_SLOPES | MHA_ATTN_BIAS | MHA_ATTN_KEEP));
    if (call->functions.score) mha__functions_score(call, scratch, rows, first, end, s);
    if (inputs & MHA_ATTN_SLOPES) add_alibi(call, rows, first, end, s);
    if (inputs & MHA_ATTN_BIAS) add_bias(call, scratch, rows, first, end, s);
    if (inputs & MHA_ATTN_KEEP) apply_keep(call, scratch, rows, first, end, s);
    if (inputs & MHA_ATTN_BLOCK_KEEP) changed |= mha__blocks_apply(call, scratch, rows, first, end, s);
    if (call->functions.keep) changed |= mha__functions_keep(call, scratch, rows, first, end, s);
    changed |= apply_intervals(call, rows, span, first, end, s);
    return mha__pages_mask(call, rows->b, first, end, rows->count, s) || changed;
}

void mha__mask_only(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, const mha__span *span,
                    int64_t first, int64_t end, const void *s, void *mask)
{
    const mha__kernels *k = call->plan->kernels;
    const size_t bytes = (size_t)((end - first) * k->nr) * k->real_size;
    if (call->functions.score) {
        memmove(mask, s, bytes); /* they may be the same panel */
        return;
    }
    memset(mask, 0, bytes);
    mha__mask_apply(call, scratch, rows, span, first, end, mask);
}
