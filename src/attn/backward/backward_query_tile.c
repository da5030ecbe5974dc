/* backward_query_tile.c - opens a tile of queries for the backward pass. */
#include "attn/backward/backward.h"
#include <string.h>

/* Limit of |lse| above which its rounding matters: half a unit in its last place then changes p by 2^-20 in f32. */
static const double LSE_LIMIT = 32;

/* Returns the rows of the tile in head h of a view. */
static mha__reals load(const mha__bwd_tile *t, const mha_cview *view, int64_t h, int64_t width, void *to,
                       int64_t stride)
{
    const mha__rows *r = &t->t.rows;
    const mha__stored *as = &t->t.plan->q;
    return mha__bwd_read(t->t.k, as, mha__at(view, as->size, r->b, h, r->first, 0), view, r->count, width, to, stride);
}

/* Loads Q as both right operands. Returns true if all elements are finite. */
static bool load_queries(const mha__bwd_tile *t)
{
    const mha__kernels *k = t->t.k;
    const mha__bwd_scratch *x = &t->x;
    const int64_t D = t->t.plan->desc.head_dim, rows = t->t.rows.count;
    const mha__reals q = load(t, &t->call->call.args.q, t->t.rows.h, D, x->v, t->t.plan->bwd.q_stride);
    if (!t->t.pairs) {
        k->pack_rows(rows, D, q.data, q.stride, 1, x->base.q);
        k->pack_cols(rows, D, q.data, q.stride, 1, x->q);
    }
    return k->finite(rows, D, q.data, q.stride);
}

/* Loads dO as both right operands, and computes delta = rowsum(dO * O). Gates are applied to dO for products of reals,
 * and to P for products of bf16 pairs. */
static bool load_dout(const mha__bwd_tile *t)
{
    const mha__kernels *k = t->t.k;
    const mha__bwd_scratch *x = &t->x;
    const int64_t Dv = t->t.plan->desc.v_head_dim, rows = t->t.rows.count, stride = t->t.plan->bwd.v_stride;
    mha__reals dout = load(t, &t->call->grads.dout, t->t.rows.result, Dv, x->v, stride);
    const mha__reals out = load(t, &t->call->grads.out, t->t.rows.result, Dv, x->base.v, stride);
    const bool finite = k->finite(rows, Dv, dout.data, dout.stride);
    k->row_dots(rows, Dv, dout.data, dout.stride, out.data, out.stride, x->delta);
    if (t->t.pairs) return finite;
    k->pack_rows(rows, Dv, dout.data, dout.stride, 1, x->dout_panels);
    if (t->t.plan->desc.inputs & MHA_ATTN_GATES) {
        k->fill(rows, t->gate, x->base.gated);
        k->output(rows, Dv, dout.data, dout.stride, x->base.gated, x->v, stride, 1);
        dout = (mha__reals){x->v, stride};
    }
    k->pack_cols(rows, Dv, dout.data, dout.stride, 1, x->dout);
    return finite;
}

static void load_rows(mha__bwd_tile *t)
{
    const mha_attn_desc *d = &t->t.plan->desc;
    mha__bwd_scratch *x = &t->x;
    t->gate = d->inputs & MHA_ATTN_GATES ? mha__tile_per_head(&t->t, &t->call->call.args.gates) : 1;
    t->finite = load_queries(t);
    t->finite = load_dout(t) && t->finite;
    if (!t->t.pairs) return;
    mha__bwd_pairs_rows(t, &t->call->call.args.q, t->t.rows.h, d->head_dim, x->base.q, x->q);
    mha__bwd_pairs_rows(t, &t->call->grads.dout, t->t.rows.result, d->v_head_dim, x->dout_panels, x->dout);
}

