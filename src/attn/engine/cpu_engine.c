/* cpu_engine.c - the CPU engine: divides the work of a plan into tasks and runs them. */
#include "attn/engine/cpu_engine.h"

#include "attn/backward/backward.h"
#include "attn/forward/chunk_merge.h"
#include "attn/forward/online_softmax.h"
#include "attn/forward/staging.h"
#include "attn/plan/operand_table.h"
#include "attn/plan/params.h"
#include "attn/plan/run_tasks.h"
#include "attn/plan/scratch.h"
#include "attn/stats/attention_stats.h"
#include "base/error.h"
#include "base/size.h"
#include "math/types/element.h"

/* Calls with fewer operations run on the calling thread. They take about 10 us on one core, as long as waking a
 * sleeping thread. */
static const double ALONE_FLOPS = 2e6;

/* The time of a byte of K and V, and of a task, in operations: short calls are bound by reading keys or by their tasks
 * as often as by operations. */
static const double BYTE_FLOPS = 3, TASK_FLOPS = 5e4;

/* In a plan with gradients, only this many workers are guaranteed forward scratch memory. More workers get it only if
 * the backward pass needs as much memory anyway. The memory of training thus depends on the shape, not on the number of
 * threads. */
enum { WORKERS_FREE = 64 };

/* Returns the flags of the operands that a folded call may have, with one query per head or with several. */
static uint32_t folding(uint32_t (*flags_with)(uint32_t facts), bool one)
{
    return flags_with(MHA__FOLDS) | flags_with(MHA__FOLDS_ROWS) | (one ? flags_with(MHA__FOLDS_ONE) : 0);
}

/* Returns the reason why a plan is not folded; NULL if it is folded. Folding treats the queries of all heads of a group
 * as rows of one tile. K and V are then read once per group, and more lanes are used. No input or output may differ per
 * head, because with more than one query, heads and rows have no common stride, which masks, biases and maps require.
 * If there are too few keys to divide them into parts, enough tiles for several threads must remain after folding. Only
 * the shape determines the decision. */
static const char *why_unfolded(const mha_attn_plan *plan)
{
    enum { QUERIES_MAX = 16, TILES_MIN = 8 };
    const mha_attn_desc *d = &plan->desc;
    const bool one = d->q_len == 1;
    const uint32_t inputs = folding(mha__inputs_with, one), outputs = folding(mha__outputs_with, one);
    if (d->heads == d->kv_heads) return "each query head has its own keys and values";
    if (d->q_len < 1 || d->q_len > QUERIES_MAX || (!one && d->q_len * (d->heads / d->kv_heads) > MHA__TILE_Q))
        return "requires 1 to 16 queries per head, and at most one tile of rows per group";
    if ((d->inputs & ~inputs) || (d->outputs & ~outputs) || d->dropout != 0)
        return "an input or output differs per head";
    if (!one && d->kv_len <= MHA__KEY_BLOCK) return "few keys, which stay cached from one head to the next";
    if (!one && d->kv_len <= MHA_ATTN_CHUNK && d->batch * d->kv_heads < TILES_MIN &&
        mha__plan_flops(plan) >= ALONE_FLOPS)
        return "too few tiles for several threads";
    return NULL;
}

/* Returns the rows per tile: MHA__TILE_Q, or half as many if this would result in few tiles, whose keys cannot be
 * divided into parts. Smaller tiles take 1 to 3 % longer on one thread. Sums over the tiles of a head need whole
 * tiles. */
static int64_t rows_per_tile(const mha_attn_plan *plan)
{
    enum { TILES_MIN = 8 };
    const mha_attn_desc *d = &plan->desc;
    const bool whole = plan->packed || plan->folded || (d->outputs & (MHA_ATTN_STATS | MHA_ATTN_ROWS | MHA_ATTN_GRADS));
    const int64_t tiles = d->batch * plan->heads * mha__ceil_div(plan->rows, MHA__TILE_Q);
    if (whole || d->kv_len > MHA_ATTN_CHUNK || mha__plan_flops(plan) < ALONE_FLOPS) return MHA__TILE_Q;
    return tiles < TILES_MIN ? MHA__TILE_Q / 2 : MHA__TILE_Q;
}

