/* norm.c - LayerNorm and RMSNorm, optionally of the sum of x and a residual. Rows are independent, so each task
 * processes a range of rows. */
#include "layer/norm.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "kernel/kernel.h"
#include <math.h>

/* elements per task: about 5 us, so that the norm of one sentence runs on the calling thread */
enum { ELEMENTS_PER_TASK = 32768 };

typedef struct norm_job {
    const mha__kernels *kernels;
    const mha_norm *norm;
    int64_t rows, rows_per_task;
    int64_t width, row_stride;
    int64_t groups, group_stride;
    int64_t weight_stride; /* from the weight of a group to that of the next; 0 = all groups have the same */
    const float *x, *residual;
    float *y;
    uint16_t *rounded; /* bf16 copy of y in the same layout, or NULL */
} norm_job;

static void norm_row(const norm_job *job, int64_t group, const float *x, float *y)
{
    const mha_norm *n = job->norm;
    const int64_t at = group * job->weight_stride;
    if (n->kind == MHA_NORM_RMS)
        job->kernels->rms_norm(x, job->width, n->weight + at, (float)n->eps, y);
    else
        job->kernels->layer_norm(x, job->width, n->weight + at, n->bias + at, (float)n->eps, y);
}

static void norm_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const norm_job *job = arg;
    const int64_t end = mha__min64(job->rows, (i + 1) * job->rows_per_task);
    for (int64_t r = i * job->rows_per_task; r < end; r++)
        for (int64_t g = 0; g < job->groups; g++) {
            const int64_t at = r * job->row_stride + g * job->group_stride;
            const float *x = job->x + at;
            float *y = job->y + at;
            for (int64_t e = 0; job->residual && e < job->width; e++)
                y[e] = x[e] + job->residual[at + e];
            norm_row(job, g, job->residual ? y : x, y);
            if (job->rounded)
                job->kernels->narrow[MHA__BF16](1, job->width, y, job->width, job->rounded + at, job->width, 1);
        }
}

static void run(mha_ctx *ctx, norm_job *job)
{
    job->kernels = mha__kernels_f32(mha__ctx_isa(ctx));
    job->rows_per_task = mha__max64(1, ELEMENTS_PER_TASK / (job->width * job->groups));
    mha__parallel(ctx, mha__ceil_div(job->rows, job->rows_per_task), norm_task, job);
}

mha_status mha__norm_check(const char *name, const mha_norm *norm, mha_error *err)
{
    if (norm->kind != MHA_NORM_LAYER && norm->kind != MHA_NORM_RMS)
        return mha__fail(err, MHA_ERR_ARG, "%s: kind must be a value of mha_norm_kind (got %d)", name, (int)norm->kind);
    if (!norm->weight || (norm->kind == MHA_NORM_LAYER && !norm->bias))
        return mha__fail(err, MHA_ERR_ARG, "%s: %s must not be NULL", name, norm->weight ? "bias" : "weight");
    if (norm->kind == MHA_NORM_RMS && norm->bias)
        return mha__fail(err, MHA_ERR_ARG, "%s: bias must be NULL for MHA_NORM_RMS", name);
    if (!(norm->eps > 0) || !isfinite(norm->eps))
        return mha__fail(err, MHA_ERR_ARG, "%s: eps must be greater than 0 (got %g)", name, norm->eps);
    return MHA_OK;
}

void mha__norm_heads(mha_ctx *ctx, const mha_norm *norm, int64_t rows, int64_t row_stride, int64_t heads,
                     int64_t head_dim, bool own, float *x)
{
    norm_job job = {.norm = norm,
                    .rows = rows,
                    .width = head_dim,
                    .row_stride = row_stride,
                    .groups = heads,
                    .group_stride = head_dim,
                    .weight_stride = own ? head_dim : 0,
                    .x = x,
                    .y = x};
    run(ctx, &job);
}

void mha__norm_rows(mha_ctx *ctx, const mha_norm *norm, int64_t rows, int64_t width, const float *x,
                    const float *residual, float *y, uint16_t *rounded)
{
    norm_job job = {.norm = norm,
                    .rows = rows,
                    .width = width,
                    .row_stride = width,
                    .groups = 1,
                    .x = x,
                    .residual = residual,
                    .y = y,
                    .rounded = rounded};
    run(ctx, &job);
}

mha_status mha_norm_forward(mha_ctx *ctx, const mha_norm *norm, int64_t rows, int64_t width, const float *x,
                            const float *residual, float *y, mha_error *err)
{
    size_t bytes = 0;
    if (rows < 0 || width < 1 || !mha__bytes((int64_t[]){rows, width}, 2, 2 * sizeof *x, &bytes))
        return mha__fail(err, MHA_ERR_ARG,
                         "norm: rows must be at least 0, width at least 1, and all must fit "
                         "in memory (got %lld, %lld)",
                         (long long)rows, (long long)width);
    if (!norm || (rows && (!x || !y))) return mha__fail(err, MHA_ERR_ARG, "norm: norm, x and y must not be NULL");
    MHA__TRY(mha__norm_check("norm", norm, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    mha__norm_rows(ctx, norm, rows, width, x, residual, y, NULL);
    return MHA_OK;
}
