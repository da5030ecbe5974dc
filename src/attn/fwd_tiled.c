/* fwd_tiled.c - the forward pass of one tile of queries: blocks of keys with online softmax, chunks of blocks merged in
 * a tree.
 *
 * For each block of keys and each panel of queries (nr of them, one per lane):
 *
 *     S^T = scale K Q^T  ->  cap, bias, masks  ->  P^T = exp(S^T - max)  ->  O = O * alpha + P V
 *
 * Blocks and chunks begin at multiples of their length, and a key that a row may not see adds an exact zero, so a row's
 * bits do not depend on which other rows share its tile. Keys that no row of a panel sees are skipped, to the key.
 *
 * A masked key's weight is 0, and 0 * NaN would be NaN: if the result of a tile is not finite, the tile is computed
 * again with the masked keys of V passed over one by one (`careful`). That costs nothing until it happens.
 */
#include "attn/fwd_tiled.h"

#include "attn/dropout.h"
#include "attn/mask.h"
#include "attn/merge.h"
#include "attn/pages.h"
#include "attn/place.h"
#include "attn/stats.h"
#include "base/q8.h"
#include "base/size.h"
#include <string.h>

typedef struct tile {
    const mha__call *call; /* the caller's, or `own` */
    mha__call own;         /* with packed sequences: that of one sequence */
    const mha_attn_plan *plan;
    const mha__kernels *k;
    mha__scratch scratch;
    mha__rows rows; /* all of them */
    mha__span span;
    int64_t kv_head, task;
    bool careful;
    bool merged; /* the parts of the keys are done */
} tile;

/* V as the kernels want it: panel p of key j is at data + p * panel + j * row. */
typedef struct value_run {
    const void *data;
    int64_t row, panel;
} value_run;

/* A block of keys, from `start` on. */
typedef struct block {
    int64_t start;
    mha__run k; /* k.data is NULL if there are no keys: all in dropped pages. Reals, unless raw_keys() */
    value_run v;
} block;

/* One panel of a tile. */
typedef struct panel {
    mha__rows rows;
    mha__span span;
    int64_t row; /* first row within the tile */
    const void *q;
} panel;

static void *at(const tile *t, void *base, int64_t element)
{
    return (char *)base + element * (int64_t)t->k->real_size;
}

/* Slope, sink or gate of the tile's head. */
static double per_head(const tile *t, const mha_cview *view)
{
    return (double)*(const float *)mha__at(view, sizeof(float), t->rows.b, t->rows.h, 0, 0);
}

