/* query_tile.c - opens a tile of queries and its panels. */
#include "attn/forward/query_tile.h"

#include "attn/forward/task_rows.h"
#include "attn/plan/rotary.h"
#include "math/types/q4_0.h"
#include <string.h>

char *mha__tile_scratch(const mha__call *call, int worker)
{
    return call->workspace + (size_t)worker * call->plan->worker_bytes;
}

bool mha__tile_is_decode(const mha__tile *t)
{
    const mha_attn_args *a = &t->call->args;
    return t->rows.count <= t->plan->decode_rows && !t->careful && a->k.stride[3] == 1 && a->v.stride[3] == 1;
}

/* The queries of a tile: element (r, i) is at index r * row + i * col. */
typedef struct queries {
    const void *at;
    int64_t row, col;
} queries;

/* Returns the queries in the type that the kernels pack: bf16 for pairs, otherwise reals. */
static queries queries_of(const mha__tile *t)
{
    const mha_cview *q = &t->call->args.q;
    const mha__stored *as = &t->plan->q;
    const int64_t rows = t->rows.count, d = t->plan->desc.head_dim;
    queries from = {mha__at(q, as->size, t->rows.b, t->rows.h, t->rows.first, 0), q->stride[2], q->stride[3]};
    if (t->scratch.folded) {
        mha__copy_queries(t->call, t->rows.b, t->rows.h, t->rows.first, rows, t->scratch.folded);
        from = (queries){t->scratch.folded, d, 1};
    }
    if (t->pairs || (!as->widen && !t->plan->rotated)) return from;
    if (as->widen)
        as->widen(rows, d, from.at, from.row, from.col, t->scratch.wide, d);
    else
        t->k->gather(rows, d, from.at, from.row, from.col, t->scratch.wide, d, d);
    if (t->plan->rotated) mha__rotate_rows(rows, d, t->scratch.wide, d);
    return (queries){t->scratch.wide, d, 1};
}

/* Copies the pairs of few queries from the panel without its unused lanes, which would take up much of the L1 cache. */
static void pack_decode_pairs(const mha__tile *t)
{
    const size_t each = (size_t)t->rows.count * t->k->real_size;
    const int64_t depth = mha__tile_depth(t), nr = t->k->nr;
    for (int64_t i = 0; i < depth; i++)
        memcpy((char *)mha__tile_decode_q(t) + (size_t)i * each, mha__tile_at(t, t->scratch.q, i * nr), each);
}

static void pack_queries(const mha__tile *t)
{
    const queries q = queries_of(t);
    const int64_t rows = t->rows.count, d = t->plan->desc.head_dim;
    const bool decode = mha__tile_is_decode(t);
    if (t->pairs) {
        t->pairs->pack_queries(rows, d, q.at, q.row, q.col, t->scratch.q);
        if (decode) pack_decode_pairs(t);
    } else if (!decode) {
        t->k->pack_rows(rows, d, q.at, q.row, q.col, t->scratch.q);
    } else if (rows == 1) {
        t->k->gather(1, d, q.at, q.row, q.col, mha__tile_decode_q(t), d, d);
    } else {
        t->k->gather(d, rows, q.at, q.col, q.row, mha__tile_decode_q(t), rows, rows);
    }
}

static mha__panel panel_at(const mha__tile *t, int64_t row)
{
    mha__panel p = {.rows = t->rows, .row = row, .q = mha__tile_at(t, t->scratch.q, row * mha__tile_depth(t))};
    p.rows.first += row;
    p.rows.position += row;
    p.rows.count = mha__min64(t->k->nr, t->rows.count - row);
    p.rows.lo += row;
    p.rows.hi += row;
    p.rows.prefix += row;
    const bool uniform = t->span.common_lo <= t->span.lo && t->span.hi <= t->span.common_hi;
    p.span = uniform ? t->span : mha__mask_span(&p.rows);
    return p;
}

void mha__tile_set_panels(mha__tile *t)
{
    for (int64_t row = 0; row < t->rows.count; row += t->k->nr)
        t->panels[row / t->k->nr] = panel_at(t, row);
}

bool mha__tile_open(mha__tile *t, const mha__call *call, int64_t task, int worker)
{
    const mha_attn_plan *plan = call->plan;
    mha__rows *r = &t->rows;
    t->plan = plan;
    t->k = plan->kernels;
    t->pairs = plan->pairs;
    t->careful = t->merged = false;
    t->raw = mha__pairs_raw(plan);
    t->task = task;
    mha__scratch_lay_out(plan, mha__tile_scratch(call, worker), &t->scratch);
    t->call = mha__task_rows(call, task, r, &t->own);
    if (r->count <= 0) return false;
    t->kv_head = r->h / plan->group;
    r->lo = t->scratch.lo, r->hi = t->scratch.hi, r->prefix = t->scratch.prefix;
    mha__mask_intervals(call, r->b, r->first, r->count, t->scratch.lo, t->scratch.hi, t->scratch.prefix);
    t->span = mha__mask_tile(call, r);
    mha__tile_set_panels(t);
    pack_queries(t);
    if (t->pairs) t->pairs->open();
    return true;
}

void mha__tile_be_careful(mha__tile *t)
{
    const int64_t rows = t->rows.count;
    if (mha__tile_is_decode(t) && !t->pairs)
        t->k->pack_rows(rows, t->plan->desc.head_dim, mha__tile_decode_q(t), 1, rows, t->scratch.q);
    t->careful = true;
}

void mha__tile_close(const mha__tile *t)
{
    if (t->pairs) t->pairs->close();
}
