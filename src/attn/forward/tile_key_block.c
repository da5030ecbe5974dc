/* tile_key_block.c - computes one block of keys for a tile of queries: locates K and V, computes scores and P V. */
#include "attn/forward/query_tile.h"
#include <string.h>

bool mha__block_products(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t first, int64_t end,
                         bool cap, void *s, mha__prefetch_schedule *prefetch)
{
    const mha_attn_desc *d = &t->plan->desc;
    const int64_t keys = end - first, lanes = p->rows.count;
    const mha__run *k = &b->k;
    const bool decode = mha__tile_is_decode(t);
    const size_t size = t->pairs ? t->plan->kv.size : t->k->real_size;
    const void *from = (const char *)k->data + (first - b->start) * k->row * (int64_t)size;
    if (decode)
        mha__decode_products(t, p, first, end, s);
    else if (t->pairs)
        t->pairs->scores(keys, d->head_dim, from, k->row, p->q, lanes, t->raw ? 1 : d->scale, s, t->scratch.top,
                         prefetch);
    else
        t->k->scores(keys, d->head_dim, from, k->row, k->col, p->q, lanes, d->scale, s, t->scratch.top, prefetch);
    if (cap && d->softcap != 0) t->k->softcap(keys, lanes, d->softcap, s);
    return !decode && !(cap && d->softcap != 0);
}

void mha__block_scores(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t first, int64_t end,
                       void *s, mha__prefetch_schedule *prefetch)
{
    const bool holds = mha__block_products(t, p, b, first, end, true, s, prefetch);
    if (mha__mask_apply(t->call, &t->scratch, &p->rows, &p->span, first, end, s) || !holds)
        t->k->top(end - first, p->rows.count, s, t->scratch.top);
}

mha__run mha__block_keys(const mha__tile *t, int64_t start, int64_t keys)
{
    const int64_t d = t->plan->desc.head_dim;
    if (t->pairs) return mha__pairs_keys(t, start, keys);
    const mha__run run =
        mha__keys_run(t->call, &t->call->args.k, d, t->rows.b, t->kv_head, start, keys, t->scratch.gathered_k);
    if (!t->plan->kv.widen || !run.data || mha__tile_is_decode(t)) return run;
    t->plan->kv.widen(keys, d, run.data, run.row, run.col, t->scratch.wide, d);
    return (mha__run){t->scratch.wide, d, 1};
}

/* Returns V of a block: in place if its rows are contiguous and begin on whole vectors, otherwise packed. (Rows a
 * few KiB apart compete for few sets of the L1 cache, and vectors that cross a cache line take twice as long. Both
 * are slower than a copy.) */
mha__value_run mha__block_values(const mha__tile *t, int64_t start, int64_t keys)
{
    const int64_t dv = t->plan->desc.v_head_dim, nr = t->k->nr, vl = t->k->vl, wide = t->plan->o_stride;
    if (t->pairs) return mha__pairs_values(t, start, keys);
    const mha__run run =
        mha__keys_run(t->call, &t->call->args.v, dv, t->rows.b, t->kv_head, start, keys, t->scratch.gathered_v);
    if (t->plan->kv.widen) {
        if (dv % vl) memset(t->scratch.v, 0, (size_t)(keys * wide) * t->k->real_size); /* kernels read whole vectors */
        t->plan->kv.widen(keys, dv, run.data, run.row, run.col, t->scratch.v, wide);
        return (mha__value_run){t->scratch.v, wide, nr};
    }
    const size_t vector = (size_t)vl * t->k->real_size;
    if (run.col == 1 && run.row == dv && dv % vl == 0 && (uintptr_t)run.data % vector == 0)
        return (mha__value_run){run.data, dv, nr};
    t->k->pack_cols(keys, dv, run.data, run.row, run.col, t->scratch.v);
    return (mha__value_run){t->scratch.v, nr, keys * nr};
}

void mha__block_add_values(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t first, int64_t end,
                           void *o, mha__prefetch_schedule *prefetch)
{
    const int64_t keys = end - first, rows = p->rows.count, dv = t->plan->desc.v_head_dim, stride = t->plan->o_stride;
    const mha__value_run *v = &b->v;
    const void *from = (const char *)v->data + (first - b->start) * v->row * (int64_t)t->k->real_size;
    const mha__scratch *x = &t->scratch;
    if (!t->careful) {
        t->k->values(rows, dv, keys, x->s, from, v->row, v->panel, x->alpha, o, stride, prefetch);
        return;
    }
    t->k->values_masked(rows, dv, keys, x->s, x->mask, from, v->row, v->panel, x->alpha, o, stride);
}
