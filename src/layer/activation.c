/* activation.c - activation functions between linear layers, and their gradients. */
#include "layer/activation.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include <stdbool.h>
#include <string.h>

/* Sets *map to the kernel index of an activation, or to MHA__MAPS for MHA_ACT_NONE. */
static mha_status find_map(mha_activation activation, mha__map *map, mha_error *err)
{
    static const mha__map maps[] = {[MHA_ACT_NONE] = MHA__MAPS,
                                    [MHA_ACT_GELU] = MHA__GELU_ERF,
                                    [MHA_ACT_GELU_TANH] = MHA__GELU_TANH,
                                    [MHA_ACT_RELU] = MHA__RELU,
                                    [MHA_ACT_TANH] = MHA__TANH,
                                    [MHA_ACT_SILU] = MHA__SILU,
                                    [MHA_ACT_QUICK_GELU] = MHA__GELU_SIGMOID,
                                    [MHA_ACT_SIGMOID] = MHA__SIGMOID,
                                    [MHA_ACT_SOFTPLUS] = MHA__SOFTPLUS};
    if ((unsigned)activation >= sizeof maps / sizeof *maps)
        return mha__fail(err, MHA_ERR_ARG, "activation must be a value of mha_activation (got %d)", (int)activation);
    *map = maps[activation];
    return MHA_OK;
}

mha_status mha__activation_find(mha_ctx *ctx, const mha__dense *dense, mha_activation activation, mha__row_fn *out,
                                mha_error *err)
{
    mha__map map = MHA__MAPS;
    MHA__TRY(find_map(activation, &map, err));
    *out = NULL;
    if (map == MHA__MAPS) return MHA_OK;
    *out = dense && dense->map[map] ? dense->map[map] : mha__kernels_f32(mha__ctx_isa(ctx))->map[map];
    return MHA_OK;
}

/* elements per task: a few microseconds of work; smaller calls run on the calling thread */
enum { ELEMENTS_PER_TASK = 16384 };

typedef struct activation_job {
    mha__row_fn run;
    float *x;
    int64_t count;
} activation_job;

static void activation_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const activation_job *job = arg;
    int64_t first = i * ELEMENTS_PER_TASK;
    job->run(job->x + first, mha__min64(ELEMENTS_PER_TASK, job->count - first));
}

void mha__activate(mha_ctx *ctx, mha__row_fn run, int64_t count, float *x)
{
    activation_job job = {.run = run, .x = x, .count = count};
    if (run) mha__parallel(ctx, mha__ceil_div(count, ELEMENTS_PER_TASK), activation_task, &job);
}

typedef struct softcap_job {
    const mha__kernels *kernels;
    double cap;
    int64_t count;
    const float *y; /* output of the forward pass, read by the backward pass */
    float *x;
} softcap_job;

/* Applies the soft cap to the elements of a task: whole panels in place, the remaining elements in a copy. */
static void softcap_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const softcap_job *job = arg;
    const int64_t first = i * ELEMENTS_PER_TASK, nr = job->kernels->nr;
    const int64_t count = mha__min64(ELEMENTS_PER_TASK, job->count - first), whole = count / nr * nr;
    float rest[MHA__NR_MAX] = {0}, *x = job->x + first;
    job->kernels->softcap(whole / nr, nr, job->cap, x);
    if (whole == count) return;
    memcpy(rest, x + whole, (size_t)(count - whole) * sizeof *x);
    job->kernels->softcap(1, nr, job->cap, rest);
    memcpy(x + whole, rest, (size_t)(count - whole) * sizeof *x);
}

void mha__softcap(mha_ctx *ctx, double cap, int64_t count, float *x)
{
    softcap_job job = {.kernels = mha__kernels_f32(mha__ctx_isa(ctx)), .cap = cap, .count = count, .x = x};
    mha__parallel(ctx, mha__ceil_div(count, ELEMENTS_PER_TASK), softcap_task, &job);
}

static void softcap_back_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const softcap_job *job = arg;
    const int64_t end = mha__min64(job->count, (i + 1) * ELEMENTS_PER_TASK);
    const float inverse = (float)(1 / job->cap);
    for (int64_t n = i * ELEMENTS_PER_TASK; n < end; n++) {
        const float part = job->y[n] * inverse;
        job->x[n] *= 1 - part * part;
    }
}

void mha__softcap_backward(mha_ctx *ctx, double cap, int64_t count, const float *y, float *dy)
{
    softcap_job job = {.cap = cap, .count = count, .y = y, .x = dy};
    mha__parallel(ctx, mha__ceil_div(count, ELEMENTS_PER_TASK), softcap_back_task, &job);
}

/* Sets *count to rows * width. Fails if the byte count overflows, or if rows > 0 and an array of `arrays` is NULL
 * (`given` is false). */
static mha_status count_elements(int64_t rows, int64_t width, bool given, const char *arrays, int64_t *count,
                                 mha_error *err)
{
    size_t bytes;
    if (rows < 0 || width < 1 || !mha__bytes((int64_t[]){rows, width}, 2, sizeof(float), &bytes))
        return mha__fail(err, MHA_ERR_ARG,
                         "activation: rows must be at least 0, width at least 1, and all must fit "
                         "in memory (got %lld, %lld)",
                         (long long)rows, (long long)width);
    if (!given && rows) return mha__fail(err, MHA_ERR_ARG, "activation: %s must not be NULL", arrays);
    *count = rows * width;
    return MHA_OK;
}

mha_status mha_activation_forward(mha_ctx *ctx, mha_activation activation, int64_t rows, int64_t width, float *x,
                                  mha_error *err)
{
    int64_t count = 0;
    mha__row_fn run = NULL;
    MHA__TRY(count_elements(rows, width, x != NULL, "x", &count, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    MHA__TRY(mha__activation_find(ctx, NULL, activation, &run, err));
    mha__activate(ctx, run, count, x);
    return MHA_OK;
}

typedef struct gradient_job {
    const mha__kernels *kernels;
    mha__map map;
    const float *x, *dy;
    float *dx;
    int64_t count;
} gradient_job;

static void gradient_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const gradient_job *job = arg;
    const int64_t first = i * ELEMENTS_PER_TASK, count = mha__min64(ELEMENTS_PER_TASK, job->count - first);
    if (job->map == MHA__MAPS)
        memmove(job->dx + first, job->dy + first, (size_t)count * sizeof *job->dx);
    else
        job->kernels->map_back[job->map](job->x + first, job->dy + first, count, job->dx + first);
}

mha_status mha_activation_backward(mha_ctx *ctx, mha_activation activation, int64_t rows, int64_t width, const float *x,
                                   const float *dy, float *dx, mha_error *err)
{
    gradient_job job = {.map = MHA__MAPS, .x = x, .dy = dy, .dx = dx};
    MHA__TRY(count_elements(rows, width, x && dy && dx, "x, dy and dx", &job.count, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    MHA__TRY(find_map(activation, &job.map, err));
    job.kernels = mha__kernels_f32(mha__ctx_isa(ctx));
    mha__parallel(ctx, mha__ceil_div(job.count, ELEMENTS_PER_TASK), gradient_task, &job);
    return MHA_OK;
}
