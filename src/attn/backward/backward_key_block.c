/* backward_key_block.c - one tile of queries and one block of keys.
 *
 * Panel by panel S^T and dP^T = V dO^T are computed as in the forward pass, and converted to W^T and dS^T, in rows of
 * all queries of the tile. Then adjacent panels that attend to the same keys enter the products together:
 *
 *     dV += W^T dO        dK += dS^T Q        dQ += dS K
 *
 * A masked weight is an exact 0, and 0 * NaN would be NaN: where Q, dO, K or V hold NaN or Inf, the products skip
 * masked pairs one by one.
 */
#include "attn/backward/backward.h"

#include "attn/mask/attention_dropout.h"
#include <string.h>

enum { PANELS = 16 }; /* at most, in a tile: the narrowest panel has 8 lanes */

enum { UNKNOWN, FINITE, NOT_FINITE };

/* True if K has contiguous, aligned rows of whole vectors and is thus a right operand in place. Wider rows would
 * compete for few sets of the L1 cache. */
static bool is_right_operand(const mha__bwd_tile *t, const mha__run *k)
{
    enum { ROW_MOST = 64 };
    const mha_attn_plan *plan = t->t.plan;
    const int64_t D = plan->desc.head_dim;
    const size_t vector = (size_t)t->t.k->vl * t->t.k->real_size;
    return !plan->kv.widen && k->col == 1 && k->row == D && D <= ROW_MOST && D % t->t.k->vl == 0 &&
           (uintptr_t)k->data % vector == 0;
}

/* Checked once per block of a head. */
static bool is_finite(const mha__bwd_tile *t, int64_t start, int64_t keys)
{
    const mha_attn_plan *plan = t->t.plan;
    const mha_attn_args *a = &t->t.call->args;
    const mha_cview *views[] = {&a->k, &a->v};
    const int64_t widths[] = {plan->desc.head_dim, plan->desc.v_head_dim};
    const int64_t strides[] = {plan->bwd.q_stride, plan->bwd.v_stride};
    uint8_t *known = &t->x.finite[start / MHA__KEY_BLOCK];
    if (*known != UNKNOWN) return *known == FINITE;
    *known = FINITE;
    for (int n = 0; n < 2; n++) {
        const void *from = mha__at(views[n], plan->kv.size, t->t.rows.b, t->t.kv_head, start, 0);
        const mha__reals rows = mha__bwd_read(t->t.k, &plan->kv, from, views[n], keys, widths[n], t->x.v, strides[n]);
        if (!t->t.k->finite(keys, widths[n], rows.data, rows.stride)) *known = NOT_FINITE;
    }
    return *known == FINITE;
}

/* Returns K or V as a left operand: in place, or widened into `wide`. */
static mha__run left_operand(const mha__bwd_tile *t, const mha_cview *view, int64_t start, int64_t keys, int64_t width,
                             void *wide, int64_t stride)
{
    const mha__stored *as = &t->t.plan->kv;
    const void *from = mha__at(view, as->size, t->t.rows.b, t->t.kv_head, start, 0);
    if (!as->widen) return (mha__run){from, view->stride[2], view->stride[3]};
    mha__bwd_read(t->t.k, as, from, view, keys, width, wide, stride);
    return (mha__run){wide, stride, 1};
}

mha__bwd_block mha__bwd_load(const mha__bwd_tile *t, int64_t start)
{
    const mha_attn_plan *plan = t->t.plan;
    const mha_attn_args *a = &t->t.call->args;
    const mha__kernels *k = t->t.k;
    const int64_t D = plan->desc.head_dim, Dv = plan->desc.v_head_dim;
    const int64_t all = mha__mask_keys(t->t.call, t->t.rows.b) - start, keys = mha__min64(MHA__KEY_BLOCK, all);
    mha__bwd_block block = {.start = start, .finite = is_finite(t, start, keys)};
    if (t->t.pairs) {
        mha__bwd_pairs_load(t, keys, &block);
        return block;
    }
    block.k = left_operand(t, &a->k, start, keys, D, t->x.base.wide, D);
    block.v = left_operand(t, &a->v, start, keys, Dv, t->x.v, plan->bwd.v_stride);
    block.k_rows = (mha__value_run){block.k.data, block.k.row, k->nr};
    if (!is_right_operand(t, &block.k)) {
        k->pack_cols(keys, D, block.k.data, block.k.row, block.k.col, t->x.k);
        block.k_rows = (mha__value_run){t->x.k, k->nr, keys * k->nr};
    }
    return block;
}

