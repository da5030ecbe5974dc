/* adamw.c - the AdamW update and the sum of squares; both are limited by memory bandwidth. */
#include "layer/adamw.h"

#include "base/ctx.h"
#include "base/size.h"
#include "kernel/kernel.h"
#include "math/rng_draws.h"
#include <math.h>
#include <string.h>

enum { BLOCK = MHA__SQUARES_BLOCK, LANES = 8 };

/* ---- sum of squares ---- */

typedef struct squares_job {
    int64_t count;
    const float *x;
    double *partial;
} squares_job;

int64_t mha__squares_blocks(int64_t count)
{
    return mha__ceil_div(count, BLOCK);
}

/* Sums the squares of one block in eight partial sums, so that additions overlap. The partial sums are added in a fixed
 * order. */
static void squares_task(void *arg, int64_t block, int worker)
{
    (void)worker;
    const squares_job *job = arg;
    const int64_t end = mha__min64(job->count, (block + 1) * BLOCK);
    int64_t i = block * BLOCK;
    double lane[LANES] = {0}, sum = 0;
    for (; i + LANES <= end; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += (double)job->x[i + l] * (double)job->x[i + l];
    for (; i < end; i++)
        lane[0] += (double)job->x[i] * (double)job->x[i];
    for (int l = 0; l < LANES; l++)
        sum += lane[l];
    job->partial[block] = sum;
}

void mha__squares_partial(mha_ctx *ctx, int64_t count, const float *x, double *partial)
{
    squares_job job = {count, x, partial};
    mha__parallel(ctx, mha__squares_blocks(count), squares_task, &job);
}

double mha__squares_sum(const double *partial, int64_t blocks)
{
    double sum = 0;
    for (int64_t b = 0; b < blocks; b++)
        sum += partial[b];
    return sum;
}

/* ---- transfer of gradients ---- */

typedef struct move_job {
    int64_t count;
    float *from, *to;
} move_job;

static void move_task(void *arg, int64_t block, int worker)
{
    (void)worker;
    const move_job *job = arg;
    const int64_t first = block * BLOCK;
    const size_t bytes = (size_t)mha__min64(job->count - first, BLOCK) * sizeof *job->from;
    memcpy(job->to + first, job->from + first, bytes);
    memset(job->from + first, 0, bytes);
}

void mha__gradients_move(mha_ctx *ctx, int64_t count, float *gradients, float *to)
{
    move_job job = {count, gradients, to};
    mha__parallel(ctx, mha__ceil_div(count, BLOCK), move_task, &job);
}

/* ---- AdamW step ---- */

typedef struct step_job {
    const mha__adamw *a;
    const mha__kernels *kernels;
    mha__adamw_factors factors;
} step_job;

/* Returns the random key of the block that begins at element `first` of the job. */
static uint64_t block_key(const mha__adamw *a, int64_t first)
{
    return mha__splitmix_at(a->seed, (uint64_t)(a->first + first) + 1);
}

static void step_task(void *arg, int64_t block, int worker)
{
    (void)worker;
    const step_job *job = arg;
    const mha__adamw *a = job->a;
    const int64_t first = block * BLOCK, n = mha__min64(a->count - first, BLOCK);
    float *weight = a->weight + first, *gradient = a->gradient + first;
    if (a->moments == MHA_BF16)
        job->kernels->adamw_bf16(&job->factors, block_key(a, first), n, weight, gradient, (uint16_t *)a->mean + first,
                                 (uint16_t *)a->square + first);
    else
        job->kernels->adamw(&job->factors, n, weight, gradient, (float *)a->mean + first, (float *)a->square + first);
}

void mha__adamw_run(mha_ctx *ctx, const mha__adamw *a)
{
    const double bias1 = 1 - pow(a->beta1, (double)a->step), bias2 = 1 - pow(a->beta2, (double)a->step);
    step_job job = {.a = a,
                    .kernels = mha__kernels_f32(mha__ctx_isa(ctx)),
                    .factors = {.scale = (float)a->scale,
                                .toward = (float)(1 - a->beta1),
                                .keep = (float)a->beta2,
                                .add = (float)(1 - a->beta2),
                                .shrink = (float)(1 - a->rate * a->decay),
                                .size = (float)(a->rate / bias1),
                                .root = (float)sqrt(bias2),
                                .eps = (float)a->eps}};
    mha__parallel(ctx, mha__ceil_div(a->count, BLOCK), step_task, &job);
}
