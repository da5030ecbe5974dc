/* activation.c - the functions between two linear layers, in place. */
#include "layer/activation.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include <math.h>
#include <string.h>

static void relu(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] < 0.0f ? 0.0f : x[i];
}

static void tanh_each(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = tanhf(x[i]);
}

mha_status mha__activation_find(mha_ctx *ctx, mha_activation activation, mha__row_fn *out, mha_error *err)
{
    const mha__kernels *kernels = mha__kernels_f32(mha__ctx_isa(ctx));
    switch (activation) {
    case MHA_ACT_NONE:
        *out = NULL;
        return MHA_OK;
    case MHA_ACT_GELU:
        *out = kernels->gelu_erf;
        return MHA_OK;
    case MHA_ACT_GELU_TANH:
        *out = kernels->gelu_tanh;
        return MHA_OK;
    case MHA_ACT_RELU:
        *out = relu;
        return MHA_OK;
    case MHA_ACT_TANH:
        *out = tanh_each;
        return MHA_OK;
    case MHA_ACT_SILU:
        *out = kernels->silu;
        return MHA_OK;
    }
    return mha__fail(err, MHA_ERR_ARG, "activation is %d, which is no mha_activation", (int)activation);
}

/* 16,384 numbers in a task: microseconds, so that a few rows do not wake the pool. */
#define NUMBERS_PER_TASK 16384

typedef struct activation_job {
    mha__row_fn run;
    float *x;
    int64_t count;
} activation_job;

static void activation_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const activation_job *job = arg;
    int64_t first = i * NUMBERS_PER_TASK;
    job->run(job->x + first, mha__min64(NUMBERS_PER_TASK, job->count - first));
}

typedef struct softcap_job {
    const mha__kernels *kernels;
    double cap;
    int64_t count;
    float *x;
} softcap_job;

/* Whole panels where they lie, and what is left in a panel of its own. */
static void softcap_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const softcap_job *job = arg;
    const int64_t first = i * NUMBERS_PER_TASK, nr = job->kernels->nr;
    const int64_t count = mha__min64(NUMBERS_PER_TASK, job->count - first), whole = count / nr * nr;
    float rest[64] = {0}, *x = job->x + first;
    job->kernels->softcap(whole / nr, nr, job->cap, x);
    if (whole == count) return;
    memcpy(rest, x + whole, (size_t)(count - whole) * sizeof *x);
    job->kernels->softcap(1, nr, job->cap, rest);
    memcpy(x + whole, rest, (size_t)(count - whole) * sizeof *x);
}

void mha__softcap(mha_ctx *ctx, double cap, int64_t count, float *x)
{
    softcap_job job = {.kernels = mha__kernels_f32(mha__ctx_isa(ctx)), .cap = cap, .count = count, .x = x};
    mha__parallel(ctx, mha__ceil_div(count, NUMBERS_PER_TASK), softcap_task, &job);
}

mha_status mha_activation_forward(mha_ctx *ctx, mha_activation activation, int64_t rows, int64_t width, float *x,
                                  mha_error *err)
{
    size_t bytes = 0;
    mha__row_fn run = NULL;
    if (rows < 0 || width < 1 || !mha__bytes((int64_t[]){rows, width}, 2, sizeof *x, &bytes))
        return mha__fail(err, MHA_ERR_ARG, "activation: rows is %lld, width is %lld", (long long)rows,
                         (long long)width);
    if (!x && rows) return mha__fail(err, MHA_ERR_ARG, "activation: x is NULL");
    MHA__TRY(mha__ctx_find(&ctx, err));
    MHA__TRY(mha__activation_find(ctx, activation, &run, err));
    activation_job job = {.run = run, .x = x, .count = rows * width};
    if (run) mha__parallel(ctx, mha__ceil_div(job.count, NUMBERS_PER_TASK), activation_task, &job);
    return MHA_OK;
}
