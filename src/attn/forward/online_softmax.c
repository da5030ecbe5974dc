/* online_softmax.c - the forward pass of one tile of queries: online softmax over blocks of keys, which form chunks
 * that are merged in a tree.
 *
 * For each block of keys and each panel of nr queries, one query per lane:
 *
 *     S^T = scale K Q^T  ->  cap, bias, masks  ->  P^T = exp(S^T - max)  ->  O = O * alpha + P V
 *
 * Blocks and chunks begin at multiples of their length, and a masked key adds an exact zero. A row is therefore bitwise
 * identical, regardless of the other rows in its tile. Keys that no row of a panel attends to are skipped one by one.
 *
 * A masked key's weight is 0, and 0 * NaN would be NaN. If the result of a tile is not finite, the tile is computed
 * again with the masked keys of V skipped one by one (`careful`). Finite data never incurs this cost.
 */
#include "attn/forward/online_softmax.h"

#include "attn/forward/chunk_merge.h"
#include "attn/forward/query_tile.h"
#include "attn/mask/attention_dropout.h"
#include "attn/stats/attention_stats.h"
#include "math/types/q4_0.h"
#include <string.h>

/* Accumulates the attention of one panel of queries over one block of keys into the partial result `into`. */
static void attend_panel(const mha__tile *t, int64_t row, const mha__block *b, mha__prefetch_schedule *prefetch,
                         const mha__partial *into)
{
    const mha__panel *p = mha__tile_panel(t, row);
    int64_t first, end;
    if (!mha__mask_block(t->call, &p->rows, &p->span, b->start, &first, &end)) return;
    const mha__scratch *x = &t->scratch;
    const mha__partial rows = {mha__tile_at(t, into->max, row), mha__tile_at(t, into->sum, row),
                               mha__tile_at(t, into->o, row * t->plan->o_stride)};
    void *s = mha__tile_at(t, x->s, t->pairs ? (first - b->start) * t->k->nr : 0);
    mha__block_scores(t, p, b, first, end, s, prefetch);
    if (t->careful)
        mha__mask_only(t->call, x, &p->rows, &p->span, first, end, s,
                       mha__tile_at(t, x->mask, t->pairs ? (first - b->start) * t->k->nr : 0));
    if (t->pairs) {
        mha__pairs_attend(t, p, b, first, end, &rows);
        return;
    }
    mha__tile_keep(t, p, first, end, s);
    t->k->softmax(end - first, p->rows.count, x->top, s, rows.max, rows.sum, x->alpha);
    if (mha__dropout_on(&t->plan->desc)) mha__dropout_apply(t->call, x, &p->rows, first, end, s);
    mha__block_add_values(t, p, b, first, end, rows.o, prefetch);
}

/* Adds the block of keys at `start`, which ends at `end` at the latest, to `into`. */
static void attend_block(const mha__tile *t, int64_t start, int64_t end, const mha__partial *into)
{
    const int64_t keys = mha__min64(MHA__KEY_BLOCK, end - start);
    int64_t first, last;
    if (!mha__mask_block(t->call, &t->rows, &t->span, start, &first, &last)) return;
    if (t->plan->wide && !t->careful) {
        mha__wide_attend(t, start, keys, into);
        return;
    }
    mha__block b = {.start = start, .k = mha__block_keys(t, start, keys)};
    if (!b.k.data) return;
    b.v = mha__block_values(t, start, keys);
    mha__prefetch_schedule prefetch = mha__tile_prefetch(t, start);
    for (int64_t row = 0; row < t->rows.count; row += t->k->nr)
        attend_panel(t, row, &b, prefetch.count > 0 ? &prefetch : NULL, into);
}

/* Computes one chunk of keys in `into`, an empty partial result. */
static void attend_chunk(const mha__tile *t, int64_t chunk, const mha__partial *into)
{
    const int64_t end = mha__min64((chunk + 1) * MHA_ATTN_CHUNK, t->span.hi);
    const bool decode = mha__tile_is_decode(t);
    t->k->clear(t->rows.count, t->plan->o_stride, into);
    for (int64_t start = chunk * MHA_ATTN_CHUNK, next; start < end; start = next) {
        next = decode ? mha__decode_attend(t, start, end, into) : start;
        if (next > start) continue;
        attend_block(t, start, end, into);
        next = start + MHA__KEY_BLOCK;
    }
}

static mha__merge_stack empty_stack(mha__tile *t)
{
    const mha_attn_plan *plan = t->plan;
    mha__merge_stack stack = {.kernels = t->k,
                              .rows = t->rows.count,
                              .dv = plan->desc.v_head_dim,
                              .o_stride = plan->o_stride,
                              .level = t->scratch.partial,
                              .levels = plan->levels};
    return stack;
}