/* Computes a panel A B^T of keys [first, end) of the block, where A is its K or V. */
static void panel_product(const mha__bwd_tile *t, const mha__run *a, int64_t key, int64_t keys, int64_t width,
                          const void *b, int64_t lanes, double scale, void *to)
{
    const mha__kernels *k = t->t.k;
    void *top = t->x.base.top;
    if (t->t.pairs)
        t->t.pairs->scores(keys, width, (const uint16_t *)a->data + key * a->row, a->row, b, lanes, scale, to, top,
                           NULL);
    else
        k->scores(keys, width, (const char *)a->data + key * a->row * (int64_t)k->real_size, a->row, a->col, b, lanes,
                  scale, to, top, NULL);
}

static void *panel_at(const mha__bwd_tile *t, void *panel, int64_t key)
{
    return mha__tile_at(&t->t, panel, key * t->t.k->nr);
}

void *mha__bwd_scores(const mha__bwd_tile *t, const mha__panel *p, const mha__bwd_block *block, int64_t first,
                      int64_t end)
{
    const mha__kernels *k = t->t.k;
    const mha_attn_desc *d = &t->t.plan->desc;
    const int64_t keys = end - first, key = first - block->start, lanes = p->rows.count;
    const mha__bwd_scratch *x = &t->x;
    void *s = panel_at(t, x->base.s, key);
    panel_product(t, &block->k, key, keys, d->head_dim, p->q, lanes, d->scale, s);
    if (d->softcap > 0) {
        k->softcap(keys, lanes, d->softcap, s);
        memcpy(panel_at(t, x->capped, key), s, (size_t)(keys * k->nr) * k->real_size);
    }
    mha__mask_apply(t->t.call, &x->base, &p->rows, &p->span, first, end, s);
    return s;
}

void *mha__bwd_dp(const mha__bwd_tile *t, const mha__panel *p, const mha__bwd_block *block, int64_t first, int64_t end)
{
    const int64_t Dv = t->t.plan->desc.v_head_dim, depth = t->t.pairs ? mha__round_up(Dv, t->t.pairs->step) / 2 : Dv;
    const int64_t key = first - block->start;
    void *dp = panel_at(t, t->x.dp, key);
    panel_product(t, &block->v, key, end - first, Dv, mha__tile_at(&t->t, t->x.dout_panels, p->row * depth),
                  p->rows.count, 1, dp);
    return dp;
}

mha__softmax_back mha__bwd_rows_of(const mha__bwd_tile *t, const mha__panel *p)
{
    const mha__bwd_scratch *x = &t->x;
    return (mha__softmax_back){.lse = mha__tile_at(&t->t, x->lse, p->row),
                               .inverse = mha__tile_at(&t->t, x->inverse, p->row),
                               .delta = mha__tile_at(&t->t, x->delta, p->row),
                               .factor = 1,
                               .gate = t->gate,
                               .stride = MHA__SPREAD};
}

void mha__bwd_taylor(const mha__bwd_tile *t, const mha__panel *p, int64_t keys, const mha__softmax_back *back)
{
    if (t->call->grads.row_taylor.data)
        t->t.k->taylor_back(keys, p->rows.count, back, mha__tile_at(&t->t, t->x.taylor, p->row));
}

void mha__bwd_panel(const mha__bwd_tile *t, const mha__panel *p, const mha__bwd_block *block, int64_t first,
                    int64_t end)
{
    const int64_t at = (first - block->start) * MHA__SPREAD + p->row;
    const mha__bwd_scratch *x = &t->x;
    mha__softmax_back back = mha__bwd_rows_of(t, p);
    back.s = mha__bwd_scores(t, p, block, first, end);
    back.dp = mha__bwd_dp(t, p, block, first, end);
    if (mha__dropout_on(&t->t.plan->desc)) {
        back.factor = mha__dropout_mask(t->t.call, &x->base, &p->rows, first, end);
        back.dropped = x->base.extra;
    }
    if (t->call->grads.dgates.data) back.dots = mha__tile_at(&t->t, x->dots, p->row);
    mha__bwd_taylor(t, p, end - first, &back);
    back.w = mha__tile_at(&t->t, x->w, at);
    back.ds = mha__tile_at(&t->t, x->ds, at);
    t->t.k->softmax_back(end - first, p->rows.count, &back);
}