/* Recomputes the maximum and sum of rows whose lse is not precise enough. */
static void recompute_sums(mha__bwd_tile *t)
{
    const mha__kernels *k = t->t.k;
    const mha_attn_plan *plan = t->t.plan;
    const mha__scratch *x = &t->x.base;
    const mha__partial *sum = &x->partial[0];
    k->clear(t->t.rows.count, plan->o_stride, sum);
    const int64_t lo = t->t.span.lo / MHA__KEY_BLOCK * MHA__KEY_BLOCK;
    for (int64_t start = lo; start < t->t.span.hi; start += MHA__KEY_BLOCK) {
        int64_t first, end;
        if (!mha__mask_block(t->t.call, &t->t.rows, &t->t.span, start, &first, &end)) continue;
        const mha__bwd_block block = mha__bwd_load(t, start);
        for (int64_t row = 0; row < t->t.rows.count; row += k->nr) {
            const mha__panel *p = mha__tile_panel(&t->t, row);
            if (!mha__mask_block(t->t.call, &p->rows, &p->span, start, &first, &end)) continue;
            void *s = mha__bwd_scores(t, p, &block, first, end);
            k->top(end - first, p->rows.count, s, x->top);
            k->softmax(end - first, p->rows.count, x->top, s, mha__tile_at(&t->t, sum->max, row),
                       mha__tile_at(&t->t, sum->sum, row), x->alpha);
        }
    }
    if (plan->desc.inputs & MHA_ATTN_SINKS)
        k->sink(t->t.rows.count, plan->desc.v_head_dim, plan->o_stride,
                mha__tile_per_head(&t->t, &t->t.call->args.sinks), sum);
    k->totals(t->t.rows.count, sum->max, sum->sum, x->inverse, NULL, 0);
    k->anchor_again(t->t.rows.count, LSE_LIMIT, sum->max, x->inverse, t->x.lse, t->x.inverse);
}

static void load_lse(mha__bwd_tile *t)
{
    const mha__kernels *k = t->t.k;
    const mha__rows *r = &t->t.rows;
    const mha_cview *lse = &t->call->grads.lse, *dlse = &t->call->grads.dlse;
    const size_t size = k->real_size;
    mha__bwd_scratch *x = &t->x;
    const int64_t n = r->count;
    k->gather(1, n, mha__at(lse, size, r->b, r->result, r->first, 0), 0, lse->stride[2], x->lse, n, n);
    if (dlse->data)
        k->gather(1, n, mha__at(dlse, size, r->b, r->result, r->first, 0), 0, dlse->stride[2], x->dots, n, n);
    if (k->anchor(r->count, x->lse, dlse->data ? x->dots : NULL, LSE_LIMIT, x->inverse, x->delta)) recompute_sums(t);
}

bool mha__bwd_open(mha__bwd_tile *t, int64_t b, int64_t h, int64_t result, int64_t first)
{
    const mha__call *call = &t->call->call;
    mha__scratch *x = &t->x.base;
    mha__rows *r = &t->t.rows;
    *r = (mha__rows){.b = b, .h = h, .result = result, .first = first, .lo = x->lo, .hi = x->hi, .prefix = x->prefix};
    r->count = mha__min64(MHA__TILE_Q, mha__mask_queries(call, b) - first);
    if (r->count <= 0) return false;
    r->position = first + mha__mask_offset(call, b);
    mha__mask_intervals(call, b, first, r->count, x->lo, x->hi, x->prefix);
    t->t.call = call;
    t->t.plan = call->plan;
    t->t.k = call->plan->kernels;
    t->t.kv_head = h / call->plan->group;
    if (t->known_b != b || t->known_g != t->t.kv_head)
        memset(t->x.finite, 0, (size_t)mha__ceil_div(call->plan->desc.kv_len, MHA__KEY_BLOCK));
    t->known_b = b, t->known_g = t->t.kv_head;
    t->t.scratch = *x;
    t->t.span = mha__mask_span(r);
    mha__tile_set_panels(&t->t);
    load_rows(t);
    load_lse(t);
    t->t.k->fill(MHA__TILE_Q, 0, t->x.dots);
    t->t.k->fill(MHA__TILE_Q, 0, t->x.slopes);
    t->t.k->fill(MHA__TILE_Q, 0, t->x.taylor);
    return true;
}
