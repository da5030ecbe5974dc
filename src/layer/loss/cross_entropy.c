/* cross_entropy.c - cross entropy over the vocabulary, and its gradient: softmax minus one-hot. A task is a range of
 * whole rows; the losses of rows are added in order. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "layer/loss/logits_softmax.h"
#include "mha/layer.h"
#include <math.h>
#include <string.h>

enum { ELEMENTS_PER_TASK = 8192 }; /* elements per task: tens of microseconds of exponentials */

typedef struct loss_job {
    const mha_cross_entropy_args *a;
    const mha__kernels *kernels;
    double scale;
    int64_t rows_per_task;
    double *loss; /* [rows] loss of each row */
} loss_job;

/* Computes the loss of one row and, unless dx is NULL, its gradient. dx may be x: the exponentials replace the logits,
 * and are scaled when their sum is known. */
static double loss_row(const mha__kernels *kernels, const float *x, int64_t n, int32_t label, double scale, float *dx)
{
    const double wanted = (double)x[label];
    float max;
    const double sum = mha__exponentials(kernels, n, x, &max, dx), chosen = (double)max - wanted;
    const double factor = scale / sum;
    for (int64_t i = 0; dx && i < n; i++)
        dx[i] = (float)(factor * (double)dx[i]);
    if (dx) dx[label] = (float)(scale * (exp(-chosen) / sum - 1));
    return log(sum) + chosen;
}

static void loss_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const loss_job *job = arg;
    const mha_cross_entropy_args *a = job->a;
    const int64_t end = mha__min64(a->rows, (task + 1) * job->rows_per_task), n = a->classes;
    for (int64_t r = task * job->rows_per_task; r < end; r++) {
        const float *x = a->logits + r * n;
        float *dx = a->dlogits ? a->dlogits + r * n : NULL;
        job->loss[r] = 0;
        if (a->labels[r] != MHA_IGNORE)
            job->loss[r] = loss_row(job->kernels, x, n, a->labels[r], job->scale, dx);
        else if (dx)
            memset(dx, 0, (size_t)n * sizeof *dx);
    }
}

static mha_status read_args(mha_cross_entropy_args *a, const mha_cross_entropy_args *given, int64_t *counted,
                            mha_error *err)
{
    size_t bytes = 0;
    MHA__TRY(mha__options_read(a, sizeof *a, given, "mha_cross_entropy_args", err));
    if (a->rows < 0 || a->classes < 1 || !mha__bytes((int64_t[]){a->rows, a->classes}, 2, 2 * sizeof(double), &bytes))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_cross_entropy_args: rows must be at least 0, classes at least 1, and all must fit "
                         "in memory (got %lld, %lld)",
                         (long long)a->rows, (long long)a->classes);
    if (a->rows && (!a->logits || !a->labels))
        return mha__fail(err, MHA_ERR_ARG, "mha_cross_entropy_args: %s must not be NULL",
                         a->logits ? "labels" : "logits");
    if (!isfinite(a->scale))
        return mha__fail(err, MHA_ERR_ARG, "mha_cross_entropy_args: scale must be finite (got %g)", a->scale);
    *counted = 0;
    for (int64_t r = 0; r < a->rows; r++) {
        if (a->labels[r] != MHA_IGNORE && (a->labels[r] < 0 || a->labels[r] >= a->classes))
            return mha__fail(err, MHA_ERR_ARG, "labels[%lld] must be from 0 to %lld, or %d (got %d)", (long long)r,
                             (long long)a->classes - 1, MHA_IGNORE, (int)a->labels[r]);
        *counted += a->labels[r] != MHA_IGNORE;
    }
    return MHA_OK;
}

mha_status mha_cross_entropy(mha_ctx *ctx, const mha_cross_entropy_args *args, double *loss, int64_t *counted,
                             mha_error *err)
{
    mha_cross_entropy_args a;
    int64_t count = 0;
    double sum = 0;
    MHA__TRY(read_args(&a, args, &count, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    loss_job job = {
        .a = &a, .kernels = mha__kernels_f32(mha__ctx_isa(ctx)), .scale = a.scale != 0 ? a.scale : 1 / (double)count};
    job.rows_per_task = mha__max64(1, ELEMENTS_PER_TASK / a.classes);
    const size_t bytes = (size_t)a.rows * sizeof *job.loss;
    if (a.rows && !(job.loss = mha__alloc(ctx, bytes))) return mha__no_memory(err, bytes, "the loss of each row");
    mha__parallel(ctx, mha__ceil_div(a.rows, job.rows_per_task), loss_task, &job);
    for (int64_t r = 0; r < a.rows; r++)
        sum += job.loss[r];
    mha__free(ctx, job.loss);
    if (loss) *loss = job.scale * sum;
    if (counted) *counted = count;
    return MHA_OK;
}
