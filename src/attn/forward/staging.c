/* staging.c - copies operands to the workspace: dense, in their storage type, rotated if the call rotates them. */
#include "attn/forward/staging.h"

#include "attn/forward/task_rows.h"
#include "attn/plan/kv_fetch.h"
#include "attn/plan/rotary.h"
#include "attn/plan/run_tasks.h"
#include "base/error.h"
#include "math/types/element.h"
#include <string.h>

/* ---- layout ---- */

/* Returns the size of rows of keys or values in bytes. */
static size_t row_bytes(const mha_attn_plan *plan, int64_t width)
{
    return (size_t)mha__element_count(plan->kv.dtype, width) * plan->kv.size;
}

/* Computes the size of `rows` rows per head, in whole cache lines. */
static bool size_of(int64_t batch, int64_t heads, int64_t rows, size_t row, size_t *bytes)
{
    enum { LINE = 64 };
    const int64_t shape[] = {batch, heads, rows};
    if (!mha__bytes(shape, 3, row, bytes) || *bytes > PTRDIFF_MAX - LINE) return false;
    *bytes = (*bytes + LINE - 1) / LINE * LINE;
    return true;
}

mha_status mha__stage_lay_out(mha_attn_plan *plan, size_t bytes, mha_error *err)
{
    const mha_attn_desc *d = &plan->desc;
    mha__staging *s = &plan->staging;
    const bool back = d->outputs & MHA_ATTN_GRADS, turns = d->inputs & MHA_ATTN_ROPE_K;
    const bool gathers = back && (d->inputs & MHA_ATTN_BLOCK_TABLE);
    const int64_t B = plan->packed ? 1 : d->batch, Bk = plan->packed_keys ? 1 : d->batch;
    *s = (mha__staging){0};
    if (plan->tasks == 0) return MHA_OK;
    const bool fits =
        (!(turns || gathers) || size_of(Bk, d->kv_heads, d->kv_len, row_bytes(plan, d->head_dim), &s->k)) &&
        (!gathers || size_of(Bk, d->kv_heads, d->kv_len, row_bytes(plan, d->v_head_dim), &s->v)) &&
        (!(back && (d->inputs & MHA_ATTN_ROPE_Q)) ||
         size_of(B, d->heads, d->q_len, (size_t)d->head_dim * plan->q.size, &s->q)) &&
        size_of(1, 1, 1, bytes, &s->at);
    if (fits && mha__add(s->at, s->k, &bytes) && mha__add(bytes, s->v, &bytes) && mha__add(bytes, s->q, &bytes))
        return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "the rotated and gathered rows must fit the address space (got %lld keys)",
                     (long long)d->kv_len);
}

/* ---- tasks ---- */

/* The copy of one operand. */
typedef struct stage_job {
    const mha__call *call;
    char *to;
    bool values; /* values instead of keys */
} stage_job;

/* Returns true if a row of sequence b attends to a key of [first, first + keys), or if scores are written before masks
 * apply. Positions ascend, so that the intervals of the first and the last row limit all intervals. If the interval of
 * the last row is empty, those of earlier rows may extend to the last key. */
static bool is_read(const mha__call *call, int64_t b, int64_t first, int64_t keys)
{
    const mha_attn_plan *plan = call->plan;
    const mha_scores stage = plan->desc.scores;
    const bool unmasked =
        (plan->desc.outputs & MHA_ATTN_SCORES) && (stage == MHA_SCORES_RAW || stage == MHA_SCORES_SOFTCAPPED);
    const int64_t rows = mha__mask_queries(call, b);
    int64_t lo, hi, last_lo, last_hi, prefix;
    if (plan->single_block || unmasked) return true;
    if (rows <= 0) return false;
    mha__mask_intervals(call, b, 0, 1, &lo, &hi, &prefix);
    mha__mask_intervals(call, b, rows - 1, 1, &last_lo, &last_hi, &prefix);
    return first < prefix || (first + keys > lo && (first < last_hi || last_hi <= prefix));
}

/* Return the number of tiles of queries and of blocks of keys per sequence. The bounds may exceed the number of packed
 * rows, but no sequence is longer. */
static int64_t tiles_of(const mha_attn_desc *d)
{
    return mha__ceil_div(mha__min64(d->max_q_len, d->q_len), MHA__TILE_Q);
}
static int64_t blocks_of(const mha_attn_desc *d)
{
    return mha__ceil_div(mha__min64(d->max_kv_len, d->kv_len), MHA__KEY_BLOCK);
}

/* Copies one block of keys or values of a head, unless no row attends to it: a task of `heads` heads and `blocks`
 * blocks per sequence. */
