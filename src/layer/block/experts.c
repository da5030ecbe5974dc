/* experts.c - a layer of experts: groups the rows by the experts that expert_routing.c chose, and computes one dense
 * feed-forward per expert that has rows.
 *
 * Each row adds its experts in ascending order, regardless of the choices of other rows, so its result does not depend
 * on the batch or on the number of threads. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/block/feed_forward.h"
#include "layer/linear/linear.h"
#include "layer/repack.h"
#include <math.h>
#include <string.h>

enum { ROWS_PER_TASK = 16 };

/* ---- creation ---- */

static void keep_correction(mha__experts *x, const mha__experts_options *o)
{
    for (int64_t e = 0; x->correction && e < x->count; e++)
        x->correction[e] = o->correction ? o->correction[e] : 0;
}

static mha_status create_parts(mha_ctx *ctx, mha__experts *x, const mha__experts_options *o, mha_error *err)
{
    const size_t bytes = (size_t)o->count * sizeof *x->correction;
    mha_matrix router = o->router, shared = o->shared_gate;
    router.out = o->count;
    router.packed = shared.packed = MHA_F32;
    shared.out = 1;
    if (o->sigmoid) x->correction = mha__calloc(ctx, 1, bytes);
    if (o->sigmoid && !x->correction) return mha__no_memory(err, bytes, "the router of a layer");
    keep_correction(x, o);
    MHA__TRY(mha_linear_create_stack(ctx, x->hidden, &router, 1, MHA_ACT_NONE, &x->router, err));
    if (shared.weight)
        MHA__TRY(mha_linear_create_stack(ctx, x->hidden, &shared, 1, MHA_ACT_NONE, &x->shared_gate, err));
    for (int64_t e = 0; e < o->count; e++)
        MHA__TRY(mha__feed_create(ctx, x->hidden, &o->feeds[e], &x->feed[e], err));
    return MHA_OK;
}

mha_status mha__experts_create(mha_ctx *ctx, int64_t hidden, const mha__experts_options *o, mha__experts **experts,
                               mha_error *err)
{
    const size_t bytes = sizeof(mha__experts) + (size_t)o->count * sizeof(mha__mlp);
    mha__experts *x = *experts = mha__calloc(ctx, 1, bytes);
    if (!x) return mha__no_memory(err, bytes, "the experts of a layer");
    x->count = o->count;
    x->chosen = o->chosen;
    x->hidden = hidden;
    x->normalized = o->normalized;
    x->sigmoid = o->sigmoid;
    x->groups = o->groups;
    x->kept_groups = o->kept_groups;
    x->factor = o->sigmoid ? o->factor : 1;
    return create_parts(ctx, x, o, err);
}

void mha__experts_repack(mha__experts *x, const mha__experts_options *o)
{
    mha_matrix router = o->router, shared = o->shared_gate;
    router.out = o->count;
    router.packed = shared.packed = MHA_F32;
    shared.out = 1;
    keep_correction(x, o);
    mha__linear_repack(x->router, &router, 1);
    if (x->shared_gate) mha__linear_repack(x->shared_gate, &shared, 1);
    for (int64_t e = 0; e < x->count; e++)
        mha__feed_repack(&x->feed[e], x->hidden, &o->feeds[e]);
}

void mha__experts_free(mha_ctx *ctx, mha__experts *x)
{
    if (!x) return;
    mha_linear_free(x->router);
    mha_linear_free(x->shared_gate);
    mha__free(ctx, x->correction);
    for (int64_t e = 0; e < x->count; e++)
        mha__feed_free(&x->feed[e]);
    mha__free(ctx, x);
}

/* ---- memory ---- */

void mha__routes_group_lay_out(mha__arena *arena, const mha__experts *x, size_t rows, mha__routes *r)
{
    r->order = mha__take(arena, rows, (size_t)x->chosen * sizeof *r->order);
    r->start = mha__take(arena, (size_t)x->count + 1, sizeof *r->start);
}

void mha__routes_lay_out(mha__arena *arena, const mha__experts *x, size_t rows, mha__routes *r)
{
    r->probs = mha__take(arena, rows, (size_t)x->count * sizeof *r->probs);
    r->expert = mha__take(arena, rows, (size_t)x->chosen * sizeof *r->expert);
    r->share = mha__take(arena, rows, (size_t)x->chosen * sizeof *r->share);
}

void mha__experts_lay_out(mha__arena *arena, const mha__experts *x, size_t rows, mha__experts_scratch *s)
{
    mha__routes_lay_out(arena, x, rows, &s->routes);
    mha__routes_group_lay_out(arena, x, rows, &s->routes);
    mha__feed_lay_out(arena, &x->feed[0], rows, &s->feed);
    s->in = mha__take(arena, rows, (size_t)x->hidden * sizeof *s->in);
    s->out = mha__take(arena, rows, (size_t)x->hidden * sizeof *s->out);
    s->share = x->shared_gate ? mha__take(arena, rows, sizeof *s->share) : NULL;
}

