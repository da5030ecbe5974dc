/* bwd_block.c - one tile of queries and one block of keys.
 *
 * Panel by panel S^T and dP^T = V dO^T are made as in the forward pass, and of them W^T and dS^T, spread over the
 * queries of the whole tile. Then neighbouring panels that see the same keys go through the products together:
 *
 *     dV += W^T dO        dK += dS^T Q        dQ += dS K
 *
 * A masked weight is an exact 0, and 0 * NaN would be NaN: where Q, dO, K or V hold NaN or Inf, the products pass over
 * masked pairs one by one.
 */
#include "attn/bwd.h"

#include "attn/dropout.h"
#include <string.h>

enum { PANELS = 16 }; /* at most, in a tile: the narrowest panel has 8 lanes */

bool mha__bwd_load(const mha__bwd_tile *t, int64_t start, int64_t keys)
{
    const mha_attn_plan *plan = t->t.plan;
    const mha_attn_args *a = &t->t.call->args;
    const int64_t D = plan->desc.head_dim, Dv = plan->desc.v_head_dim;
    const int64_t b = t->t.rows.b, g = t->t.kv_head;
    mha__bwd_read(t->t.k, &plan->kv, mha__at(&a->k, plan->kv.size, b, g, start, 0), &a->k, keys, D, t->x.k,
                  plan->bwd.q_stride);
    mha__bwd_read(t->t.k, &plan->kv, mha__at(&a->v, plan->kv.size, b, g, start, 0), &a->v, keys, Dv, t->x.v,
                  plan->bwd.v_stride);
    return t->t.k->finite(keys, D, t->x.k, plan->bwd.q_stride) && t->t.k->finite(keys, Dv, t->x.v, plan->bwd.v_stride);
}

void mha__bwd_scores(const mha__bwd_tile *t, const mha__panel *p, int64_t start, int64_t first, int64_t end)
{
    const mha__kernels *k = t->t.k;
    const mha_attn_desc *d = &t->t.plan->desc;
    const int64_t row = t->t.plan->bwd.q_stride, keys = end - first, lanes = p->rows.count;
    const mha__bwd_scratch *x = &t->x;
    k->scores(keys, d->head_dim, mha__tile_at(&t->t, x->k, (first - start) * row), row, 1, p->q, lanes, d->scale,
              x->base.s, x->base.top, NULL);
    if (d->softcap > 0) {
        k->softcap(keys, lanes, d->softcap, x->base.s);
        memcpy(x->capped, x->base.s, (size_t)(keys * k->nr) * k->real_size);
    }
    mha__mask_apply(t->t.call, &x->base, &p->rows, &p->span, first, end, x->base.s);
}

void mha__bwd_panel(const mha__bwd_tile *t, const mha__panel *p, int64_t start, int64_t first, int64_t end)
{
    const mha__kernels *k = t->t.k;
    const mha_attn_plan *plan = t->t.plan;
    const int64_t row = plan->bwd.v_stride, Dv = plan->desc.v_head_dim, keys = end - first, lanes = p->rows.count;
    const int64_t at = (first - start) * MHA__SPREAD + p->row;
    const mha__bwd_scratch *x = &t->x;
    mha__softmax_back back = {.s = x->base.s, .dp = x->dp, .factor = 1, .gate = t->gate, .stride = MHA__SPREAD};
    mha__bwd_scores(t, p, start, first, end);
    k->scores(keys, Dv, mha__tile_at(&t->t, x->v, (first - start) * row), row, 1,
              mha__tile_at(&t->t, x->dout_panels, p->row * Dv), lanes, 1, x->dp, x->base.top, NULL);
    if (mha__dropout_on(&plan->desc)) {
        back.factor = mha__dropout_mask(t->t.call, &x->base, &p->rows, first, end);
        back.dropped = x->base.extra;
    }
    back.lse = mha__tile_at(&t->t, x->lse, p->row);
    back.inverse = mha__tile_at(&t->t, x->inverse, p->row);
    back.delta = mha__tile_at(&t->t, x->delta, p->row);
    if (t->call->grads.dgates.data) back.dots = mha__tile_at(&t->t, x->dots, p->row);
    back.w = mha__tile_at(&t->t, x->w, at);
    back.ds = mha__tile_at(&t->t, x->ds, at);
    k->softmax_back(keys, lanes, &back);
}

