/* norm.c - LayerNorm of a sum: the place where a residual joins. Rows are independent, so rows are the tasks. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "kernel/kernel.h"
#include "mha/layer.h"
#include <math.h>

#define NUMBERS_PER_TASK 32768 /* some 5 microseconds: a sentence stays on the calling thread */

typedef struct norm_job {
    const mha__kernels *kernels;
    int64_t rows, width, rows_per_task;
    const float *x, *residual, *weight, *bias;
    float eps;
    float *y;
} norm_job;

static void norm_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const norm_job *job = arg;
    const int64_t n = job->width, end = mha__min64(job->rows, (i + 1) * job->rows_per_task);
    for (int64_t r = i * job->rows_per_task; r < end; r++) {
        const float *x = job->x + r * n, *residual = job->residual ? job->residual + r * n : NULL;
        float *y = job->y + r * n;
        for (int64_t e = 0; residual && e < n; e++)
            y[e] = x[e] + residual[e];
        if (residual) x = y;
        job->kernels->layer_norm(x, n, job->weight, job->bias, job->eps, y);
    }
}

mha_status mha_layer_norm_forward(mha_ctx *ctx, int64_t rows, int64_t width, const float *x, const float *residual,
                                  const float *weight, const float *bias, double eps, float *y, mha_error *err)
{
    size_t bytes = 0;
    if (rows < 0 || width < 1 || !mha__bytes((int64_t[]){rows, width}, 2, 2 * sizeof *x, &bytes))
        return mha__fail(err, MHA_ERR_ARG, "layer norm: rows is %lld, width is %lld", (long long)rows,
                         (long long)width);
    if (!(eps > 0) || !isfinite(eps)) return mha__fail(err, MHA_ERR_ARG, "layer norm: eps is %g, must be > 0", eps);
    if (!weight || !bias || (rows && (!x || !y)))
        return mha__fail(err, MHA_ERR_ARG, "layer norm: weight, bias, x or y is NULL");
    MHA__TRY(mha__ctx_find(&ctx, err));
    norm_job job = {.kernels = mha__kernels_f32(mha__ctx_isa(ctx)),
                    .rows = rows,
                    .width = width,
                    .rows_per_task = mha__max64(1, NUMBERS_PER_TASK / width),
                    .x = x,
                    .residual = residual,
                    .weight = weight,
                    .bias = bias,
                    .eps = (float)eps,
                    .y = y};
    mha__parallel(ctx, mha__ceil_div(rows, job.rows_per_task), norm_task, &job);
    return MHA_OK;
}