/* Computes chunks [first, end), at least one. The result is stored in scratch memory. */
static mha__partial attend_chunks(mha__tile *t, int64_t first, int64_t end)
{
    mha__merge_stack stack = empty_stack(t);
    t->end = mha__min64(end * MHA_ATTN_CHUNK, t->span.hi);
    for (int64_t chunk = first; chunk < end; chunk++) {
        attend_chunk(t, chunk, &stack.level[stack.levels]);
        mha__merge_push(&stack, chunk, 0);
    }
    mha__merge_finish(&stack);
    return stack.level[stack.levels];
}

static mha__partial part_of(const mha__tile *t, int64_t part)
{
    const mha_attn_plan *plan = t->plan;
    const size_t before = plan->worker_bytes * (size_t)plan->workers;
    mha__partial p;
    mha__part_lay_out(plan, t->call->workspace + before + (size_t)(t->task * plan->parts + part) * plan->part_bytes,
                      &p);
    return p;
}

/* Merges the parts. The result is bitwise identical to attend_chunks, because parts are subtrees. */
static mha__partial merge_parts(mha__tile *t, int64_t first, int64_t end)
{
    mha__merge_stack stack = empty_stack(t);
    const int64_t size = t->plan->part_chunks;
    for (int64_t part = first / size; part * size < end; part++) {
        stack.level[stack.levels] = part_of(t, part);
        mha__merge_push(&stack, part, 0);
    }
    mha__merge_finish(&stack);
    return stack.level[stack.levels];
}

/* Return the chunks [first_chunk, end_chunk) that a tile needs. A tile that attends to no key still has one empty
 * chunk. */
static int64_t first_chunk(const mha__tile *t)
{
    return t->span.lo / MHA_ATTN_CHUNK;
}

static int64_t end_chunk(const mha__tile *t)
{
    return mha__max64(first_chunk(t) + 1, mha__ceil_div(t->span.hi, MHA_ATTN_CHUNK));
}

/* Returns the number of consecutive rows of one head in a tile: all rows, or q_len if the heads of a group are
 * folded. */
static int64_t rows_per_head(const mha__tile *t)
{
    const mha_attn_plan *plan = t->plan;
    return plan->folded && plan->desc.q_len > 1 ? plan->desc.q_len : t->rows.count;
}

/* Writes the partial result of a tile. Call it before the sink is added, because the sink applies to the whole row, not
 * to one shard of its keys. */
static void write_partial(const mha__tile *t, const mha__partial *from)
{
    const mha_view *view = &t->call->args.partial;
    const mha__rows *rows = &t->rows;
    const size_t size = t->k->real_size;
    const int64_t each = rows_per_head(t), step = mha__folded_stride(t->plan, view->stride), *stride = view->stride;
    char *all = mha__at_out(view, size, rows->b, rows->result, rows->first, 0);
    for (int64_t r = 0; r < rows->count; r++) {
        char *row = all + (r / each * step + r % each * stride[2]) * (int64_t)size;
        mha__put_real(row, 0, size, mha__real_at(from->max, r, size));
        mha__put_real(row, stride[3], size, mha__real_at(from->sum, r, size));
        for (int64_t d = 0; d < t->plan->desc.v_head_dim; d++)
            mha__put_real(row, (2 + d) * stride[3], size, mha__real_at(from->o, r * t->plan->o_stride + d, size));
    }
}

/* Computes the partial result of the tile over all keys. */
static mha__partial attend(mha__tile *t)
{
    const mha__partial result = (t->merged ? merge_parts : attend_chunks)(t, first_chunk(t), end_chunk(t));
    if (t->plan->desc.outputs & MHA_ATTN_PARTIAL) write_partial(t, &result);
    if (t->plan->desc.inputs & MHA_ATTN_SINKS)
        t->k->sink(t->rows.count, t->plan->desc.v_head_dim, t->plan->o_stride,
                   mha__tile_per_head(t, &t->call->args.sinks), &result);
    return result;
}

/* Writes rows [first, first + rows) of the tile, all from one head, to out and, if requested, to lse. Returns false if
 * out is not finite. */
