/* backward_bf16.c - the backward pass of one tile and one block with bf16 products (mha__pairs_back in kernel.h). The
 * operands are not widened. P and dS are computed in reals and rounded to bf16 for the products
 *
 *     dV += W^T dO        dK += dS^T Q        dQ += dS K        W = gate P
 *
 * These sums advance in steps of 32 queries from the start of the tile, and 32 keys from the start of the block.
 *
 * Elements of Q, dO and K that are not finite may have weight 0, and 0 * NaN is NaN. The products read 0 in place of
 * these elements. Their values are then added separately for the pairs of queries and keys that attend to each
 * other. */
#include "attn/backward/backward.h"
#include "attn/mask/attention_dropout.h"
#include "math/half.h"
#include <math.h>

enum { QUERIES_PANEL = MHA__TILE_Q / 2, KEYS_PANEL = MHA__KEY_BLOCK / 2 }; /* sizes of panels, in rows of bf16 pairs */

void mha__bwd_pairs_rows(const mha__bwd_tile *t, const mha_cview *view, int64_t h, int64_t width, void *panels,
                         void *columns)
{
    const mha__rows *r = &t->t.rows;
    const uint16_t *from = mha__at(view, sizeof *from, r->b, h, r->first, 0);
    t->t.pairs->pack_queries(r->count, width, from, view->stride[2], view->stride[3], panels);
    t->t.pairs->pack_values(r->count, width, from, view->stride[2], view->stride[3], !t->finite,
                            QUERIES_PANEL * t->t.k->nr, columns);
}

/* Returns the operand in place if its rows are contiguous and consist of whole pairs and whole steps; otherwise a
 * copy. */
static mha__run left_operand(const mha__bwd_tile *t, const uint16_t *from, const mha_cview *view, int64_t keys,
                             int64_t width, void *copy)
{
    const int64_t depth = mha__round_up(width, t->t.pairs->step);
    const bool whole = width == depth && (uintptr_t)from % (2 * sizeof *from) == 0;
    if (whole && view->stride[3] == 1 && view->stride[2] == width) return (mha__run){from, depth, 1};
    t->t.pairs->pack_keys(keys, width, from, view->stride[2], view->stride[3], copy);
    return (mha__run){copy, depth, 1};
}

void mha__bwd_pairs_load(const mha__bwd_tile *t, int64_t keys, mha__bwd_block *block)
{
    const mha_attn_desc *d = &t->t.plan->desc;
    const mha_cview *k = &t->t.call->args.k, *v = &t->t.call->args.v;
    const uint16_t *from_k = mha__at(k, sizeof *from_k, t->t.rows.b, t->t.kv_head, block->start, 0);
    const uint16_t *from_v = mha__at(v, sizeof *from_v, t->t.rows.b, t->t.kv_head, block->start, 0);
    const int64_t nr = t->t.k->nr;
    block->k = left_operand(t, from_k, k, keys, d->head_dim, t->x.base.wide);
    block->v = left_operand(t, from_v, v, keys, d->v_head_dim, t->x.v);
    t->t.pairs->pack_values(keys, d->head_dim, from_k, k->stride[2], k->stride[3], !block->finite, KEYS_PANEL * nr,
                            t->x.k);
    block->k_rows = (mha__value_run){t->x.k, nr / 2, KEYS_PANEL * nr};
}

/* Returns true if weights are computed from scores in one step. Depends only on the description, so that requested
 * outputs do not affect the results. */
static bool is_plain(const mha_attn_desc *d)
{
    return d->softcap == 0 && !mha__dropout_on(d) &&
           !(d->inputs & (MHA_ATTN_SLOPES | MHA_ATTN_GATES | MHA_ATTN_FUNCTIONS));
}

void mha__bwd_pairs_panel(const mha__bwd_tile *t, const mha__panel *p, const mha__bwd_block *block, int64_t first,
                          int64_t end)
{
    const mha__pairs_back *back = t->t.k->pairs_back;
    const mha__bwd_scratch *x = &t->x;
    const int64_t from = first - block->start, to = end - block->start;
    mha__softmax_back rows = mha__bwd_rows_of(t, p);
    mha__pair_weights w = x->pairs;
    w.w += p->row, w.ds += p->row, w.across += p->row * w.stride;
    if (is_plain(&t->t.plan->desc)) {
        rows.s = mha__bwd_scores(t, p, block, first, end);
        rows.dp = mha__bwd_dp(t, p, block, first, end);
        mha__bwd_taylor(t, p, end - first, &rows);
        rows.s = x->base.s, rows.dp = x->dp;
        back->softmax_back(from, to, p->rows.count, &rows, &w);
        return;
    }
    mha__bwd_panel(t, p, block, first, end);
    mha__bwd_finish_panel(t, p, block->start, first, end);
    rows.w = mha__tile_at(&t->t, x->w, p->row), rows.ds = mha__tile_at(&t->t, x->ds, p->row);
    back->round(from, to, p->rows.count, &rows, &w);
}

/* C [m][width] += A [m][n] B [n][width], restricted to the elements of B that are not finite. A contains weights; B
 * consists of bf16 rows that are read in place. Entries of masked pairs are -infinity in `mask`, which has the shape of
 * A. */
