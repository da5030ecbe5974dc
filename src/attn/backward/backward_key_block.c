/* backward_key_block.c - computes the gradient terms of one tile of queries and one block of keys.
 *
 * S^T and dP^T = V dO^T are computed panel by panel as in the forward pass, and converted to W^T and dS^T, with one row
 * per key for all queries of the tile. Adjacent panels that attend to the same keys then form the products together:
 *
 *     dV += W^T dO        dK += dS^T Q        dQ += dS K
 *
 * A masked weight is an exact 0, and 0 * NaN would be NaN. If Q, dO, K or V contain NaN or Inf, the products therefore
 * skip masked pairs one by one.
 */
#include "attn/backward/backward.h"
#include <string.h>

enum { UNKNOWN, FINITE, NOT_FINITE };

mha__reals mha__bwd_read(const mha__kernels *k, const mha__stored *as, const void *from, const mha_cview *view,
                         int64_t rows, int64_t width, void *to, int64_t stride)
{
    if (!as->widen && view->stride[3] == 1) return (mha__reals){from, view->stride[2]};
    if (!as->widen)
        k->gather(rows, width, from, view->stride[2], view->stride[3], to, stride, width);
    else
        as->widen(rows, width, from, view->stride[2], view->stride[3], to, stride);
    return (mha__reals){to, stride};
}

/* Returns true if K can be used as a right operand in place: its rows are contiguous, aligned and consist of whole
 * vectors. Rows wider than ROW_MAX would compete for few sets of the L1 cache. */
static bool is_right_operand(const mha__bwd_tile *t, const mha__run *k)
{
    enum { ROW_MAX = 64 };
    const mha_attn_plan *plan = t->t.plan;
    const int64_t D = plan->desc.head_dim;
    const size_t vector = (size_t)t->t.k->vl * t->t.k->real_size;
    return !plan->kv.widen && k->col == 1 && k->row == D && D <= ROW_MAX && D % t->t.k->vl == 0 &&
           (uintptr_t)k->data % vector == 0;
}

/* Returns true if all elements of K and V of a block are finite. Each block of a head is checked only once. */
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

/* Returns K or V as a left operand: in place, or copied to `wide` if it is widened or its rows are wide. */
static mha__run left_operand(const mha__bwd_tile *t, const mha_cview *view, int64_t start, int64_t keys, int64_t width,
                             void *wide, int64_t stride)
{
    const mha__stored *as = &t->t.plan->kv;
    const void *from = mha__at(view, as->size, t->t.rows.b, t->t.kv_head, start, 0);
    if (!as->widen && width <= MHA__WIDE) return (mha__run){from, view->stride[2], view->stride[3]};
    if (as->widen)
        as->widen(keys, width, from, view->stride[2], view->stride[3], wide, stride);
    else
        t->t.k->gather(keys, width, from, view->stride[2], view->stride[3], wide, stride, width);
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
    block.k = left_operand(t, &a->k, start, keys, D, t->x.base.wide, plan->bwd.q_stride);
    block.v = left_operand(t, &a->v, start, keys, Dv, t->x.v, plan->bwd.v_stride);
    block.k_rows = (mha__value_run){block.k.data, block.k.row, k->nr};
    if (!is_right_operand(t, &block.k)) {
        k->pack_cols(keys, D, block.k.data, block.k.row, block.k.col, t->x.k);
        block.k_rows = (mha__value_run){t->x.k, k->nr, keys * k->nr};
    }
    return block;
}

/* Stores the mask of one panel next to its weights. */
static void spread_mask(const mha__bwd_tile *t, const mha__panel *p, int64_t start, int64_t first, int64_t end)
{
    const mha__kernels *k = t->t.k;
    const int64_t lanes = p->rows.count;
    const mha__bwd_scratch *x = &t->x;
    mha__mask_only(t->t.call, &x->base, &p->rows, &p->span, first, end, x->base.mask, x->base.mask);
    k->gather(end - first, lanes, x->base.mask, k->nr, 1,
              mha__tile_at(&t->t, x->mask, (first - start) * MHA__SPREAD + p->row), MHA__SPREAD, lanes);
}

/* Adds A B to C. A is W^T or dS^T, or dS if `across` is set. B begins at row `skip` of `b`. */
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
    mha__bwd_run runs[MHA__PANELS];
    int count = 0;
    const mha__bwd_block block = mha__bwd_load(t, start);
    const bool careful = !block.finite || !t->finite;
    for (int64_t row = 0; row < t->t.rows.count; row += t->t.k->nr) {
        const mha__panel *p = mha__tile_panel(&t->t, row);
        int64_t first, end;
        if (!mha__mask_block(t->t.call, &p->rows, &p->span, start, &first, &end)) continue;
        if (t->t.pairs) {
            mha__bwd_pairs_panel(t, p, &block, first, end);
        } else {
            mha__bwd_panel(t, p, &block, first, end);
            mha__bwd_finish_panel(t, p, start, first, end);
        }
        if (careful) spread_mask(t, p, start, first, end);
        mha__bwd_run *last = count > 0 ? &runs[count - 1] : NULL;
        if (last && last->row + last->count == row && last->first == first && last->end == end)
            last->count += p->rows.count;
        else
            runs[count++] = (mha__bwd_run){row, p->rows.count, first, end};
    }
    for (int n = 0; n < count; n++)
        (t->t.pairs ? mha__bwd_pairs_products : products)(t, &block, &runs[n], careful);
}
