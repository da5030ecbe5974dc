/* tile_prefetch.c - selects the memory to prefetch while a block is computed. Most of this memory is read soon
 * afterwards, and by one core only. Prefetching makes a batch of short sequences that does not fit in any cache a sixth
 * faster. */
#include "attn/forward/query_tile.h"
#include "attn/mask/block_mask.h"
#include "base/cpu.h"
#include "math/types/element.h"

/* Sizes in bytes. HELD: keys and values of a head up to this size are assumed to stay in the core's level-2 cache from
 * one task to the next; CPUs with AMX have a larger one (2 MiB). SCANT: below this size, prefetching does not pay
 * off. */
enum { HELD = 512 << 10, HELD_WITH_AMX = 1 << 20, SCANT = 4 << 10 };

/* Returns an index that identifies the keys and values of a task. */
static int64_t reads(const mha_attn_plan *plan, int64_t task)
{
    return task / (plan->tiles * plan->group);
}

/* Returns the bytes of the keys and values of a head. */
static int64_t bytes_of_head(const mha_attn_plan *plan)
{
    const mha_attn_desc *d = &plan->desc;
    return mha__element_count(d->kv_dtype, d->head_dim + d->v_head_dim) * d->kv_len * (int64_t)plan->kv.size;
}

/* Returns true if the previous task of this thread most likely read the same keys and values, so that they are still
 * cached. */
static bool is_held(const mha__tile *t)
{
    const int64_t before = t->task - t->plan->workers;
    const int64_t held = mha__cpu_has(MHA__AMX) ? HELD_WITH_AMX : HELD;
    return bytes_of_head(t->plan) <= held && before >= 0 && reads(t->plan, before) == reads(t->plan, t->task);
}

/* Adds rows [first, end) of a head to the prefetches, at most one block of rows. */
static void add(mha__prefetch_schedule *prefetch, const mha_cview *v, const mha__stored *as, int64_t b, int64_t h,
                int64_t first, int64_t end, int64_t width)
{
    const int64_t size = (int64_t)as->size, bytes = mha__element_count(as->dtype, width) * size;
    const int64_t rows = mha__min64(MHA__KEY_BLOCK, end - first);
    if (v->stride[3] != 1 || rows <= 0) return;
    mha__prefetch_range *range = &prefetch->range[prefetch->count++];
    *range = (mha__prefetch_range){mha__at(v, as->size, b, h, first, 0), rows, v->stride[2] * size, bytes};
    if (range->stride == range->bytes) range->bytes *= rows, range->rows = 1;
    prefetch->lines += range->rows * mha__ceil_div(range->bytes, MHA__LINE);
}

/* Adds the first queries, keys and values of the next task of this thread. Threads are assumed to take tasks in
 * turn. */
static void add_next_task(mha__prefetch_schedule *prefetch, const mha__call *call, int64_t task)
{
    const mha_attn_plan *plan = call->plan;
    const mha_attn_desc *d = &plan->desc;
    const mha_attn_args *a = &call->args;
    const int64_t next = task + plan->workers, head = next / plan->tiles;
    const int64_t b = head / plan->heads, h = head % plan->heads, g = h / plan->group;
    if (next >= plan->tasks || (d->inputs & (MHA_ATTN_CU_SEQLENS | MHA_ATTN_HEAD_LIST))) return;
    add(prefetch, &a->q, &plan->q, b, h, (plan->tiles - 1 - next % plan->tiles) * plan->tile_rows, plan->rows,
        d->head_dim);
    if ((d->inputs & MHA_ATTN_BLOCK_TABLE) || reads(plan, next) == reads(plan, task)) return;
    add(prefetch, &a->k, &plan->kv, b, g, 0, d->kv_len, d->head_dim);
    add(prefetch, &a->v, &plan->kv, b, g, 0, d->kv_len, d->v_head_dim);
}

static void add_out(mha__prefetch_schedule *prefetch, const mha__call *call, const mha__rows *rows)
{
    const mha_view *out = &call->args.out;
    const mha_cview written = {out->data, {out->stride[0], out->stride[1], out->stride[2], out->stride[3]}};
    add(prefetch, &written, &call->plan->q, rows->b, rows->result, rows->first, rows->first + rows->count,
        call->plan->desc.v_head_dim);
}

bool mha__too_few_to_prefetch(const mha_attn_plan *plan)
{
    return bytes_of_head(plan) <= SCANT;
}

void mha__task_prefetch(const mha__call *call, const mha__rows *rows, int64_t task, mha__prefetch_schedule *prefetch)
{
    add_out(prefetch, call, rows);
    add_next_task(prefetch, call, task);
}

static void add_next_block(mha__prefetch_schedule *prefetch, const mha__tile *t, int64_t start)
{
    const mha_attn_desc *d = &t->plan->desc;
    const mha_attn_args *a = &t->call->args;
    const int64_t next = start + MHA__KEY_BLOCK;
    add(prefetch, &a->k, &t->plan->kv, t->rows.b, t->kv_head, next, t->span.hi, d->head_dim);
    add(prefetch, &a->v, &t->plan->kv, t->rows.b, t->kv_head, next, t->span.hi, d->v_head_dim);
}