typedef struct not_finite {
    int64_t m, n, width;
    const uint16_t *a;
    int64_t a_row;
    const float *mask;
    int64_t mask_row, mask_col;
    const uint16_t *b;
    int64_t b_row, b_col;
    float *c;
    int64_t c_row;
} not_finite;

static void add_not_finite(const not_finite *x)
{
    for (int64_t i = 0; i < x->n; i++)
        for (int64_t c = 0; c < x->width; c++) {
            const float value = mha__bf16_to_f32(x->b[i * x->b_row + c * x->b_col]);
            for (int64_t r = 0; r < x->m && !isfinite(value); r++)
                if (x->mask[r * x->mask_row + i * x->mask_col] != -INFINITY)
                    x->c[r * x->c_row + c] += mha__bf16_to_f32(x->a[r * x->a_row + i]) * value;
        }
}

/* The keys of a run within its block: [first, end), and [from, to), which is [first, end) extended to whole steps. */
typedef struct cut {
    int64_t first, end, from, to;
} cut;

static cut cut_of(const mha__bwd_tile *t, const mha__bwd_run *r, int64_t start)
{
    const int64_t step = t->t.pairs->step, first = r->first - start, end = r->end - start;
    return (cut){first, end, first / step * step, mha__round_up(end, step)};
}

static const float *mask_at(const mha__bwd_tile *t, const mha__bwd_run *r, int64_t key)
{
    return (const float *)t->x.mask + key * MHA__SPREAD + r->row;
}

/* Adds W^T dO to dv, or dS^T Q to dk. dO or Q is passed as head h of `view`, and as a packed copy in `columns`. */
static void add_over_queries(const mha__bwd_tile *t, const mha__bwd_run *r, int64_t start, const uint16_t *weights,
                             const mha_cview *view, int64_t h, int64_t width, const void *columns, bool careful,
                             float *sums, int64_t stride)
{
    const cut at = cut_of(t, r, start);
    const int64_t nr = t->t.k->nr, step = t->t.pairs->step, row = t->x.pairs.stride;
    const int64_t exist = mha__keys_of(t->t.call, t->t.rows.b) - start;
    t->t.k->pairs_back->add_product(mha__min64(at.to, exist) - at.from, width, mha__ceil_div(r->count, step),
                                    weights + at.from * row + r->row, row, (const float *)columns + r->row * nr / 2,
                                    QUERIES_PANEL * nr, sums + (start + at.from) * stride, stride);
    if (!careful) return;
    const uint16_t *from = mha__at(view, sizeof *from, t->t.rows.b, h, t->t.rows.first + r->row, 0);
    const not_finite x = {.m = r->end - r->first,
                          .n = r->count,
                          .width = width,
                          .a = weights + at.first * row + r->row,
                          .a_row = row,
                          .mask = mask_at(t, r, at.first),
                          .mask_row = MHA__SPREAD,
                          .mask_col = 1,
                          .b = from,
                          .b_row = view->stride[2],
                          .b_col = view->stride[3],
                          .c = sums + r->first * stride,
                          .c_row = stride};
    add_not_finite(&x);
}

/* Adds dS K to dq. Rows beyond the end of the tile are written to scratch memory; their weights are 0. */
static void add_over_keys(const mha__bwd_tile *t, const mha__bwd_run *r, const mha__bwd_block *block, bool careful)
{
    const cut at = cut_of(t, r, block->start);
    const mha_cview *k = &t->t.call->args.k;
    const int64_t D = t->t.plan->desc.head_dim, step = t->t.pairs->step, row = t->x.pairs.stride;
    const int64_t stride = t->t.plan->bwd.q_stride;
    const uint16_t *weights = t->x.pairs.across + r->row * row;
    float *sums = (float *)t->x.dq + r->row * stride;
    t->t.k->pairs_back->add_product(mha__round_up(r->count, step), D, (at.to - at.from) / step, weights + at.from, row,
                                    (const float *)block->k_rows.data + at.from * block->k_rows.row,
                                    block->k_rows.panel, sums, stride);
    if (!careful) return;
    const not_finite x = {.m = r->count,
                          .n = r->end - r->first,
                          .width = D,
                          .a = weights + at.first,
                          .a_row = row,
                          .mask = mask_at(t, r, at.first),
                          .mask_row = 1,
                          .mask_col = MHA__SPREAD,
                          .b = mha__at(k, sizeof *x.b, t->t.rows.b, t->t.kv_head, r->first, 0),
                          .b_row = k->stride[2],
                          .b_col = k->stride[3],
                          .c = sums,
                          .c_row = stride};
    add_not_finite(&x);
}

void mha__bwd_pairs_products(const mha__bwd_tile *t, const mha__bwd_block *block, const mha__bwd_run *r, bool careful)
{
    const mha_attn_plan *plan = t->t.plan;
    const mha__bwd_scratch *x = &t->x;
    const mha__rows *rows = &t->t.rows;
    if (t->dv)
        add_over_queries(t, r, block->start, x->pairs.w, &t->call->grads.dout, rows->result, plan->desc.v_head_dim,
                         x->dout, careful, t->dv, plan->bwd.v_stride);
    if (t->dk)
        add_over_queries(t, r, block->start, x->pairs.ds, &t->t.call->args.q, rows->h, plan->desc.head_dim, x->q,
                         careful, t->dk, plan->bwd.q_stride);
    if (t->call->grads.dq.data) add_over_keys(t, r, block, careful);
}
