/* plan.c - making, asking and running a plan. What it says about itself is in plan_describe.c. */
#include "attn/plan/plan.h"

#include "attn/backward/backward.h"
#include "attn/forward/forward_tiled.h"
#include "attn/plan/operand_table.h"
#include "attn/plan/params.h"
#include "attn/plan/scratch.h"
#include "attn/stats/attention_stats.h"
#include "base/error.h"
#include "base/size.h"
#include "math/q8_0.h"
#include <stdatomic.h>
#include <string.h>

/* Operations below which a call stays on its own thread: 10 us of one core, about what waking a sleeping thread
 * costs. */
static const double ALONE_FLOPS = 2e6;

/* A plan with gradients has scratch memory for more workers in the forward pass only where the backward pass needs as
 * much: what training takes has a bound in the shape. */
enum { WORKERS_FREE = 64 };

static int levels_of(int64_t kv_len)
{
    int levels = 1;
    while (mha__ceil_div(kv_len, MHA__CHUNK) >> levels)
        levels++;
    return levels;
}

int mha__chunk_level(int64_t key, int64_t keys)
{
    int level = 0;
    while (INT64_C(1) << level < keys / MHA__CHUNK + (keys % MHA__CHUNK > 0))
        level++;
    return key % MHA__CHUNK || key / MHA__CHUNK % (INT64_C(1) << level) ? -1 : level;
}

/* The one place that knows what the kernels call a storage type. */
mha__stored mha__operand_stored(const mha__kernels *k, mha_dtype dtype)
{
    static const int types[] = {[MHA_BF16] = 1 + MHA__BF16, [MHA_F16] = 1 + MHA__F16, [MHA_Q8_0] = 1 + MHA__Q8};
    const int type = (size_t)dtype < sizeof types / sizeof *types ? types[dtype] - 1 : -1;
    mha__stored as = {.dtype = dtype, .size = mha__element_size(dtype), .type = type};
    if (type >= 0) as.widen = k->widen[type];
    if (type >= 0 && type < MHA__HALVES) as.narrow = k->narrow[type];
    return as;
}

/* With few queries the heads of a group differ in nothing that a tile knows per head, unless one of these is on: then K
 * and V are read once for all of them, and more lanes are filled. More than one query have no single stride through
 * heads and rows, which masks, biases and maps would need; and of few keys, which are not cut into parts, there should
 * be tiles for several threads. By the shape alone. */
const char *mha__plan_unfolded(const mha_attn_plan *plan)
{
    enum { QUERIES_MOST = 16, TILES_LEAST = 8 };
    const mha_attn_desc *d = &plan->desc;
    const bool one = d->q_len == 1;
    const uint32_t inputs = mha__inputs_with(MHA__FOLDS) | (one ? mha__inputs_with(MHA__FOLDS_ONE) : 0);
    const uint32_t outputs = one ? MHA_ATTN_PROBS | MHA_ATTN_SCORES : 0;
    if (d->heads == d->kv_heads) return "each head has its own keys";
    if (d->q_len < 1 || d->q_len > QUERIES_MOST || (!one && d->q_len * (d->heads / d->kv_heads) > MHA__TILE_Q))
        return "not 1 to 16 queries per head, or more of a group than a tile has rows";
    if ((d->inputs & ~inputs) || (d->outputs & ~(outputs | MHA_ATTN_LSE | MHA_ATTN_PARTIAL)) || d->dropout != 0)
        return "an input or output is per head";
    if (!one && d->kv_len <= MHA__KEY_BLOCK) return "few keys, which stay in cache while the heads take turns";
    if (!one && d->kv_len <= MHA__CHUNK && d->batch * d->kv_heads < TILES_LEAST && mha__plan_flops(plan) >= ALONE_FLOPS)
        return "too few tiles for several threads";
    return NULL;
}

