/* backward_plan.c - divides the backward pass into tasks, and lays out its workspace: scratch memory of the workers,
 * then the sums of dk and dv, then the sums per head, then the list of the uses of pages. */
#include "attn/backward/backward.h"
#include "attn/forward/task_rows.h"
#include "attn/plan/operand_table.h"
#include "attn/stats/attention_stats.h"
#include "base/error.h"
#include <inttypes.h>

/* Rows are divided into parts of at least PART_TILES tiles, so that calls with few heads use many threads. Only the
 * shape of one sequence determines the division and therefore the rounding of results. Each part needs its own sums of
 * dk and dv in reals. With 16-bit k and v and one key/value head per query head, 4 copies of the sums would take twice
 * the memory of q, k, v, out and their gradients. */
enum { PART_TILES = 8, PARTS_MAX = 4, PARTS_MAX_SHORT = 3 };

_Static_assert((int)MHA__KEY_BLOCK == (int)MHA__TILE_Q, "blocks of keys and tiles of queries must have the same size");

/* Passes with fewer operations run on the calling thread, as in cpu_engine.c. A backward pass has 2.5 times the
 * operations of a forward pass. */
static const double ALONE_FLOPS = 0.8e6;

static int64_t cut(const mha_attn_plan *plan, int64_t tiles, int64_t *per_part)
{
    const bool is_short = plan->group == 1 && plan->kv.size == sizeof(uint16_t);
    *per_part = mha__max64(PART_TILES, mha__ceil_div(tiles, is_short ? PARTS_MAX_SHORT : PARTS_MAX));
    return mha__max64(1, mha__ceil_div(tiles, *per_part));
}

int64_t mha__bwd_parts(const mha__call *call, int64_t b, int64_t *tiles)
{
    return cut(call->plan, call->plan->group * mha__bwd_tiles(call, b), tiles);
}

/* Lays out the scratch memory of a worker from `base` on; if base is NULL, only counts the bytes. */
static size_t lay_out(const mha_attn_plan *plan, char *base, mha__bwd_scratch *x)
{
    const mha_attn_desc *d = &plan->desc;
    const size_t size = plan->kernels->real_size;
    const int64_t q = plan->bwd.q_stride, v = plan->bwd.v_stride, panel = MHA__KEY_BLOCK * plan->kernels->nr;
    const int64_t spread = MHA__KEY_BLOCK * MHA__SPREAD, wide = d->inputs & MHA_ATTN_BIAS ? 1 : 0;
    mha__arena arena = {.base = base, .used = mha__scratch_lay_out(plan, base, &x->base)};
    x->q = mha__take(&arena, MHA__TILE_Q * q, size);
    x->dout = mha__take(&arena, MHA__TILE_Q * v, size);
    x->dout_panels = mha__take(&arena, MHA__TILE_Q * v, size);
    x->k = mha__take(&arena, MHA__KEY_BLOCK * q, size);
    x->v = mha__take(&arena, mha__max64(MHA__TILE_Q, MHA__KEY_BLOCK) * mha__max64(q, v), size);
    x->finite = mha__take(&arena, mha__ceil_div(d->kv_len, MHA__KEY_BLOCK), 1);
    x->dp = mha__take(&arena, panel, size);
    x->capped = mha__take(&arena, mha__bwd_keeps_capped(plan) ? panel : 0, size);
    x->w = mha__take(&arena, spread, size);
    x->ds = mha__take(&arena, spread, size);
    x->mask = mha__take(&arena, spread, size);
    const int64_t weights = mha__bwd_pairs(plan) ? MHA__KEY_BLOCK * MHA__TILE_Q : 0;
    uint16_t **halves[] = {&x->pairs.w, &x->pairs.ds, &x->pairs.across};
    for (size_t n = 0; n < sizeof halves / sizeof *halves; n++)
        *halves[n] = mha__take(&arena, weights, sizeof **halves[n]);
    x->pairs.stride = MHA__KEY_BLOCK;
    void **rows[] = {&x->lse, &x->inverse, &x->delta, &x->dots, &x->slopes, &x->taylor};
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++)
        *rows[n] = mha__take(&arena, MHA__TILE_Q, size);
    x->dq = mha__take(&arena, MHA__TILE_Q * q, size);
    x->dbias = mha__take(&arena, wide * MHA__KEY_BLOCK * MHA__TILE_Q, sizeof *x->dbias);
    x->distances = mha__take(&arena, wide * (d->max_q_len + d->max_kv_len), sizeof *x->distances);
    return arena.used;
}