/* ---- groups of rows ---- */

void mha__experts_group(const mha__experts *x, int64_t rows, const mha__routes *r)
{
    const int64_t places = rows * x->chosen;
    memset(r->start, 0, (size_t)(x->count + 1) * sizeof *r->start);
    for (int64_t n = 0; n < places; n++)
        r->start[r->expert[n] + 1]++;
    for (int64_t e = 0; e < x->count; e++)
        r->start[e + 1] += r->start[e];
    for (int64_t n = 0; n < places; n++)
        r->order[r->start[r->expert[n]]++] = (int32_t)n;
    for (int64_t e = x->count; e > 0; e--) /* each start is now the end of its group */
        r->start[e] = r->start[e - 1];
    r->start[0] = 0;
}

/* ---- rows of one expert ---- */

typedef struct rows_job {
    const mha__routes *routes;
    const int32_t *order; /* [count] places of the group */
    int64_t count, chosen, width;
    const float *from;
    float *to;
    bool weighted;
} rows_job;

static void move_row(float *to, const float *from, int64_t width, float share, bool add)
{
    for (int64_t i = 0; i < width; i++)
        to[i] = add ? to[i] + share * from[i] : share * from[i];
}

static void gather_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const rows_job *job = arg;
    const int64_t end = mha__min64(job->count, (i + 1) * ROWS_PER_TASK);
    for (int64_t n = i * ROWS_PER_TASK; n < end; n++)
        move_row(job->to + n * job->width, job->from + job->order[n] / job->chosen * job->width, job->width,
                 job->weighted ? job->routes->share[job->order[n]] : 1, false);
}

static void scatter_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const rows_job *job = arg;
    const int64_t end = mha__min64(job->count, (i + 1) * ROWS_PER_TASK);
    for (int64_t n = i * ROWS_PER_TASK; n < end; n++)
        move_row(job->to + job->order[n] / job->chosen * job->width, job->from + n * job->width, job->width,
                 job->weighted ? job->routes->share[job->order[n]] : 1, true);
}

static rows_job job_of(const mha__experts *x, const mha__routes *r, int64_t e, const float *from, bool weighted,
                       float *to)
{
    return (rows_job){.routes = r,
                      .order = r->order + r->start[e],
                      .count = r->start[e + 1] - r->start[e],
                      .chosen = x->chosen,
                      .width = x->hidden,
                      .from = from,
                      .to = to,
                      .weighted = weighted};
}

void mha__experts_gather(mha_ctx *ctx, const mha__experts *x, const mha__routes *r, int64_t e, const float *from,
                         bool weighted, float *to)
{
    rows_job job = job_of(x, r, e, from, weighted, to);
    mha__parallel(ctx, mha__ceil_div(job.count, ROWS_PER_TASK), gather_task, &job);
}

void mha__experts_scatter(mha_ctx *ctx, const mha__experts *x, const mha__routes *r, int64_t e, const float *from,
                          bool weighted, float *y)
{
    rows_job job = job_of(x, r, e, from, weighted, y);
    mha__parallel(ctx, mha__ceil_div(job.count, ROWS_PER_TASK), scatter_task, &job);
}

/* ---- the whole layer ---- */

void mha__shared_share(const mha__experts *x, int64_t rows, const float *in, float *share)
{
    mha__linear_run(x->shared_gate, &(mha__linear_call){.x = in, .rows = rows, .y = share});
    for (int64_t r = 0; r < rows; r++)
        share[r] = (float)(1 / (1 + exp(-(double)share[r])));
}

void mha__scale_rows(int64_t rows, int64_t width, const float *share, float *y)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i++)
            y[r * width + i] *= share[r];
}

void mha__experts_run(mha_ctx *ctx, const mha__experts *x, const mha__experts_scratch *s, const mha__mlp *shared,
                      const mha__feed_scratch *shared_scratch, int64_t rows, const float *in, float *y)
{
    if (shared->up)
        mha__feed_run(ctx, shared, shared_scratch, rows, in, y);
    else
        memset(y, 0, (size_t)(rows * x->hidden) * sizeof *y);
    if (s->share) {
        mha__shared_share(x, rows, in, s->share);
        mha__scale_rows(rows, x->hidden, s->share, y);
    }
    mha__experts_route(ctx, x, rows, in, &s->routes);
    mha__experts_group(x, rows, &s->routes);
    for (int64_t e = 0; e < x->count; e++) {
        const int64_t count = s->routes.start[e + 1] - s->routes.start[e];
        if (!count) continue;
        mha__experts_gather(ctx, x, &s->routes, e, in, false, s->in);
        mha__feed_run(ctx, &x->feed[e], &s->feed, count, s->in, s->out);
        mha__experts_scatter(ctx, x, &s->routes, e, s->out, true, y);
    }
}