/* Few rows and few tiles: the keys are cut into at most PARTS_MOST parts. By the shape alone, whatever the threads. */
static void cut_keys(mha_attn_plan *plan)
{
    enum { PARTS_MOST = 64, TASKS_ENOUGH = 64, ROWS_MOST = 16 };
    const int64_t chunks = mha__ceil_div(plan->desc.kv_len, MHA__CHUNK);
    mha__partial part;
    plan->parts = plan->part_chunks = 1;
    plan->together = plan->desc.inputs & MHA_ATTN_HEAD_LIST ? 1 : plan->group;
    plan->part_bytes = 0;
    if (chunks <= 1 || plan->packed || plan->tasks == 0 || plan->tasks >= TASKS_ENOUGH) return;
    if (plan->rows > ROWS_MOST && !plan->folded) return;
    while (mha__ceil_div(chunks, plan->part_chunks) > PARTS_MOST)
        plan->part_chunks *= 2;
    plan->parts = mha__ceil_div(chunks, plan->part_chunks);
    plan->part_bytes = mha__part_carve(plan, NULL, &part);
}

static bool few_of_pairs(const mha_attn_plan *plan)
{
    return plan->pairs->few_scores && plan->desc.head_dim % 2 == 0 && mha__pairs_raw(plan);
}

/* Workers whose scratch memory of the forward pass fits into `bytes`. */
static int64_t room_for(const mha_attn_plan *plan, size_t bytes)
{
    const size_t parts = plan->part_bytes * (size_t)(plan->tasks * plan->parts);
    return bytes > parts && plan->worker_bytes > 0 ? (int64_t)((bytes - parts) / plan->worker_bytes) : 0;
}

static mha_status lay_out(mha_attn_plan *plan, mha_error *err)
{
    const mha_attn_desc *d = &plan->desc;
    mha__scratch scratch;
    size_t bytes;
    plan->kernels =
        d->dtype == MHA_F64 ? mha__kernels_f64(mha__ctx_isa(plan->ctx)) : mha__kernels_f32(mha__ctx_isa(plan->ctx));
    plan->q = mha__operand_stored(plan->kernels, d->dtype);
    plan->kv = mha__operand_stored(plan->kernels, d->kv_dtype);
    plan->bias = mha__operand_stored(plan->kernels, d->bias_dtype);
    plan->pairs = plan->q.dtype == MHA_BF16 && plan->kv.dtype == MHA_BF16 ? plan->kernels->pairs : NULL;
    plan->packed = (d->inputs & MHA_ATTN_CU_SEQLENS) != 0;
    plan->packed_keys = plan->packed && !(d->inputs & MHA_ATTN_BLOCK_TABLE);
    plan->folded = mha__plan_unfolded(plan) == NULL;
    plan->group = plan->folded ? 1 : d->heads / d->kv_heads;
    plan->heads = plan->folded ? d->kv_heads : d->listed_heads;
    plan->rows = plan->folded ? d->heads / d->kv_heads * d->q_len : d->q_len;
    plan->tiles = mha__ceil_div(plan->rows, MHA__TILE_Q);
    if (plan->packed && d->q_len > 0) plan->tiles = d->q_len / MHA__TILE_Q + d->batch;
    plan->tasks = (plan->packed ? 1 : d->batch) * plan->heads * plan->tiles;
    plan->levels = levels_of(d->kv_len);
    plan->o_stride = mha__round_up(d->v_head_dim, plan->kernels->nr);
    cut_keys(plan);
    plan->workers = mha__plan_flops(plan) < ALONE_FLOPS || plan->tasks * plan->parts <= 1 ? 1 : mha__threads(plan->ctx);
    plan->positional = mha__attn_positional(d);
    plan->scored = (d->inputs & mha__inputs_with(MHA__ON_SCORES)) != 0;
    plan->one_block = mha__fwd_why_not_one_block(plan) == NULL;
    plan->few = plan->one_block || (plan->pairs && !few_of_pairs(plan)) ? 0 : plan->kernels->few;
    plan->worker_bytes = plan->one_block ? mha__fwd_one_block_bytes(plan) : mha__scratch_carve(plan, NULL, &scratch);
    if (!mha__mul(plan->worker_bytes, (size_t)plan->workers, &bytes))
        return mha__fail(err, MHA_ERR_ARG, "the workspace must be countable in bytes (got %d threads)", plan->workers);
    if (!(d->outputs & MHA_ATTN_GRADS)) return MHA_OK;
    MHA__TRY(mha__bwd_lay_out(plan, err));
    plan->workers = (int)mha__min64(plan->workers, mha__max64(WORKERS_FREE, room_for(plan, plan->bwd.bytes)));
    return MHA_OK;
}