/* Counts the rows of the dk and dv sums in the workspace: all keys for each part, or the keys of one head for each
 * running task. With pages, tasks of several sequences may add to the same page, so the sums of all keys are kept. */
static mha_status count_keys(mha_attn_plan *plan, mha_error *err)
{
    const mha_attn_desc *d = &plan->desc;
    mha__bwd_plan *w = &plan->bwd;
    const int64_t parted[] = {w->parts, d->kv_heads, plan->packed_keys ? 1 : d->batch, d->kv_len};
    const int64_t at_work[] = {w->slots, d->kv_len};
    const bool all = mha__bwd_keeps_sums(plan);
    size_t rows, bytes;
    if (!mha__bytes(all ? parted : at_work, all ? 4 : 2, 1, &rows) ||
        !mha__mul(rows, (size_t)(w->q_stride + w->v_stride) * plan->kernels->real_size, &bytes) || bytes > PTRDIFF_MAX)
        return mha__fail(err, MHA_ERR_ARG,
                         "kv_len must be small enough for the workspace to fit the address space (got %" PRId64 ")",
                         d->kv_len);
    w->key_rows = (int64_t)rows;
    w->key_bytes = bytes;
    return MHA_OK;
}

/* Computes the size of the list of the uses of pages; see backward_pages.c. Returns false if it overflows size_t. */
static bool size_of_uses(const mha_attn_desc *d, size_t *bytes)
{
    const int64_t shape[] = {d->batch, mha__ceil_div(d->kv_len, d->page_size)};
    size_t starts, entries;
    return mha__bytes(&d->pages, 1, sizeof(int64_t), &starts) && mha__bytes(shape, 2, sizeof(int64_t), &entries) &&
           mha__add(starts, sizeof(int64_t), &starts) && mha__add(starts, entries, bytes);
}

mha_status mha__bwd_lay_out(mha_attn_plan *plan, mha_error *err)
{
    const mha_attn_desc *d = &plan->desc;
    mha__bwd_plan *w = &plan->bwd;
    mha__bwd_scratch scratch;
    int64_t per_part;
    size_t all, heads, uses = 0;
    w->q_stride = mha__padded(plan->kernels, d->head_dim);
    w->v_stride = plan->o_stride;
    w->parts = cut(plan, plan->group * mha__ceil_div(d->q_len, MHA__TILE_Q), &per_part);
    w->tasks = d->batch * d->kv_heads * w->parts;
    const bool alone = 2.5 * mha__plan_flops(plan) < ALONE_FLOPS || w->tasks <= 1;
    w->workers = alone ? 1 : (int)mha__min64(w->tasks, mha__threads(plan->ctx)); /* at most one worker per task, so the
                                                                                  * shape limits the memory */
    w->slots = w->workers;
    w->worker_bytes = lay_out(plan, NULL, &scratch);
    MHA__TRY(count_keys(plan, err));
    const int64_t sums[] = {plan->packed ? 1 : d->batch, plan->heads, mha__max64(plan->tiles, 1)};
    w->head_sums = (d->inputs & mha__inputs_with(MHA__PER_HEAD_SUM)) != 0;
    if (!mha__bytes(sums, w->head_sums ? 3 : 0, w->head_sums ? sizeof(mha__bwd_sums) : 0, &heads) ||
        !mha__mul(w->worker_bytes, (size_t)w->workers, &all) || !mha__add(all, w->key_bytes, &all) ||
        !mha__add(all, heads, &w->uses_at) || ((d->inputs & MHA_ATTN_BLOCK_TABLE) && !size_of_uses(d, &uses)) ||
        !mha__add(w->uses_at, uses, &w->bytes))
        return mha__fail(err, MHA_ERR_ARG, "the workspace must fit the address space (got %d threads)", w->workers);
    return MHA_OK;
}