static panel panel_of(const tile *t, int64_t row)
{
    panel p = {.rows = t->rows, .row = row, .q = at(t, t->scratch.q, row * t->plan->desc.head_dim)};
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

/* True if keys of 16 bits are read as they are: few rows, so that a copy would cost more than it saves. */
static bool raw_keys(const tile *t)
{
    const int half = t->plan->kv.half;
    return (half == MHA__BF16 || half == MHA__F16) && t->rows.count <= t->k->few && t->call->args.k.stride[3] == 1;
}

/* Scaled products of keys [first, end) of a block into `s`, softcapped if `cap`. Returns whether scratch.top, their
 * maxima, still holds. */
static bool products(const tile *t, const panel *p, const block *b, int64_t first, int64_t end, bool cap, void *s,
                     const mha__ahead *ahead)
{
    const mha_attn_desc *d = &t->plan->desc;
    const int64_t keys = end - first, lanes = p->rows.count;
    const mha__run *k = &b->k;
    const bool raw = raw_keys(t);
    const size_t size = raw ? t->plan->kv.size : t->k->real_size;
    const void *from = (const char *)k->data + (first - b->start) * k->row * (int64_t)size;
    void *top = t->scratch.top;
    if (raw)
        t->k->scores_half(t->plan->kv.half, keys, d->head_dim, from, k->row, p->q, lanes, d->scale, s, top, ahead);
    else
        t->k->scores(keys, d->head_dim, from, k->row, k->col, p->q, lanes, d->scale, s, top, ahead);
    if (!cap || d->softcap == 0) return true;
    t->k->softcap(keys, lanes, d->softcap, s);
    return false;
}

/* Final scores of keys [first, end) of a block into `s`, and their maxima into scratch.top. */
static void scores(const tile *t, const panel *p, const block *b, int64_t first, int64_t end, void *s,
                   const mha__ahead *ahead)
{
    const bool holds = products(t, p, b, first, end, true, s, ahead);
    if (mha__mask_apply(t->call, &t->scratch, &p->rows, &p->span, first, end, s) || !holds)
        t->k->top(end - first, p->rows.count, s, t->scratch.top);
}

/* K is used where it lies; 16-bit numbers as reals in the scratch memory. */
static mha__run keys_of(const tile *t, int64_t start, int64_t keys)
{
    const int64_t d = t->plan->desc.head_dim;
    const mha__run run =
        mha__keys_run(t->call, &t->call->args.k, d, t->rows.b, t->kv_head, start, keys, t->scratch.gathered_k);
    if (t->plan->kv.half < 0 || !run.data || raw_keys(t)) return run;
    t->k->widen[t->plan->kv.half](keys, d, run.data, run.row, run.col, t->scratch.wide, d);
    return (mha__run){t->scratch.wide, d, 1};
}

/* V is used where it lies if its rows are adjacent and begin on whole vectors; else the block is packed. (Rows a few
 * KiB apart share few sets of the L1 cache, and vectors across two cache lines cost twice: both are slower than a
 * copy.) */
static value_run values_of(const tile *t, int64_t start, int64_t keys)
{
    const int64_t dv = t->plan->desc.v_head_dim, nr = t->k->nr, vl = t->k->vl, wide = t->plan->o_stride;
    const mha__run run =
        mha__keys_run(t->call, &t->call->args.v, dv, t->rows.b, t->kv_head, start, keys, t->scratch.gathered_v);
    if (t->plan->kv.half >= 0) {
        if (dv % vl) memset(t->scratch.v, 0, (size_t)(keys * wide) * t->k->real_size); /* whole vectors are read */
        t->k->widen[t->plan->kv.half](keys, dv, run.data, run.row, run.col, t->scratch.v, wide);
        return (value_run){t->scratch.v, wide, nr};
    }
    const size_t vector = (size_t)vl * t->k->real_size;
    if (run.col == 1 && run.row == dv && dv % vl == 0 && (uintptr_t)run.data % vector == 0)
        return (value_run){run.data, dv, nr};
    t->k->pack_cols(keys, dv, run.data, run.row, run.col, t->scratch.v);
    return (value_run){t->scratch.v, nr, keys * nr};
}

/* O = O * alpha + P V for keys [first, end). */
static void values(const tile *t, const panel *p, const block *b, int64_t first, int64_t end, void *o)
{
    const int64_t keys = end - first, rows = p->rows.count, dv = t->plan->desc.v_head_dim, stride = t->plan->o_stride;
    const value_run *v = &b->v;
    const void *from = (const char *)v->data + (first - b->start) * v->row * (int64_t)t->k->real_size;
    const mha__scratch *x = &t->scratch;
    if (!t->careful) {
        t->k->values(rows, dv, keys, x->s, from, v->row, v->panel, x->alpha, o, stride);
        return;
    }
    memset(x->mask, 0, (size_t)(keys * t->k->nr) * t->k->real_size);
    mha__mask_apply(t->call, x, &p->rows, &p->span, first, end, x->mask);
    t->k->values_masked(rows, dv, keys, x->s, x->mask, from, v->row, v->panel, x->alpha, o, stride);
}

/* ---- fetching ahead ---- */

/* True if a task is the first to read its keys and values: the tasks before it read others. */
static bool is_first_reader(const mha_attn_plan *plan, int64_t task)
{
    return task < plan->tasks && task % (plan->tiles * plan->group) == 0;
}

static mha__ahead rows_ahead(const mha_cview *v, const mha__stored *as, int64_t b, int64_t h, int64_t first,
                             int64_t end, int64_t width)
{
    const int64_t size = (int64_t)as->size;
    if (v->stride[3] != 1) return (mha__ahead){NULL, 0, 0, 0};
    return (mha__ahead){mha__at(v, as->size, b, h, first, 0), mha__min64(MHA__KEY_BLOCK, end - first),
                        v->stride[2] * size, mha__element_count(as->dtype, width) * size};
}

/* What to ask for while panel number `index` computes the scores of the block at `start`: first the values of this
 * block, then the keys of the next one; at the last block the keys and queries of the next task, which most likely
 * comes next on this thread. In a batch of short sequences, which no cache holds, this is worth 20 %. Keys in pages,
 * packed sequences and listed heads are left to the machine. */
static mha__ahead ahead_of(const tile *t, int64_t start, int64_t index)
{
    const mha_attn_desc *d = &t->plan->desc;
    const mha_attn_args *a = &t->call->args;
    const mha__stored *kv = &t->plan->kv;
    const int64_t next_block = start + MHA__KEY_BLOCK, next = t->task + 1, head = next / t->plan->tiles;
    const int64_t b = head / t->plan->heads, h = head % t->plan->heads;
    const bool dense = !(d->inputs & MHA_ATTN_BLOCK_TABLE);
    if (d->inputs & (MHA_ATTN_CU_SEQLENS | MHA_ATTN_HEAD_LIST)) return (mha__ahead){NULL, 0, 0, 0};
    const bool first = dense && is_first_reader(t->plan, t->task), last = next_block >= t->span.hi;
    if (index == 0 && first) return rows_ahead(&a->v, kv, t->rows.b, t->kv_head, start, t->span.hi, d->v_head_dim);
    if (index == 1 && first && !last)
        return rows_ahead(&a->k, kv, t->rows.b, t->kv_head, next_block, t->span.hi, d->head_dim);
    if (index == 1 && last && dense && is_first_reader(t->plan, next))
        return rows_ahead(&a->k, kv, b, h / t->plan->group, 0, d->kv_len, d->head_dim);
    if (index == 2 && last && next < t->plan->tasks) {
        const int64_t row = (t->plan->tiles - 1 - next % t->plan->tiles) * MHA__TILE_Q;
        return rows_ahead(&a->q, &t->plan->q, b, h, row, t->plan->rows, d->head_dim);
    }
    return (mha__ahead){NULL, 0, 0, 0};
}

/* ---- blocks and chunks ---- */

/* One panel and the keys of one block, added to `into`. */
static void attend_panel(const tile *t, int64_t row, const block *b, const mha__partial *into)
{
    const panel p = panel_of(t, row);
    int64_t first, end;
    if (!mha__mask_block(t->call, &p.rows, &p.span, b->start, &first, &end)) return;
    const mha__scratch *x = &t->scratch;
    const mha__ahead ahead = ahead_of(t, b->start, row / t->k->nr);
    scores(t, &p, b, first, end, x->s, ahead.rows > 0 ? &ahead : NULL);
    t->k->softmax(end - first, p.rows.count, x->top, x->s, at(t, into->max, row), at(t, into->sum, row), x->alpha);
    if (mha__dropout_on(&t->plan->desc)) mha__dropout_apply(t->call, x, &p.rows, first, end, x->s);
    values(t, &p, b, first, end, at(t, into->o, row * t->plan->o_stride));
}

/* The keys of one chunk, into an empty partial result. */
static void attend_chunk(const tile *t, int64_t chunk, const mha__partial *into)
{
    const int64_t end = mha__min64((chunk + 1) * MHA__CHUNK, t->span.hi);
    t->k->clear(t->rows.count, t->plan->o_stride, into);
    for (int64_t start = chunk * MHA__CHUNK; start < end; start += MHA__KEY_BLOCK) {
        const int64_t keys = mha__min64(MHA__KEY_BLOCK, end - start);
        int64_t first, last;
        if (!mha__mask_block(t->call, &t->rows, &t->span, start, &first, &last)) continue;
        block b = {.start = start, .k = keys_of(t, start, keys)};
        if (!b.k.data) continue;
        b.v = values_of(t, start, keys);
        for (int64_t row = 0; row < t->rows.count; row += t->k->nr)
            attend_panel(t, row, &b, into);
    }
}

static mha__merge_stack empty_stack(tile *t)
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

/* Chunks [first, end), at least one. The result lies in the scratch memory. */
static mha__partial attend_chunks(tile *t, int64_t first, int64_t end)
{
    mha__merge_stack stack = empty_stack(t);
    for (int64_t chunk = first; chunk < end; chunk++) {
        attend_chunk(t, chunk, &stack.level[stack.levels]);
        mha__merge_push(&stack, chunk);
    }
    mha__merge_finish(&stack);
    return stack.level[stack.levels];
}

static mha__partial part_of(const tile *t, int64_t part)
{
    const mha_attn_plan *plan = t->plan;
    const size_t before = plan->worker_bytes * (size_t)plan->workers;
    mha__partial p;
    mha__part_carve(plan, t->call->workspace + before + (size_t)(t->task * plan->parts + part) * plan->part_bytes, &p);
    return p;
}

/* The same as all chunks in turn, to the bit: parts are subtrees. */
static mha__partial merge_parts(tile *t, int64_t first, int64_t end)
{
    mha__merge_stack stack = empty_stack(t);
    const int64_t size = t->plan->part_chunks;
    for (int64_t part = first / size; part * size < end; part++) {
        stack.level[stack.levels] = part_of(t, part);
        mha__merge_push(&stack, part);
    }
    mha__merge_finish(&stack);
    return stack.level[stack.levels];
}

/* The chunks that a tile needs; one, and that empty, if it sees nothing. */
static int64_t first_chunk(const tile *t)
{
    return t->span.lo / MHA__CHUNK;
}

static int64_t end_chunk(const tile *t)
{
    return mha__max64(first_chunk(t) + 1, mha__ceil_div(t->span.hi, MHA__CHUNK));
}

/* All keys. */
static mha__partial attend(tile *t)
{
    const mha__partial result = (t->merged ? merge_parts : attend_chunks)(t, first_chunk(t), end_chunk(t));
    if (t->plan->desc.inputs & MHA_ATTN_SINKS)
        t->k->sink(t->rows.count, t->plan->desc.v_head_dim, t->plan->o_stride, per_head(t, &t->call->args.sinks),
                   &result);
    return result;
}

/* Writes out and, where asked for, lse. Returns false if out is not finite. */
static bool finish(const tile *t, const mha__partial *result)
{
    const mha_attn_plan *plan = t->plan;
    const mha_attn_args *a = &t->call->args;
    const mha__rows *r = &t->rows;
    void *lse =
        plan->desc.outputs & MHA_ATTN_LSE ? mha__at_out(&a->lse, t->k->real_size, r->b, r->result, r->first, 0) : NULL;
    void *out = mha__at_out(&a->out, plan->q.size, r->b, r->result, r->first, 0);
    const int64_t dv = plan->desc.v_head_dim, row = a->out.stride[2], col = a->out.stride[3];
    const mha__scratch *x = &t->scratch;
    t->k->totals(r->count, result->max, result->sum, x->inverse, lse, a->lse.stride[2]);
    const void *scale = x->inverse;
    if (plan->desc.inputs & MHA_ATTN_GATES) {
        t->k->gate(r->count, per_head(t, &a->gates), x->inverse, x->gated);
        scale = x->gated;
    }
    if (plan->q.half < 0) return t->k->output(r->count, dv, result->o, plan->o_stride, scale, out, row, col);
    const bool finite = t->k->output(r->count, dv, result->o, plan->o_stride, scale, x->wide, dv, 1);
    t->k->narrow[plan->q.half](r->count, dv, x->wide, dv, out, row, col);
    return finite;
}

/* The probabilities of one panel and the keys of one block, into the statistics and into probs, where every entry is
 * written, also those behind masks. */
static void panel_probabilities(const tile *t, const panel *p, const block *b, int64_t keys, const mha__partial *result)
{
    const mha_view *out = &t->call->args.probs;
    const uint32_t wanted = t->plan->desc.outputs;
    const int64_t nr = t->k->nr;
    const size_t size = t->k->real_size;
    int64_t first, end;
    if (wanted & MHA_ATTN_PROBS) memset(t->scratch.s, 0, (size_t)(keys * nr) * size);
    if (b->k.data && mha__mask_block(t->call, &p->rows, &p->span, b->start, &first, &end)) {
        void *s = at(t, t->scratch.s, (first - b->start) * nr);
        scores(t, p, b, first, end, s, NULL);
        const void *max = at(t, result->max, p->row);
        if (wanted & MHA_ATTN_STATS)
            mha__stats_panel(t->call, &t->scratch, &p->rows, p->row, b->start, first, end - first, max, s);
        else
            t->k->probs(end - first, p->rows.count, max, at(t, t->scratch.inverse, p->row), s);
    }
    if (!(wanted & MHA_ATTN_PROBS)) return;
    t->k->unpack(p->rows.count, keys, t->scratch.s,
                 mha__at_out(out, size, p->rows.b, p->rows.result, p->rows.first, b->start), out->stride[2],
                 out->stride[3]);
}

/* Scores again, now that maximum and sum are known. Keys that the tile does not see are not looked up. */
static void probabilities(const tile *t, const mha__partial *result)
{
    const int64_t Lk = t->plan->desc.kv_len;
    const uint32_t wanted = t->plan->desc.outputs;
    if (wanted & MHA_ATTN_STATS) mha__stats_open_tile(t->call, &t->scratch, &t->rows);
    for (int64_t start = 0; start < Lk; start += MHA__KEY_BLOCK) {
        const int64_t keys = mha__min64(MHA__KEY_BLOCK, Lk - start);
        int64_t first, end;
        const bool seen = mha__mask_block(t->call, &t->rows, &t->span, start, &first, &end);
        if (!seen && !(wanted & MHA_ATTN_PROBS)) continue;
        const block b = {.start = start, .k = seen ? keys_of(t, start, end - start) : (mha__run){0}};
        for (int64_t row = 0; row < t->rows.count; row += t->k->nr) {
            const panel p = panel_of(t, row);
            panel_probabilities(t, &p, &b, keys, result);
        }
    }
    if (wanted & MHA_ATTN_STATS) mha__stats_close_tile(t->call, &t->scratch, &t->rows, result);
}

/* ---- scores, written out ---- */

enum { LANES = 64 }; /* of the widest panel */

/* Into scratch.s, from zeros: what one panel and one block of `keys` keys come to at a stage that masks decide. What
 * they leave out stays 0, or becomes -inf. */
static void masked_stage(const tile *t, const panel *p, const block *b, int64_t keys, mha_scores stage,
                         const mha__partial *result)
{
    const int64_t lanes = p->rows.count;
    int64_t first, end, lo[LANES] = {0}, hi[LANES] = {0};
    const bool seen = b->k.data && mha__mask_block(t->call, &p->rows, &p->span, b->start, &first, &end);
    if (seen) {
        void *s = at(t, t->scratch.s, (first - b->start) * t->k->nr);
        scores(t, p, b, first, end, s, NULL);
        if (stage == MHA_SCORES_PROBS)
            t->k->probs(end - first, lanes, at(t, result->max, p->row), at(t, t->scratch.inverse, p->row), s);
    }
    if (stage == MHA_SCORES_PROBS) return;
    for (int64_t i = 0; i < lanes && seen; i++)
        lo[i] = first, hi[i] = end;
    t->k->interval(keys, lanes, b->start, lo, hi, t->scratch.s);
}

/* The same at a stage that knows no masks, only lengths. */
static void plain_stage(const tile *t, const panel *p, const block *b, int64_t keys, mha_scores stage)
{
    const int64_t lanes = p->rows.count, queries = mha__mask_queries(t->call, t->rows.b);
    const int64_t end = mha__min64(b->start + keys, mha__mask_keys(t->call, t->rows.b));
    int64_t lo[LANES] = {0}, hi[LANES] = {0};
    if (b->k.data) {
        products(t, p, b, b->start, end, stage == MHA_SCORES_SOFTCAPPED, t->scratch.s, NULL);
        mha__pages_mask(t->call, t->rows.b, b->start, end, lanes, t->scratch.s);
    }
    for (int64_t i = 0; i < lanes && b->k.data; i++)
        hi[i] = (t->plan->folded ? 0 : p->rows.first + i) < queries ? end : 0;
    t->k->interval(keys, lanes, b->start, lo, hi, t->scratch.s);
}

/* Every entry is written, also those behind masks; keys that are not needed are not looked up. */
static void write_scores(const tile *t, const mha__partial *result)
{
    const mha_view *out = &t->call->args.scores;
    const mha_scores stage = t->plan->desc.scores;
    const bool masked = stage == MHA_SCORES_BIASED || stage == MHA_SCORES_PROBS;
    const size_t size = t->k->real_size;
    const int64_t Lk = t->plan->desc.kv_len;
    for (int64_t start = 0; start < Lk; start += MHA__KEY_BLOCK) {
        const int64_t keys = mha__min64(MHA__KEY_BLOCK, Lk - start);
        int64_t first, end = mha__min64(start + keys, mha__mask_keys(t->call, t->rows.b));
        const bool needed = masked ? mha__mask_block(t->call, &t->rows, &t->span, start, &first, &end) : start < end;
        const block b = {.start = start, .k = needed ? keys_of(t, start, end - start) : (mha__run){0}};
        for (int64_t row = 0; row < t->rows.count; row += t->k->nr) {
            const panel p = panel_of(t, row);
            memset(t->scratch.s, 0, (size_t)(keys * t->k->nr) * size);
            if (masked)
                masked_stage(t, &p, &b, keys, stage, result);
            else
                plain_stage(t, &p, &b, keys, stage);
            t->k->unpack(p.rows.count, keys, t->scratch.s,
                         mha__at_out(out, size, p.rows.b, p.rows.result, p.rows.first, start), out->stride[2],
                         out->stride[3]);
        }
    }
}

static char *scratch_of(const mha__call *call, int worker)
{
    return call->workspace + (size_t)worker * call->plan->worker_bytes;
}

static void pack_queries(const tile *t)
{
    const mha_cview *q = &t->call->args.q;
    const mha__stored *as = &t->plan->q;
    const int64_t rows = t->rows.count, d = t->plan->desc.head_dim;
    const void *from = mha__at(q, as->size, t->rows.b, t->rows.h, t->rows.first, 0);
    if (as->half < 0) {
        t->k->pack_rows(rows, d, from, q->stride[2], q->stride[3], t->scratch.q);
    } else {
        t->k->widen[as->half](rows, d, from, q->stride[2], q->stride[3], t->scratch.wide, d);
        t->k->pack_rows(rows, d, t->scratch.wide, d, 1, t->scratch.q);
    }
}

/* Q is packed before anything is written, so out may lie on it. False if there is nothing to do. */
static bool open_tile(tile *t, const mha__call *call, int64_t task, int worker)
{
    const mha_attn_plan *plan = call->plan;
    mha__rows *r = &t->rows;
    t->plan = plan;
    t->k = plan->kernels;
    t->careful = t->merged = false;
    t->task = task;
    mha__scratch_carve(plan, scratch_of(call, worker), &t->scratch);
    t->call = mha__place(call, task, r, &t->own);
    if (r->count <= 0) return false;
    t->kv_head = r->h / plan->group;
    r->lo = t->scratch.lo, r->hi = t->scratch.hi, r->prefix = t->scratch.prefix;
    mha__mask_intervals(call, r->b, r->first, r->count, t->scratch.lo, t->scratch.hi, t->scratch.prefix);
    t->span = mha__mask_span(r);
    pack_queries(t);
    return true;
}

void mha__fwd_part(void *call, int64_t item, int worker)
{
    const mha_attn_plan *plan = ((const mha__call *)call)->plan;
    const int64_t part = item % plan->parts;
    tile t;
    if (!open_tile(&t, call, item / plan->parts, worker)) return;
    const int64_t first = mha__max64(first_chunk(&t), part * plan->part_chunks);
    const int64_t end = mha__min64(end_chunk(&t), (part + 1) * plan->part_chunks);
    if (first >= end) return;
    const mha__partial from = attend_chunks(&t, first, end), to = part_of(&t, part);
    const size_t size = t.k->real_size, lanes = (size_t)mha__round_up(t.rows.count, t.k->vl);
    memcpy(to.max, from.max, lanes * size);
    memcpy(to.sum, from.sum, lanes * size);
    memcpy(to.o, from.o, (size_t)(t.rows.count * plan->o_stride) * size);
}

void mha__fwd_tile(void *call, int64_t task, int worker)
{
    tile t;
    if (!open_tile(&t, call, task, worker)) return;
    t.merged = t.plan->parts > 1;
    mha__partial result = attend(&t);
    if (!finish(&t, &result)) {
        t.careful = true;
        t.merged = false;
        mha__scratch_carve(t.plan, scratch_of(call, worker), &t.scratch); /* the merge has put parts into it */
        result = attend(&t);
        finish(&t, &result);
    }
    if (t.plan->desc.outputs & (MHA_ATTN_PROBS | MHA_ATTN_STATS)) probabilities(&t, &result);
    if (t.plan->desc.outputs & MHA_ATTN_SCORES) write_scores(&t, &result);
}

void mha__fwd_head(void *arg, int64_t head, int worker)
{
    const mha__call *call = arg;
    const mha_attn_plan *plan = call->plan;
    mha__scratch scratch;
    mha__scratch_carve(plan, call->workspace + (size_t)worker * plan->worker_bytes, &scratch);
    mha__stats_open_head(call, &scratch);
    for (int64_t n = 0; n < plan->tiles; n++)
        mha__fwd_tile(arg, head * plan->tiles + n, worker);
    mha__stats_close_head(call, &scratch, head);
}