void mha__bwd_finish_panel(const mha__bwd_tile *t, const mha__panel *p, int64_t start, int64_t first, int64_t end)
{
    const mha__kernels *k = t->t.k;
    const mha__bwd_scratch *x = &t->x;
    const int64_t keys = end - first, lanes = p->rows.count;
    void *ds = mha__tile_at(&t->t, x->ds, (first - start) * MHA__SPREAD + p->row);
    if (t->call->grads.dslopes.data)
        k->alibi_back(keys, lanes, p->rows.position - start, first - start, ds, MHA__SPREAD,
                      mha__tile_at(&t->t, x->slopes, p->row));
    if (t->t.plan->desc.softcap > 0)
        k->softcap_back(keys, lanes, t->t.plan->desc.softcap, panel_at(t, x->capped, first - start), ds, MHA__SPREAD);
}

/* Stores the mask of one panel next to its weights. */
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

/* C += A B, where A is W^T or dS^T, or dS if `across`. B begins at row `skip` of `b`. */
static void product(const mha__bwd_tile *t, const void *a, bool careful, bool across, const mha__bwd_run *r,
                    int64_t start, int64_t width, const mha__value_run *b, int64_t skip, void *c, int64_t stride)
{
    const mha__kernels *k = t->t.k;
    const int64_t at = (r->first - start) * MHA__SPREAD + r->row, keys = r->end - r->first;
    const int64_t m = across ? r->count : keys, inner = across ? keys : r->count;
    const int64_t a_row = across ? 1 : MHA__SPREAD, a_col = across ? MHA__SPREAD : 1;
    const void *from = (const char *)a + at * (int64_t)k->real_size, *mask = mha__tile_at(&t->t, t->x.mask, at);
    const void *rows = (const char *)b->data + skip * b->row * (int64_t)k->real_size;
    if (careful)
        k->add_product_masked(m, width, inner, from, mask, a_row, a_col, rows, b->row, b->panel, c, stride);
    else
        k->add_product(m, width, inner, from, a_row, a_col, rows, b->row, b->panel, c, stride);
}

static void products(const mha__bwd_tile *t, const mha__bwd_block *block, const mha__bwd_run *r, bool careful)
{
    const mha_attn_plan *plan = t->t.plan;
    const mha__bwd_scratch *x = &t->x;
    const mha__tile *at = &t->t;
    const int64_t D = plan->desc.head_dim, Dv = plan->desc.v_head_dim, start = block->start, nr = t->t.k->nr;
    const int64_t q = plan->bwd.q_stride, v = plan->bwd.v_stride;
    const mha__value_run queries = {x->q, nr, t->t.rows.count * nr}, dout = {x->dout, nr, t->t.rows.count * nr};
    if (t->dv) product(t, x->w, careful, false, r, start, Dv, &dout, r->row, mha__tile_at(at, t->dv, r->first * v), v);
    if (t->dk)
        product(t, x->ds, careful, false, r, start, D, &queries, r->row, mha__tile_at(at, t->dk, r->first * q), q);
    if (t->call->grads.dq.data)
        product(t, x->ds, careful, true, r, start, D, &block->k_rows, r->first - start,
                mha__tile_at(at, x->dq, r->row * q), q);
}

void mha__bwd_pair(const mha__bwd_tile *t, int64_t start)
{
    mha__bwd_run runs[PANELS];
    int count = 0;
    const mha__bwd_block block = mha__bwd_load(t, start);
    const bool careful = !block.finite || !t->finite;
    for (int64_t row = 0; row < t->t.rows.count; row += t->t.k->nr) {
        const mha__panel p = mha__tile_panel(&t->t, row);
        int64_t first, end;
        if (!mha__mask_block(t->t.call, &p.rows, &p.span, start, &first, &end)) continue;
        if (t->t.pairs) {
            mha__bwd_pairs_panel(t, &p, &block, first, end);
        } else {
            mha__bwd_panel(t, &p, &block, first, end);
            mha__bwd_finish_panel(t, &p, start, first, end);
        }
        if (careful) spread_mask(t, &p, start, first, end);
        mha__bwd_run *last = count > 0 ? &runs[count - 1] : NULL;
        if (last && last->row + last->count == row && last->first == first && last->end == end)
            last->count += p.rows.count;
        else
            runs[count++] = (mha__bwd_run){row, p.rows.count, first, end};
    }
    for (int n = 0; n < count; n++)
        (t->t.pairs ? mha__bwd_pairs_products : products)(t, &block, &runs[n], careful);
}
