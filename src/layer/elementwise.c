/* elementwise.c - see elementwise.h. */
#include "layer/elementwise.h"

#include "base/ctx.h"
#include "base/size.h"

enum { ELEMENTS_PER_TASK = 32768 }; /* elements per task: a few microseconds of work */

typedef struct join_job {
    mha__joining how;
    int64_t count;
    const float *y;
    float *x;
} join_job;

static void join_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const join_job *job = arg;
    const int64_t end = mha__min64(job->count, (i + 1) * ELEMENTS_PER_TASK);
    if (job->how == MHA__MULTIPLY)
        for (int64_t n = i * ELEMENTS_PER_TASK; n < end; n++)
            job->x[n] *= job->y[n];
    else
        for (int64_t n = i * ELEMENTS_PER_TASK; n < end; n++)
            job->x[n] += job->y[n];
}

void mha__join(mha_ctx *ctx, mha__joining how, int64_t count, const float *y, float *x)
{
    join_job job = {.how = how, .count = count, .y = y, .x = x};
    mha__parallel(ctx, mha__ceil_div(count, ELEMENTS_PER_TASK), join_task, &job);
}

typedef struct scale_job {
    float factor;
    int64_t count;
    float *x;
} scale_job;

static void scale_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const scale_job *job = arg;
    const int64_t end = mha__min64(job->count, (i + 1) * ELEMENTS_PER_TASK);
    for (int64_t n = i * ELEMENTS_PER_TASK; n < end; n++)
        job->x[n] *= job->factor;
}

void mha__scale(mha_ctx *ctx, float factor, int64_t count, float *x)
{
    scale_job job = {.factor = factor, .count = count, .x = x};
    mha__parallel(ctx, mha__ceil_div(count, ELEMENTS_PER_TASK), scale_task, &job);
}