void mha__bwd_worker_scratch(const mha__bwd_call *call, int worker, mha__bwd_scratch *x)
{
    const mha_attn_plan *plan = call->call.plan;
    lay_out(plan, call->call.workspace + (size_t)worker * plan->bwd.worker_bytes, x);
}

void mha__bwd_begin(mha__bwd_tile *t, int worker)
{
    mha__bwd_worker_scratch(t->call, worker, &t->x);
    t->known_b = t->known_g = -1;
    t->t.pairs = mha__bwd_pairs(t->call->call.plan);
    if (t->t.pairs) t->t.pairs->open();
}

void mha__bwd_sums_of(const mha__bwd_call *call, int64_t b, int64_t g, int64_t part, int64_t slot, void **dk, void **dv)
{
    const mha_attn_plan *plan = call->call.plan;
    const mha__bwd_plan *w = &plan->bwd;
    const int64_t Lk = plan->desc.kv_len, Hkv = plan->desc.kv_heads, B = plan->packed_keys ? 1 : plan->desc.batch;
    const int64_t head = (part * Hkv + g) * B * Lk + (plan->packed_keys ? call->call.first_key : b * Lk);
    const int64_t row = mha__bwd_keeps_sums(plan) ? head : slot * Lk;
    const size_t size = plan->kernels->real_size;
    char *base = call->call.workspace + w->worker_bytes * (size_t)w->workers;
    *dk = base + (size_t)(row * w->q_stride) * size;
    *dv = base + (size_t)(w->key_rows * w->q_stride + row * w->v_stride) * size;
}

mha__bwd_sums *mha__bwd_head_sums(const mha__bwd_call *call, int64_t b, int64_t result, int64_t tile)
{
    const mha_attn_plan *plan = call->call.plan;
    char *base = call->call.workspace + plan->bwd.worker_bytes * (size_t)plan->bwd.workers + plan->bwd.key_bytes;
    const int64_t head = plan->packed ? result : b * plan->heads + result;
    const int64_t before = plan->packed ? call->call.args.cu_seqlens_q[b] / MHA__TILE_Q + b : 0;
    return (mha__bwd_sums *)(void *)base + head * plan->tiles + before + tile;
}

const mha__bwd_call *mha__bwd_sequence_call(const mha__bwd_call *call, int64_t b, mha__bwd_call *own)
{
    const mha_attn_plan *plan = call->call.plan;
    const mha_attn_args *a = &call->call.args;
    const size_t real = plan->kernels->real_size;
    mha_attn_grads *g = &own->grads;
    if (!plan->packed) return call;
    *own = (mha__bwd_call){mha__sequence_call(&call->call, b), call->grads};
    mha__skip_rows(&g->dout, plan->q.size, a->cu_seqlens_q[b]);
    mha__skip_rows(&g->out, plan->q.size, a->cu_seqlens_q[b]);
    mha__skip_rows(&g->lse, real, a->cu_seqlens_q[b]);
    mha__skip_rows(&g->dlse, real, a->cu_seqlens_q[b]);
    mha__skip_rows_out(&g->dq, plan->q.size, a->cu_seqlens_q[b]);
    mha__skip_rows_out(&g->row_taylor, real, a->cu_seqlens_q[b]);
    if (!plan->packed_keys) return own;
    mha__skip_rows_out(&g->dk, plan->kv.size, a->cu_seqlens_k[b]);
    mha__skip_rows_out(&g->dv, plan->kv.size, a->cu_seqlens_k[b]);
    return own;
}
