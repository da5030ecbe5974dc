/* mask.c - see mask.h. All masks compose by AND: the intervals are intersected, and what keep and bias exclude
 * becomes -inf. */
#include "attn/mask.h"

#include "attn/pages.h"
#include "base/size.h"

/* Offsets and windows come as any int64; positions beyond this are as good as infinite, and sums of a few stay in
 * range. */
static const int64_t FAR = INT64_C(1) << 60;

static int64_t near(int64_t x)
{
    return mha__max64(-FAR, mha__min64(FAR, x));
}

static int64_t queries_of(const mha__call *call, int64_t b)
{
    return call->args.q_lens ? call->args.q_lens[b] : call->plan->desc.q_len;
}

static int64_t keys_of(const mha__call *call, int64_t b)
{
    return call->args.kv_lens ? call->args.kv_lens[b] : call->plan->desc.kv_len;
}

int64_t mha__mask_offset(const mha__call *call, int64_t b)
{
    if (!call->plan->positional) return 0;
    switch (call->plan->desc.align) {
    case MHA_ALIGN_BOTTOM_RIGHT:
        return keys_of(call, b) - queries_of(call, b);
    case MHA_ALIGN_OFFSETS:
        return near(call->args.offsets[b]);
    default:
        return 0;
    }
}

void mha__mask_intervals(const mha__call *call, int64_t b, int64_t first, int64_t count, int64_t *lo, int64_t *hi)
{
    const mha_attn_desc *d = &call->plan->desc;
    const int64_t queries = queries_of(call, b), offset = mha__mask_offset(call, b);
    const int64_t end = mha__min64(keys_of(call, b), d->keep_keys);
    for (int64_t r = 0; r < count; r++) {
        const int64_t position = first + r + offset;
        lo[r] = d->window.left >= 0 ? mha__max64(0, position - near(d->window.left)) : 0;
        hi[r] = d->window.right >= 0 ? mha__min64(end, position + near(d->window.right) + 1) : end;
        if (d->causal) hi[r] = mha__min64(hi[r], position + 1);
        if (first + r >= queries || lo[r] >= hi[r]) lo[r] = hi[r] = 0;
    }
}

mha__span mha__mask_span(const mha__rows *rows)
{
    mha__span s = {INT64_MAX, 0, 0, INT64_MAX};
    for (int64_t r = 0; r < rows->count; r++) {
        s.common_lo = mha__max64(s.common_lo, rows->lo[r]);
        s.common_hi = mha__min64(s.common_hi, rows->hi[r]);
        if (rows->lo[r] == rows->hi[r]) continue;
        s.lo = mha__min64(s.lo, rows->lo[r]);
        s.hi = mha__max64(s.hi, rows->hi[r]);
    }
    if (s.lo > s.hi) s.lo = s.hi;
    return s;
}

bool mha__mask_apply(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, const mha__span *span,
                     int64_t first, int64_t end, void *s)
{
    const mha__kernels *k = call->plan->kernels;
    const mha_attn_desc *d = &call->plan->desc;
    const mha_attn_args *a = &call->args;
    const int64_t keys = end - first, lanes = rows->count;
    bool changed = false;
    if (d->inputs & MHA_ATTN_SLOPES) {
        const float *slope = mha__at(&a->slopes, sizeof *slope, rows->b, rows->h, 0, 0);
        const int64_t block = first - first % MHA__KEY_BLOCK;
        k->alibi(keys, lanes, (double)*slope, rows->position - block, first - block, s);
        changed = true;
    }
    if (d->inputs & MHA_ATTN_BIAS) {
        const void *bias = mha__at(&a->bias, k->real_size, rows->b, rows->h, rows->first, first);
        k->pack_rows(lanes, keys, bias, a->bias.stride[2], a->bias.stride[3], scratch->extra);
        k->bias(keys, lanes, scratch->extra, s);
        changed = true;
    }
    if (d->inputs & MHA_ATTN_KEEP) {
        const void *keep = mha__at(&a->keep, 1, rows->b, rows->h, rows->first, first);
        k->pack_keep(lanes, keys, keep, a->keep.stride[2], a->keep.stride[3], scratch->extra);
        k->bias(keys, lanes, scratch->extra, s);
        changed = true;
    }
    if (first < span->common_lo || end > span->common_hi) {
        k->interval(keys, lanes, first, rows->lo, rows->hi, s);
        changed = true;
    }
    return mha__pages_mask(call, rows->b, first, end, lanes, s) || changed;
}