/* Divides the keys into parts if tiles are few: into at most PARTS_MAX parts if a tile has few rows, otherwise so that
 * at most TASKS_MAX tasks result, because partial results of whole tiles take memory. Only the shape determines the
 * division, never the number of threads. */
static void split_keys(mha_attn_plan *plan)
{
    enum { PARTS_MAX = 64, TASKS_ENOUGH = 64, TASKS_MAX = 16, FEW_ROWS = 16 };
    const int64_t chunks = mha__ceil_div(plan->desc.kv_len, MHA_ATTN_CHUNK);
    const bool few_rows = plan->rows <= FEW_ROWS || plan->folded;
    const int64_t max = few_rows ? PARTS_MAX : TASKS_MAX / mha__max64(plan->tasks, 1);
    mha__partial part;
    plan->parts = plan->part_chunks = 1;
    plan->together = plan->desc.inputs & MHA_ATTN_HEAD_LIST ? 1 : plan->group;
    plan->part_bytes = 0;
    if (chunks <= 1 || max <= 1 || plan->packed || plan->tasks == 0 || plan->tasks >= TASKS_ENOUGH) return;
    if (!few_rows && (plan->desc.outputs & (MHA_ATTN_STATS | MHA_ATTN_ROWS))) return; /* heads are tasks there */
    while (mha__ceil_div(chunks, plan->part_chunks) > max)
        plan->part_chunks *= 2;
    plan->parts = mha__ceil_div(chunks, plan->part_chunks);
    plan->part_bytes = mha__part_lay_out(plan, NULL, &part);
}

/* Returns true if a call takes less time than waking other threads. */
static bool is_short(const mha_attn_plan *plan)
{
    const mha_attn_desc *d = &plan->desc;
    const int64_t widths =
        mha__element_count(plan->kv.dtype, d->head_dim) + mha__element_count(plan->kv.dtype, d->v_head_dim);
    const double bytes = (double)(plan->packed_keys ? 1 : d->batch) * (double)d->kv_heads * (double)d->kv_len *
                         (double)(widths * (int64_t)plan->kv.size);
    const double tasks = (double)plan->tasks * (double)plan->parts;
    return mha__plan_flops(plan) + BYTE_FLOPS * bytes + TASK_FLOPS * tasks < ALONE_FLOPS;
}

/* Returns the rows up to which a tile of few queries reads the keys of a chunk before its values. This was measured to
 * be faster on CPUs for which mha__cpu_streams returns true, for types that kernels multiply as they are stored, if all
 * sums of P V fit in the registers, and slower otherwise. */
static int rows_of_streams(const mha_attn_plan *plan)
{
    enum { ROWS_MAX = 3, VECTORS = 8 };
    const int64_t lanes = 2 * plan->kernels->decode_lanes;
    const bool converts = plan->kv.type >= 0 && !plan->pairs;
    return mha__cpu_streams() && !converts && plan->desc.v_head_dim <= VECTORS * lanes ? ROWS_MAX : 0;
}

static bool decode_of_pairs(const mha_attn_plan *plan)
{
    return plan->pairs->decode_scores && mha__pairs_raw(plan);
}

/* Returns the number of workers whose forward scratch memory fits in `bytes`. */
static int64_t workers_within(const mha_attn_plan *plan, size_t bytes)
{
    const size_t parts = plan->part_bytes * (size_t)(plan->tasks * plan->parts);
    return bytes > parts && plan->worker_bytes > 0 ? (int64_t)((bytes - parts) / plan->worker_bytes) : 0;
}

/* Returns the workspace size without the copies of operands. */
static size_t bytes_of_passes(const mha_attn_plan *plan)
{
    const size_t forward =
        plan->worker_bytes * (size_t)plan->workers + plan->part_bytes * (size_t)(plan->tasks * plan->parts);
    return plan->tasks == 0 || forward < plan->bwd.bytes ? plan->bwd.bytes : forward;
}