static bool write_rows(const mha__tile *t, const mha__partial *result, int64_t first, int64_t rows, void *out,
                       void *lse)
{
    const mha_attn_plan *plan = t->plan;
    const mha_attn_args *a = &t->call->args;
    const int64_t dv = plan->desc.v_head_dim, row = a->out.stride[2], col = a->out.stride[3];
    const mha__scratch *x = &t->scratch;
    const void *scale = mha__tile_at(t, x->inverse, first), *o = mha__tile_at(t, result->o, first * plan->o_stride);
    t->k->totals(rows, mha__tile_at(t, result->max, first), mha__tile_at(t, result->sum, first),
                 mha__tile_at(t, x->inverse, first), lse, a->lse.stride[2]);
    if (plan->desc.inputs & MHA_ATTN_GATES) {
        t->k->gate(rows, mha__tile_per_head(t, &a->gates), scale, x->gated);
        scale = x->gated;
    }
    if (!plan->q.widen) return t->k->output(rows, dv, o, plan->o_stride, scale, out, row, col);
    const bool finite = t->k->output(rows, dv, o, plan->o_stride, scale, x->wide, dv, 1);
    plan->q.narrow(rows, dv, x->wide, dv, out, row, col);
    return finite;
}

/* Writes all rows of the tile, head by head. Returns false if out is not finite. */
static bool finish(const mha__tile *t, const mha__partial *result)
{
    const mha_attn_plan *plan = t->plan;
    const mha_attn_args *a = &t->call->args;
    const mha__rows *r = &t->rows;
    const int64_t each = rows_per_head(t);
    const int64_t out_step = mha__folded_stride(plan, a->out.stride) * (int64_t)plan->q.size;
    const int64_t lse_step = mha__folded_stride(plan, a->lse.stride) * (int64_t)t->k->real_size;
    char *out = mha__at_out(&a->out, plan->q.size, r->b, r->result, r->first, 0);
    char *lse =
        plan->desc.outputs & MHA_ATTN_LSE ? mha__at_out(&a->lse, t->k->real_size, r->b, r->result, r->first, 0) : NULL;
    bool finite = true;
    if (plan->rotated) mha__rotate_rows(r->count, plan->desc.v_head_dim, result->o, plan->o_stride);
    for (int64_t n = 0; n * each < r->count; n++)
        finite &= write_rows(t, result, n * each, each, out + n * out_step, lse ? lse + n * lse_step : NULL);
    return finite;
}

void mha__fwd_part(void *call, int64_t item, int worker)
{
    const mha_attn_plan *plan = ((const mha__call *)call)->plan;
    int64_t task, part;
    mha__tile t;
    mha__item_split(plan, item, &task, &part);
    if (!mha__tile_open(&t, call, task, worker)) return;
    const int64_t first = mha__max64(first_chunk(&t), part * plan->part_chunks);
    const int64_t end = mha__min64(end_chunk(&t), (part + 1) * plan->part_chunks);
    if (first >= end) {
        mha__tile_close(&t);
        return;
    }
    const mha__partial from = attend_chunks(&t, first, end), to = part_of(&t, part);
    mha__tile_close(&t);
    const size_t size = t.k->real_size, lanes = (size_t)mha__round_up(t.rows.count, t.k->vl);
    memcpy(to.max, from.max, lanes * size);
    memcpy(to.sum, from.sum, lanes * size);
    memcpy(to.o, from.o, (size_t)(t.rows.count * plan->o_stride) * size);
}

void mha__fwd_tile(void *call, int64_t task, int worker)
{
    mha__tile t;
    if (!mha__tile_open(&t, call, task, worker)) return;
    t.merged = t.plan->parts > 1;
    mha__partial result = attend(&t);
    if (!finish(&t, &result)) {
        mha__tile_be_careful(&t);
        t.merged = false;
        mha__scratch_lay_out(t.plan, mha__tile_scratch(call, worker),
                             &t.scratch); /* the merge of parts has overwritten this scratch memory */
        result = attend(&t);
        finish(&t, &result);
    }
    t.raw = false;
    if (t.plan->desc.outputs & (MHA_ATTN_PROBS | MHA_ATTN_STATS)) mha__tile_probabilities(&t, &result);
    if (t.plan->desc.outputs & MHA_ATTN_SCORES) mha__tile_write_scores(&t, &result);
    if (t.plan->desc.outputs & MHA_ATTN_ROWS) mha__tile_pass_rows(&t, &result);
    mha__tile_close(&t);
}

void mha__fwd_head(void *arg, int64_t head, int worker)
{
    const mha__call *call = arg;
    const mha_attn_plan *plan = call->plan;
    mha__scratch scratch;
    mha__scratch_lay_out(plan, call->workspace + (size_t)worker * plan->worker_bytes, &scratch);
    const bool receives = mha__stats_receives(call);
    if (receives) mha__stats_open_head(call, &scratch);
    for (int64_t n = plan->tiles - 1; n >= 0; n--) /* tasks are numbered from the last rows to the first: see
                                                    * task_rows.c */
        mha__fwd_tile(arg, head * plan->tiles + n, worker);
    if (receives) mha__stats_close_head(call, &scratch, head);
}
