/* tile_bf16.c - computes one block of keys for a tile of queries with bf16 products (mha__pairs in kernel.h). The
 * operands are not widened. Scores are reals, so all masks can be applied; weights are rounded to bf16.
 *
 * The steps of a product begin at fixed keys, as blocks do, so a row is bitwise identical in every tile.
 *
 * Values that are not finite may have weight 0, and 0 * NaN is NaN. A tile whose result is not finite is computed again
 * (`careful`): such values are replaced with 0, then added to the rows that attend to them. */
#include "attn/forward/query_tile.h"
#include "attn/mask/attention_dropout.h"
#include "math/half.h"
#include <float.h>
#include <math.h>
#include <string.h>

bool mha__pairs_raw(const mha_attn_plan *plan)
{
    const mha_attn_desc *d = &plan->desc;
    return plan->pairs && d->softcap == 0 && !(d->inputs & (MHA_ATTN_SLOPES | MHA_ATTN_BIAS | MHA_ATTN_FUNCTIONS)) &&
           !mha__dropout_on(d) && d->scale >= (double)FLT_MIN && d->scale <= (double)FLT_MAX;
}

/* Returns the factor by which `attend` must multiply scores: the scale if they are not scaled yet, otherwise 1. */
static double scale_left(const mha__tile *t)
{
    return t->raw ? t->plan->desc.scale : 1;
}

static mha__run keys_run(const mha__tile *t, int64_t start, int64_t keys)
{
    return mha__keys_run(t->call, &t->call->args.k, t->plan->desc.head_dim, t->rows.b, t->kv_head, start, keys,
                         t->scratch.gathered_k);
}

static mha__run values_run(const mha__tile *t, int64_t start, int64_t keys)
{
    return mha__keys_run(t->call, &t->call->args.v, t->plan->desc.v_head_dim, t->rows.b, t->kv_head, start, keys,
                         t->scratch.gathered_v);
}

/* Returns true if rows consist of whole pairs, as left operands require. */
static bool begins_on_pairs(const mha__run *run)
{
    return run->col == 1 && run->row % 2 == 0 && (uintptr_t)run->data % (2 * sizeof(uint16_t)) == 0;
}

/* Returns K as a left operand: in place if head_dim is a multiple of `whole` and rows are contiguous or read only
 * once. (Rows a few KiB apart compete for few sets of the L1 cache.) */
mha__run mha__pairs_keys(const mha__tile *t, int64_t start, int64_t keys)
{
    const mha__pairs *pairs = t->pairs;
    const int64_t d = t->plan->desc.head_dim, depth = mha__round_up(d, pairs->step);
    const mha__run run = keys_run(t, start, keys);
    const bool once = run.row == d || t->rows.count <= t->k->nr;
    if (!run.data || (begins_on_pairs(&run) && d % pairs->whole == 0 && once)) return run;
    pairs->pack_keys(keys, d, run.data, run.row, run.col, t->scratch.wide);
    return (mha__run){t->scratch.wide, depth, 1};
}

static int64_t panel_of_values(const mha__tile *t)
{
    return MHA__KEY_BLOCK / 2 * t->k->nr;
}

/* Returns true if `attend_rows` can read V in place. It does not replace values that are not finite. */
static bool in_place(const mha__tile *t, const mha__run *run)
{
    const mha_attn_desc *d = &t->plan->desc;
    return t->rows.count <= t->pairs->in_place_lanes && run->col == 1 && d->v_head_dim % t->pairs->step == 0 &&
           !t->careful && !mha__dropout_on(d);
}

mha__value_run mha__pairs_values(const mha__tile *t, int64_t start, int64_t keys)
{
    const mha__run run = values_run(t, start, keys);
    if (in_place(t, &run)) return (mha__value_run){run.data, run.row, 0};
    t->pairs->pack_values(keys, t->plan->desc.v_head_dim, run.data, run.row, run.col, t->careful, panel_of_values(t),
                          t->scratch.v);
    return (mha__value_run){t->scratch.v, t->k->nr, panel_of_values(t)};
}

/* Adds a value that is not finite to the rows that attend to it. If `weights` is set, s contains weights, otherwise
 * scores. */
static void add_value(const mha__tile *t, const mha__panel *p, int64_t key, bool weights, double value, int64_t column,
                      const mha__partial *into)
{
    const float *s = t->scratch.s, *mask = t->scratch.mask, *max = into->max;
    float *o = into->o;
    const double scale = scale_left(t);
    const int64_t nr = t->k->nr;
    for (int64_t r = 0; r < p->rows.count; r++) {
        if (mask[key * nr + r] == -INFINITY) continue;
        const double weight = weights ? (double)s[key * nr + r] : exp(scale * (double)s[key * nr + r] - (double)max[r]);
        o[r * t->plan->o_stride + column] += (float)(weight * value);
    }
}

static void add_values_not_finite(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t first,
                                  int64_t end, bool weights, const mha__partial *into)
{
    const mha__run run = values_run(t, b->start, end - b->start);
    const uint16_t *v = run.data;
    for (int64_t key = first - b->start; key < end - b->start; key++)
        for (int64_t c = 0; c < t->plan->desc.v_head_dim; c++) {
            const double value = (double)mha__bf16_to_f32(v[key * run.row + c * run.col]);
            if (!isfinite(value)) add_value(t, p, key, weights, value, c, into);
        }
}

/* Computes softmax and P V with dropout. Computes the weights as reals first, because dropout is applied before they
 * are rounded to bf16. */
static void attend_dropped(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t first, int64_t end,
                           const mha__partial *into)
{
    const mha__scratch *x = &t->scratch;
    void *s = mha__tile_at(t, x->s, (first - b->start) * t->k->nr);
    t->k->softmax(end - first, p->rows.count, x->top, s, into->max, into->sum, x->alpha);
    mha__dropout_apply(t->call, x, &p->rows, first, end, s);
    t->pairs->values(first - b->start, end - b->start, p->rows.count, t->plan->desc.v_head_dim, x->s, b->v.data,
                     b->v.panel, x->alpha, into->o, t->plan->o_stride);
}

void mha__pairs_attend(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t first, int64_t end,
                       const mha__partial *into)
{
    const bool dropped = mha__dropout_on(&t->plan->desc);
    if (dropped)
        attend_dropped(t, p, b, first, end, into);
    else if (b->v.panel == 0)
        t->pairs->attend_rows(first - b->start, end - b->start, p->rows.count, t->plan->desc.v_head_dim, scale_left(t),
                              t->scratch.top, t->scratch.s, b->v.data, b->v.row, into, t->plan->o_stride);
    else
        t->pairs->attend(first - b->start, end - b->start, p->rows.count, t->plan->desc.v_head_dim, scale_left(t),
                         t->scratch.top, t->scratch.s, b->v.data, b->v.panel, into, t->plan->o_stride);
    if (t->careful) add_values_not_finite(t, p, b, first, end, dropped, into);
}