static mha_status lay_out(mha_attn_plan *plan, mha_error *err)
{
    const mha_attn_desc *d = &plan->desc;
    mha__scratch scratch;
    size_t bytes;
    plan->kernels = mha__kernels_of(plan->ctx, d->dtype);
    plan->q = mha__operand_stored(plan->kernels, d->dtype);
    plan->kv = mha__operand_stored(plan->kernels, d->kv_dtype);
    plan->rotated = d->kv_dtype == MHA_Q4_0;
    plan->bias = mha__operand_stored(plan->kernels, d->bias_dtype);
    plan->pairs = plan->q.dtype == MHA_BF16 && plan->kv.dtype == MHA_BF16 ? plan->kernels->pairs : NULL;
    plan->packed = (d->inputs & MHA_ATTN_CU_SEQLENS) != 0;
    plan->packed_keys = plan->packed && !(d->inputs & MHA_ATTN_BLOCK_TABLE);
    plan->unfolded = why_unfolded(plan);
    plan->folded = !plan->unfolded;
    plan->group = plan->folded ? 1 : d->heads / d->kv_heads;
    plan->heads = plan->folded ? d->kv_heads : d->listed_heads;
    plan->rows = plan->folded ? d->heads / d->kv_heads * d->q_len : d->q_len;
    plan->tile_rows = rows_per_tile(plan);
    plan->tiles = mha__ceil_div(plan->rows, plan->tile_rows);
    if (plan->packed && d->q_len > 0) plan->tiles = d->q_len / MHA__TILE_Q + d->batch;
    plan->tasks = (plan->packed ? 1 : d->batch) * plan->heads * plan->tiles;
    plan->levels = mha__merge_levels(d->kv_len);
    plan->weights = plan->pairs ? MHA_BF16 : d->dtype == MHA_F64 ? MHA_F64 : MHA_F32;
    plan->o_stride = mha__padded(plan->kernels, d->v_head_dim);
    plan->wide = !plan->pairs && mha__max64(d->head_dim, d->v_head_dim) > MHA__WIDE;
    split_keys(plan);
    plan->workers = is_short(plan) || plan->tasks * plan->parts <= 1 ? 1 : mha__threads(plan->ctx);
    plan->positional = mha__attn_positional(d);
    plan->scored = (d->inputs & mha__inputs_with(MHA__ON_SCORES)) != 0;
    plan->single_block = mha__fwd_why_not_single_block(plan) == NULL;
    plan->streams = rows_of_streams(plan);
    plan->decode_rows = plan->single_block || (plan->pairs && !decode_of_pairs(plan)) ? 0 : plan->kernels->decode_lanes;
    plan->worker_bytes =
        plan->single_block ? mha__fwd_single_block_bytes(plan) : mha__scratch_lay_out(plan, NULL, &scratch);
    if (!mha__mul(plan->worker_bytes, (size_t)plan->workers, &bytes))
        return mha__fail(err, MHA_ERR_ARG, "the workspace must fit the address space (got %d threads)", plan->workers);
    if (!(d->outputs & MHA_ATTN_GRADS)) return mha__stage_lay_out(plan, bytes_of_passes(plan), err);
    MHA__TRY(mha__bwd_lay_out(plan, err));
    plan->workers = (int)mha__min64(plan->workers, mha__max64(WORKERS_FREE, workers_within(plan, plan->bwd.bytes)));
    return mha__stage_lay_out(plan, bytes_of_passes(plan), err);
}

static size_t workspace(const mha_attn_plan *plan)
{
    const mha__staging *s = &plan->staging;
    const size_t staged = s->k + s->v + s->q;
    return staged > 0 ? s->at + staged : bytes_of_passes(plan);
}

static mha_status run(mha__call *call, int64_t count, mha__task_fn task, mha_error *err)
{
    return mha__attn_run(call->plan->ctx, call->plan->workers, count, task, call, err);
}

static mha_status forward(mha__call *call, mha_error *err)
{
    const mha_attn_plan *plan = call->plan;
    MHA__TRY(mha__stage_forward(call, err));
    if (plan->parts > 1) MHA__TRY(run(call, plan->tasks * plan->parts, mha__fwd_part, err));
    if (mha__stats_receives(call) || (plan->desc.outputs & MHA_ATTN_ROWS))
        return run(call, plan->tiles > 0 ? plan->tasks / plan->tiles : 0, mha__fwd_head, err);
    return run(call, plan->tasks, plan->single_block ? mha__fwd_single_block : mha__fwd_tile, err);
}

const mha__attn_engine mha__cpu_engine = {lay_out, workspace, forward, mha__bwd_run_all, mha__cpu_describe};