static void stage_block(void *arg, int64_t item, int worker)
{
    const stage_job *job = arg;
    const mha_attn_plan *plan = job->call->plan;
    const mha_attn_desc *d = &plan->desc;
    const int64_t blocks = blocks_of(d), first = item % blocks * MHA__KEY_BLOCK;
    const int64_t g = item / blocks % d->kv_heads, b = item / blocks / d->kv_heads;
    const mha__call own = plan->packed ? mha__sequence_call(job->call, b) : *job->call;
    const mha_cview *view = job->values ? &own.args.v : &own.args.k;
    const int64_t width = job->values ? d->v_head_dim : d->head_dim, size = (int64_t)plan->kv.size;
    const int64_t keys = mha__min64(MHA__KEY_BLOCK, mha__mask_keys(&own, b) - first);
    const int64_t row = (int64_t)row_bytes(plan, width);
    const int64_t before = plan->packed_keys ? g * d->kv_len + own.first_key : (b * d->kv_heads + g) * d->kv_len;
    (void)worker;
    if (keys <= 0 || !is_read(&own, b, first, keys)) return;
    char *to = job->to + (before + first) * row;
    const mha__run run = mha__keys_run(&own, view, width, b, g, first, keys, to);
    if (!run.data) memset(to, 0, (size_t)(keys * row));
    for (int64_t j = 0; j < keys && run.data; j++, to += row) {
        const char *from = (const char *)run.data + j * run.row * size;
        if (!job->values && (d->inputs & MHA_ATTN_ROPE_K))
            mha__rope_copy_row(&own, &plan->kv, width, mha__rope_of_key(&own, b, first + j), from, run.col, to);
        else if (from != to)
            mha__copy_row(mha__element_count(d->kv_dtype, width), plan->kv.size, from, run.col, to);
    }
}

/* Copies and rotates one tile of queries. */
static void stage_tile(void *arg, int64_t item, int worker)
{
    const stage_job *job = arg;
    const mha_attn_plan *plan = job->call->plan;
    const mha_attn_desc *d = &plan->desc;
    const int64_t tiles = tiles_of(d), first = item % tiles * MHA__TILE_Q;
    const int64_t h = item / tiles % d->heads, b = item / tiles / d->heads;
    const mha__call own = plan->packed ? mha__sequence_call(job->call, b) : *job->call;
    const int64_t rows = mha__min64(MHA__TILE_Q, mha__rows_of(&own, b) - first);
    const int64_t before = plan->packed ? h * d->q_len + own.args.cu_seqlens_q[b] : (b * d->heads + h) * d->q_len;
    (void)worker;
    if (rows > 0)
        mha__copy_queries(&own, b, h, first, rows, job->to + (before + first) * d->head_dim * (int64_t)plan->q.size);
}

/* ---- passes ---- */

static mha_cview dense(const void *data, int64_t heads, int64_t rows, int64_t elements)
{
    return (mha_cview){data, {heads * rows * elements, rows * elements, elements, 1}};
}

static mha_status stage_keys(mha__call *call, bool values, char *to, mha_error *err)
{
    const mha_attn_plan *plan = call->plan;
    const mha_attn_desc *d = &plan->desc;
    const int64_t elements = mha__element_count(d->kv_dtype, values ? d->v_head_dim : d->head_dim);
    stage_job job = {call, to, values};
    const int64_t count = d->batch * d->kv_heads * blocks_of(d);
    MHA__TRY(mha__attn_run(plan->ctx, plan->workers, count, stage_block, &job, err));
    *(values ? &call->args.v : &call->args.k) = dense(to, d->kv_heads, d->kv_len, elements);
    if (!values) call->staged_keys = true;
    return MHA_OK;
}

mha_status mha__stage_forward(mha__call *call, mha_error *err)
{
    const mha_attn_plan *plan = call->plan;
    if (!plan->staging.k || !(plan->desc.inputs & MHA_ATTN_ROPE_K)) return MHA_OK;
    return stage_keys(call, false, call->workspace + plan->staging.at, err);
}

mha_status mha__stage_backward(mha__call *call, mha_error *err)
{
    const mha_attn_plan *plan = call->plan;
    const mha_attn_desc *d = &plan->desc;
    const mha__staging *s = &plan->staging;
    char *k = call->workspace + s->at, *v = k + s->k, *q = v + s->v;
    if (s->v) MHA__TRY(stage_keys(call, true, v, err));
    if (s->k) MHA__TRY(stage_keys(call, false, k, err));
    if (!s->q) return MHA_OK;
    stage_job job = {call, q, false};
    const int64_t count = d->batch * d->heads * tiles_of(d);
    MHA__TRY(mha__attn_run(plan->ctx, plan->workers, count, stage_tile, &job, err));
    call->args.q = dense(q, d->heads, d->q_len, d->head_dim);
    return MHA_OK;
}
