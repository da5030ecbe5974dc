/* backward_panel.c - computes the scores, P and dS of one panel of queries and one block of keys. */
#include "attn/backward/backward.h"
#include "attn/mask/attention_dropout.h"
#include "attn/mask/user_functions.h"
#include <string.h>

/* Computes a panel A B^T for keys [first, end) of the block, where A is K or V of the block. */
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
    const size_t bytes = (size_t)(keys * k->nr) * k->real_size;
    if (d->softcap > 0) k->softcap(keys, lanes, d->softcap, s);
    if (mha__bwd_keeps_capped(t->t.plan)) memcpy(panel_at(t, x->capped, key), s, bytes);
    mha__mask_apply(t->t.call, &x->base, &p->rows, &p->span, first, end, s);
    if (t->t.call->functions.score) memcpy(x->base.mask, s, bytes);
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
    const void *capped = panel_at(t, x->capped, first - start);
    if (t->t.call->functions.score_back)
        mha__functions_back(t->t.call, &x->base, &p->rows, first, end, capped, ds, MHA__SPREAD);
    if (t->t.plan->desc.softcap > 0) k->softcap_back(keys, lanes, t->t.plan->desc.softcap, capped, ds, MHA__SPREAD);
}
