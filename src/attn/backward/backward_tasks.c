/* backward_tasks.c - runs the tasks of the backward pass. A task processes the tiles of a part of a head group in
 * order. */
#include "attn/backward/backward.h"
#include "attn/forward/staging.h"
#include "attn/plan/rotary.h"
#include "attn/plan/run_tasks.h"
#include "base/error.h"
#include <math.h>

/* Returns the terms of dslopes, dsinks and dgates, summed over the rows of the tile in ascending order. */
static mha__bwd_sums sums_of(const mha__bwd_tile *t)
{
    const uint32_t in = t->t.plan->desc.inputs;
    const double sink = in & MHA_ATTN_SINKS ? mha__tile_per_head(&t->t, &t->t.call->args.sinks) : -INFINITY;
    const size_t size = t->t.k->real_size;
    mha__bwd_sums sums = {0};
    for (int64_t r = 0; r < t->t.rows.count; r++) {
        const double inverse = mha__real_at(t->x.inverse, r, size), lse = mha__real_at(t->x.lse, r, size);
        sums.slope += mha__real_at(t->x.slopes, r, size);
        sums.gate += mha__real_at(t->x.dots, r, size);
        if (sink > -INFINITY && inverse != 0)
            sums.sink -= exp(sink - lse) * inverse * mha__real_at(t->x.delta, r, size);
    }
    return sums;
}

/* Writes row_taylor of a tile. Rows that the tile does not contain attend to no key, and their row_taylor is 0. */
static void write_taylor(const mha__bwd_tile *t, int64_t b, int64_t result, int64_t first)
{
    const size_t size = t->call->call.plan->kernels->real_size;
    const mha_view *view = &t->call->grads.row_taylor;
    const int64_t rows = mha__min64(MHA__TILE_Q, mha__rows_of(&t->call->call, b) - first);
    char *to = mha__at_out(view, size, b, result, first, 0);
    for (int64_t r = 0; r < rows; r++)
        mha__put_real(to, r * view->stride[2], size, r < t->t.rows.count ? mha__real_at(t->x.taylor, r, size) : 0);
}

/* Adds the gradient terms of one tile of head h, which has index `result` in the outputs. */
static void add_head(mha__bwd_tile *t, int64_t b, int64_t h, int64_t result, int64_t tile)
{
    mha__bwd_sums sums = {0};
    if (mha__bwd_open(t, b, h, result, tile * MHA__TILE_Q)) {
        const int64_t lo = t->t.span.lo / MHA__KEY_BLOCK * MHA__KEY_BLOCK;
        for (int64_t start = lo; start < t->t.span.hi; start += MHA__KEY_BLOCK) {
            int64_t first, end;
            if (mha__mask_block(t->t.call, &t->t.rows, &t->t.span, start, &first, &end)) mha__bwd_pair(t, start);
        }
        sums = sums_of(t);
    }
    if (t->call->grads.row_taylor.data) write_taylor(t, b, result, tile * MHA__TILE_Q);
    if (t->call->call.plan->bwd.head_sums) *mha__bwd_head_sums(t->call, b, result, tile) = sums;
}

/* Processes one tile of head h for every index that the head has in the outputs. A list of heads may contain a head
 * several times, or not at all.
 */
static void attend_tile(mha__bwd_tile *t, int64_t b, int64_t h, int64_t tile)
{
    const mha__call *call = &t->call->call;
    const mha_attn_plan *plan = call->plan;
    const mha_view *dq = &t->call->grads.dq;
    const mha__kernels *k = plan->kernels;
    const int64_t stride = plan->bwd.q_stride, first = tile * MHA__TILE_Q;
    if (dq->data) k->fill(MHA__TILE_Q * stride, 0, t->x.dq);
    if (call->args.head_list)
        for (int64_t n = 0; n < plan->desc.listed_heads; n++) {
            if (call->args.head_list[n] == h) add_head(t, b, h, n, tile);
        }
    else
        add_head(t, b, h, h, tile);
    const mha__bwd_turn turn = {call, mha__rope_of_row, b, first, mha__mask_queries(call, b) - first};
    if (dq->data)
        mha__bwd_write(k, &plan->q, mha__min64(MHA__TILE_Q, mha__rows_of(call, b) - first), plan->desc.head_dim,
                       t->x.dq, stride, plan->desc.scale, plan->desc.inputs & MHA_ATTN_ROPE_Q ? &turn : NULL,
                       mha__at_out(dq, plan->q.size, b, h, first, 0), dq, &t->x.base);
}

void mha__bwd_task(void *arg, int64_t item, int worker)
{
    const mha__bwd_call *all = arg;
    const mha_attn_plan *plan = all->call.plan;
    const mha__bwd_plan *w = &plan->bwd;
    const int64_t part = item % w->parts, g = item / w->parts % plan->desc.kv_heads;
    const int64_t b = item / w->parts / plan->desc.kv_heads, slot = w->slots == w->tasks ? item : worker;
    mha__bwd_call own;
    mha__bwd_tile t = {.call = mha__bwd_sequence_call(all, b, &own)};
    const mha__call *call = &t.call->call;
    const int64_t keys = mha__keys_of(call, b), tiles = mha__bwd_tiles(call, b);
    int64_t per_part;
    if (part >= mha__bwd_parts(call, b, &per_part)) return;
    mha__bwd_begin(&t, worker);
    mha__bwd_sums_of(t.call, b, g, part, slot, &t.dk, &t.dv);
    if (!t.call->grads.dk.data) t.dk = NULL;
    if (!t.call->grads.dv.data) t.dv = NULL;
    if (t.dk) plan->kernels->fill(keys * w->q_stride, 0, t.dk);
    if (t.dv) plan->kernels->fill(keys * w->v_stride, 0, t.dv);
    const int64_t end = mha__min64(plan->group * tiles, (part + 1) * per_part);
    for (int64_t n = part * per_part; n < end; n++)
        attend_tile(&t, b, g * plan->group + n / tiles, n % tiles);
    mha__tile_close(&t.t);
    if (!mha__bwd_keeps_sums(plan)) mha__bwd_write_keys(t.call, b, g, 0, keys, slot, &t.x.base);
}

static mha_status run(mha__bwd_call *call, int64_t count, mha__task_fn task, mha_error *err)
{
    const mha_attn_plan *plan = call->call.plan;
    return mha__attn_run(plan->ctx, plan->bwd.workers, count, task, call, err);
}

mha_status mha__bwd_run_all(mha__bwd_call *call, mha_error *err)
{
    const mha_attn_plan *plan = call->call.plan;
    const mha_attn_grads *g = &call->grads;
    MHA__TRY(mha__stage_backward(&call->call, err));
    const bool keys = g->dk.data || g->dv.data, heads = g->dslopes.data || g->dsinks.data || g->dgates.data;
    if (keys || heads || g->dq.data || g->row_taylor.data) MHA__TRY(run(call, plan->bwd.tasks, mha__bwd_task, err));
    if (keys && plan->bwd.parts > 1) MHA__TRY(run(call, mha__bwd_merges(call), mha__bwd_merge, err));
    if (keys && (plan->desc.inputs & MHA_ATTN_BLOCK_TABLE)) {
        mha__bwd_list_uses(call);
        MHA__TRY(run(call, mha__bwd_pages(call), mha__bwd_page, err));
    }
    if (heads) mha__bwd_write_heads(call);
    return g->dbias.data ? run(call, mha__bwd_bias_tasks(call), mha__bwd_bias, err) : MHA_OK;
}