/* Adds the keys and values of the next block. For the last block, adds the output rows and the first data of the next
 * task. For pages, the hardware prefetcher is sufficient. Nothing is added for a few queries, whose kernels prefetch
 * what they read. */
mha__prefetch_schedule mha__tile_prefetch(const mha__tile *t, int64_t start)
{
    const mha_attn_plan *plan = t->plan;
    const bool dense = !(plan->desc.inputs & MHA_ATTN_BLOCK_TABLE);
    const int products = t->pairs ? 1 : 2; /* products per panel among which the prefetches are divided */
    mha__prefetch_schedule prefetch = {.products = (int)(products * mha__ceil_div(t->rows.count, t->k->nr))};
    if (t->rows.count <= t->k->decode_lanes || mha__too_few_to_prefetch(plan)) return prefetch;
    if (start + MHA__KEY_BLOCK >= t->span.hi)
        mha__task_prefetch(t->call, &t->rows, t->task, &prefetch);
    else if (dense && !is_held(t))
        add_next_block(&prefetch, t, start);
    return prefetch;
}

/* ---- prefetching for a few queries ---- */

/* Prefetch distances in bytes, at which data arrives before it is read: into the L2 cache (DISTANCE) and the L1 cache.
 * Tiles that stream are faster with a shorter distance: 16 instead of 32 keys of 512 bytes. */
enum { DISTANCE = 32 << 10, NEAR = 12 << 10, NEAR_STREAM = 8 << 10 };

/* Determines the work item that most likely follows on this thread. Threads are assumed to take items in turn. */
static bool next_item(const mha__tile *t, int64_t *b, int64_t *g, int64_t *start)
{
    const mha_attn_plan *plan = t->plan;
    const int64_t keys = MHA_ATTN_CHUNK * plan->part_chunks; /* number of keys per part */
    int64_t task = t->task + plan->workers, part = 0;
    if (plan->parts > 1 && !t->merged)
        mha__item_split(plan, mha__item_of(plan, t->task, (t->end - 1) / keys) + plan->workers, &task, &part);
    const int64_t head = task / plan->tiles;
    *b = head / plan->heads;
    *g = head % plan->heads / plan->group;
    *start = part * keys;
    return task < plan->tasks;
}

/* Returns the keys or values from `at` on, at most one block; after the end of this item, those of the next item. */
static mha__pieces pieces_from(const mha__tile *t, bool values, int64_t at)
{
    const mha_attn_desc *d = &t->plan->desc;
    const mha_attn_args *a = &t->call->args;
    int64_t b = t->rows.b, g = t->kv_head, first = at, end = t->end;
    if (at >= end) {
        const bool elsewhere = d->inputs & (MHA_ATTN_CU_SEQLENS | MHA_ATTN_HEAD_LIST) || d->window.left >= 0;
        if (elsewhere || !next_item(t, &b, &g, &first)) return (mha__pieces){0};
        first += at - mha__round_up(end, MHA__KEY_BLOCK);
        end = mha__mask_keys(t->call, b);
    }
    end = mha__min64(first + MHA__KEY_BLOCK, end);
    if (first < end && at < t->end && d->inputs & MHA_ATTN_BLOCK_KEEP)
        mha__blocks_narrow(t->call, &t->rows, &first, &end);
    if (first >= end) return (mha__pieces){0};
    return mha__keys_pieces(t->call, values ? &a->v : &a->k, values ? d->v_head_dim : d->head_dim, b, g, first, end);
}

/* Returns the first keys or values that are read after those of the block at `start`, of a run from `from` on. */
static const char *next_after(const mha__tile *t, bool values, int64_t from, int64_t start)
{
    const int64_t next = start + MHA__KEY_BLOCK;
    const bool last = !mha__tile_streams(t) || next % MHA_ATTN_CHUNK == 0 || next >= t->end; /* of the run */
    const mha__pieces p = pieces_from(t, values != last, !values && last ? from : next);
    return p.count > 0 ? p.piece[0].at : NULL;
}

/* Computes the lead here, because its division would delay the first prefetches of a kernel. */
mha__upcoming mha__decode_prefetch(const mha__tile *t, bool values, int64_t from, int64_t start)
{
    const mha_attn_desc *d = &t->plan->desc;
    const bool streams = mha__tile_streams(t);
    const int64_t width = values ? d->v_head_dim : d->head_dim;
    const int64_t row = mha__element_count(d->kv_dtype, width) * (int64_t)t->plan->kv.size,
                  bytes = row * MHA__KEY_BLOCK;
    mha__upcoming u = {.next = next_after(t, values, from, start),
                       .lead = mha__round_up(mha__ceil_div(streams ? NEAR_STREAM : NEAR, row), 16)};
    u.ascending = streams && (values ? &t->call->args.v : &t->call->args.k)->stride[2] == width;
    if (!streams) u.far = pieces_from(t, values, start + mha__ceil_div(DISTANCE, bytes) * MHA__KEY_BLOCK);
    return u;
}