mha_status mha_attn_plan_create(mha_ctx *ctx, const mha_attn_desc *desc, mha_attn_plan **out, mha_error *err)
{
    mha_attn_desc resolved;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__ctx_find(&ctx, err));
    MHA__TRY(mha__attn_resolve(desc, &resolved, err));
    mha_attn_plan *plan = mha__calloc(ctx, 1, sizeof *plan);
    if (!plan) return mha__no_memory(err, sizeof *plan, "an attention plan");
    plan->ctx = ctx;
    plan->desc = resolved;
    const mha_status status = lay_out(plan, err);
    if (status != MHA_OK) {
        mha__free(ctx, plan);
        return status;
    }
    *out = plan;
    return MHA_OK;
}

void mha_attn_plan_free(mha_attn_plan *plan)
{
    if (plan) mha__free(plan->ctx, plan);
}

size_t mha_attn_plan_workspace(const mha_attn_plan *plan)
{
    if (!plan) return 0;
    const size_t forward =
        plan->worker_bytes * (size_t)plan->workers + plan->part_bytes * (size_t)(plan->tasks * plan->parts);
    return plan->tasks == 0 || forward < plan->bwd.bytes ? plan->bwd.bytes : forward;
}

typedef struct shared_tasks {
    mha__task_fn task;
    void *arg;
    int64_t count;
    _Atomic int64_t next;
} shared_tasks;

static void take_tasks(void *arg, int64_t scratch, int worker)
{
    shared_tasks *all = arg;
    (void)worker;
    for (;;) {
        const int64_t i = atomic_fetch_add_explicit(&all->next, 1, memory_order_relaxed);
        if (i >= all->count) return;
        all->task(all->arg, i, (int)scratch);
    }
}

void mha__attn_run(mha_ctx *ctx, int workers, int64_t count, mha__task_fn task, void *arg)
{
    shared_tasks all = {.task = task, .arg = arg, .count = count};
    if (workers > 1)
        mha__parallel(ctx, workers, take_tasks, &all);
    else
        take_tasks(&all, 0, 0);
}

static void run(mha__call *call, int64_t count, mha__task_fn task)
{
    mha__attn_run(call->plan->ctx, call->plan->workers, count, task, call);
}

mha_status mha_attn_forward(const mha_attn_plan *plan, const mha_attn_args *args, void *workspace,
                            size_t workspace_bytes, mha_error *err)
{
    mha__call call;
    if (!plan) return mha__fail(err, MHA_ERR_ARG, "plan must not be NULL");
    MHA__TRY(mha__attn_bind(plan, args, workspace, workspace_bytes, &call, err));
    if (plan->parts > 1) run(&call, plan->tasks * plan->parts, mha__fwd_part);
    if (mha__stats_receives(&call) || (plan->desc.outputs & MHA_ATTN_ROWS))
        run(&call, plan->tiles > 0 ? plan->tasks / plan->tiles : 0, mha__fwd_head);
    else
        run(&call, plan->tasks, plan->one_block ? mha__fwd_one_block : mha__fwd_tile);
    return MHA_OK;
}

mha_status mha_attention(mha_ctx *ctx, const mha_attn_desc *desc, const mha_attn_args *args, mha_error *err)
{
    mha_attn_plan *plan;
    MHA__TRY(mha_attn_plan_create(ctx, desc, &plan, err));
    const size_t bytes = mha_attn_plan_workspace(plan);
    void *workspace = mha__alloc(plan->ctx, bytes);
    mha_status status;
    if (bytes > 0 && !workspace)
        status = mha__no_memory(err, bytes, "the workspace of attention");
    else
        status = mha_attn_forward(plan, args, workspace, bytes, err);
    mha__free(plan->ctx, workspace);
    mha_attn_plan_free(plan);
    return status;
}