/* What comes after dbias has been taken. */
static void finish_panel(const mha__bwd_tile *t, const mha__panel *p, int64_t start, int64_t first, int64_t end)
{
    const mha__kernels *k = t->t.k;
    const mha__bwd_scratch *x = &t->x;
    const int64_t keys = end - first, lanes = p->rows.count;
    void *ds = mha__tile_at(&t->t, x->ds, (first - start) * MHA__SPREAD + p->row);
    if (t->call->grads.dslopes.data)
        k->alibi_back(keys, lanes, p->rows.position - start, first - start, ds, MHA__SPREAD,
                      mha__tile_at(&t->t, x->slopes, p->row));
    if (t->t.plan->desc.softcap > 0) k->softcap_back(keys, lanes, t->t.plan->desc.softcap, x->capped, ds, MHA__SPREAD);
}

/* What one panel may not see, beside what it weighs. */
static void spread_mask(const mha__bwd_tile *t, const mha__panel *p, int64_t start, int64_t first, int64_t end)
{
    const mha__kernels *k = t->t.k;
    const int64_t lanes = p->rows.count;
    const mha__bwd_scratch *x = &t->x;
    memset(x->base.mask, 0, (size_t)((end - first) * k->nr) * k->real_size);
    mha__mask_apply(t->t.call, &x->base, &p->rows, &p->span, first, end, x->base.mask);
    k->gather(end - first, lanes, x->base.mask, k->nr, 1,
              mha__tile_at(&t->t, x->mask, (first - start) * MHA__SPREAD + p->row), MHA__SPREAD, lanes);
}

/* Rows [row, row + count) of the tile, which see keys [first, end) of a block. */
typedef struct run {
    int64_t row, count, first, end;
} run;

/* C += A B, where A is W^T or dS^T, or (`across`) dS. */
static void product(const mha__bwd_tile *t, const void *a, bool careful, bool across, const run *r, int64_t start,
                    int64_t width, const void *b, void *c, int64_t stride)
{
    const mha__kernels *k = t->t.k;
    const int64_t at = (r->first - start) * MHA__SPREAD + r->row, keys = r->end - r->first;
    const int64_t m = across ? r->count : keys, inner = across ? keys : r->count;
    const int64_t a_row = across ? 1 : MHA__SPREAD, a_col = across ? MHA__SPREAD : 1;
    const void *from = (const char *)a + at * (int64_t)k->real_size, *mask = mha__tile_at(&t->t, t->x.mask, at);
    if (careful)
        k->add_product_masked(m, width, inner, from, mask, a_row, a_col, b, stride, c, stride);
    else
        k->add_product(m, width, inner, from, a_row, a_col, b, stride, c, stride);
}

static void products(const mha__bwd_tile *t, int64_t start, const run *r, bool careful)
{
    const mha_attn_plan *plan = t->t.plan;
    const int64_t D = plan->desc.head_dim, Dv = plan->desc.v_head_dim;
    const int64_t q = plan->bwd.q_stride, v = plan->bwd.v_stride, key = r->first - start;
    const mha__bwd_scratch *x = &t->x;
    const mha__tile *at = &t->t;
    if (t->dv)
        product(t, x->w, careful, false, r, start, Dv, mha__tile_at(at, x->dout, r->row * v),
                mha__tile_at(at, t->dv, r->first * v), v);
    if (t->dk)
        product(t, x->ds, careful, false, r, start, D, mha__tile_at(at, x->q, r->row * q),
                mha__tile_at(at, t->dk, r->first * q), q);
    if (t->call->grads.dq.data)
        product(t, x->ds, careful, true, r, start, D, mha__tile_at(at, x->k, key * q),
                mha__tile_at(at, x->dq, r->row * q), q);
}

void mha__bwd_pair(const mha__bwd_tile *t, int64_t start)
{
    run runs[PANELS];
    int count = 0;
    const bool careful = !mha__bwd_load(t, start, mha__min64(MHA__KEY_BLOCK, t->t.span.hi - start)) || !t->finite;
    for (int64_t row = 0; row < t->t.rows.count; row += t->t.k->nr) {
        const mha__panel p = mha__tile_panel(&t->t, row);
        int64_t first, end;
        if (!mha__mask_block(t->t.call, &p.rows, &p.span, start, &first, &end)) continue;
        mha__bwd_panel(t, &p, start, first, end);
        finish_panel(t, &p, start, first, end);
        if (careful) spread_mask(t, &p, start, first, end);
        run *last = &runs[count - 1];
        if (count > 0 && last->row + last->count == row && last->first == first && last->end == end)
            last->count += p.rows.count;
        else
            runs[count++] = (run){row, p.rows.count, first, end};
    }
    for (int n = 0; n < count; n++)
        products(t, start, &runs[n], careful);
}
