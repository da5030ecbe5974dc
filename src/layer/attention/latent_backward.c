/* latent_backward.c - the backward pass of latent.c. The normalized vectors are computed again. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/attention/latent.h"
#include "layer/norm.h"
#include <string.h>

enum { ROWS_PER_TASK = 16 };

typedef struct join_job {
    const mha_attn_layer *layer;
    int64_t rows;
    mha__qkv at;     /* gradients of q, k and v */
    float *expanded; /* gradient of the output of q_b, or of kv_b with `shared` */
    float *shared;   /* [rows, kv_rank + rope] receives the gradient of the shared key; NULL for q */
} join_job;

/* Computes the gradient of the shared key: the sum of its columns over all heads. */
static void add_shared(const mha__latent_options *o, int64_t heads, int64_t D, const float *k, float *shared)
{
    for (int64_t i = 0; i < o->rope; i++) {
        float sum = 0;
        for (int64_t h = 0; h < heads; h++)
            sum += k[h * D + i];
        shared[o->kv_rank + i] = sum;
    }
}

static void join_row(const join_job *job, int64_t r)
{
    const mha_attn_layer *l = job->layer;
    const mha__latent_options *o = &l->latent->options;
    const int64_t D = l->options.head_dim, H = l->options.heads;
    const float *const q = (const float *)(const void *)job->at.q + r * job->at.q_row;
    const float *const k = (const float *)(const void *)job->at.k + r * job->at.q_row;
    const float *const v = (const float *)(const void *)job->at.v + r * job->at.q_row;
    const int64_t second = job->shared ? o->value : o->rope;
    for (int64_t h = 0; h < H; h++) {
        float *to = job->expanded + (r * H + h) * (o->nope + second);
        memcpy(to, (job->shared ? k : q) + h * D + o->rope, (size_t)o->nope * sizeof *to);
        memcpy(to + o->nope, (job->shared ? v : q) + h * D, (size_t)second * sizeof *to);
    }
    if (job->shared) add_shared(o, H, D, k, job->shared + r * (o->kv_rank + o->rope));
}

static void join_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const join_job *job = arg;
    const int64_t end = mha__min64(job->rows, (i + 1) * ROWS_PER_TASK);
    for (int64_t r = i * ROWS_PER_TASK; r < end; r++)
        join_row(job, r);
}

/* One pair of projections with the norm between them; `stride` is the row length of `latent`, of which the norm covers
 * the first `rank` columns. */
typedef struct pair {
    const mha__grad_slot *a, *b, *norm_slot;
    const mha_norm *norm;
    int64_t rank, stride, out;
    const float *latent;
} pair;

/* Computes the gradient of `latent` in dlatent from the gradient of the output of b, which is in `expanded`. */
static mha_status inner_back(const mha_attn_layer *l, const pair *p, int64_t rows, const mha__attn_scratch *s,
                             mha_error *err)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(s->normed + r * p->rank, p->latent + r * p->stride, (size_t)p->rank * sizeof *s->normed);
    mha__norm_rows(l->ctx, p->norm, rows, p->rank, s->normed, NULL, s->normed, NULL);
    const mha__linear_grad b = {.slot = *p->b,
                                .rows = rows,
                                .in = p->rank,
                                .out = p->out,
                                .x = s->normed,
                                .dy = s->expanded,
                                .dx = s->dlatent,
                                .dx_stride = p->stride};
    const mha__norm_back n = {.rows = rows,
                              .groups = 1,
                              .width = p->rank,
                              .x = p->latent,
                              .x_stride = p->stride,
                              .dy = s->dlatent,
                              .y_stride = p->stride,
                              .dx = s->dlatent,
                              .dweight = p->norm_slot->dweight};
    MHA__TRY(mha__linear_backward(l->ctx, &b, err));
    return mha__norm_backward(l->ctx, p->norm, &n, err);
}

/* Backpropagates the projection that reads x. */
static mha_status outer_back(const mha_attn_layer *l, const mha__grad_slot *slot, int64_t rows, int64_t out,
                             const float *x, const float *dy, bool add, float *dx, mha_error *err)
{
    const mha__linear_grad g = {
        .slot = *slot, .rows = rows, .in = l->options.hidden, .out = out, .x = x, .dy = dy, .dx = dx, .add_dx = add};
    return mha__linear_backward(l->ctx, &g, err);
}

mha_status mha__latent_back(const mha_attn_layer *l, const mha__attn_call *call, const mha__attn_slots *slots,
                            const float *x, const mha__attn_trace *t, const mha__attn_scratch *s, float *dx,
                            mha_error *err)
{
    const mha__latent_options *o = &l->latent->options;
    const int64_t rows = mha__attn_rows(call), H = l->options.heads, tasks = mha__ceil_div(rows, ROWS_PER_TASK);
    const int64_t q_out = H * (o->nope + o->rope), kv_row = o->kv_rank + o->rope;
    const pair q = {&slots->q_a, &slots->q, &slots->q_a_norm, &o->q_norm, o->q_rank, o->q_rank, q_out, t->q_latent};
    const pair kv = {&slots->kv_a, &slots->kv_b, &slots->kv_a_norm,        &o->kv_norm,
                     o->kv_rank,   kv_row,       H * (o->nope + o->value), t->kv_latent};
    join_job job = {.layer = l, .rows = rows, .at = mha__qkv_of(l, call, s->dqkv, sizeof *x), .expanded = s->expanded};
    mha__parallel(l->ctx, tasks, join_task, &job);
    if (o->q_rank) {
        MHA__TRY(inner_back(l, &q, rows, s, err));
        MHA__TRY(outer_back(l, q.a, rows, o->q_rank, x, s->dlatent, false, dx, err));
    } else {
        MHA__TRY(outer_back(l, q.b, rows, q_out, x, s->expanded, false, dx, err));
    }
    job.shared = s->dlatent;
    mha__parallel(l->ctx, tasks, join_task, &job);
    MHA__TRY(inner_back(l, &kv, rows, s, err));
    return outer_back(l, kv.a, rows, kv_row, x, s->dlatent, true, dx, err);
}
