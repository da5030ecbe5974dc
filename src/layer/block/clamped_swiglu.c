/* clamped_swiglu.c - see clamped_swiglu.h. The sigmoid is computed by the SiLU kernels: g sigmoid(alpha g) is
 * silu(alpha g) / alpha. */
#include "layer/block/clamped_swiglu.h"

#include "base/ctx.h"
#include "base/size.h"
#include "kernel/kernel.h"

enum { ELEMENTS_PER_TASK = 16384 }; /* elements per task: some tens of microseconds of work */

enum { PIECE = 256 }; /* elements whose intermediate results are on the stack */

typedef struct swiglu_job {
    const mha__kernels *kernels;
    mha__clamped_swiglu options;
    int64_t count;
    const float *gate, *up, *dy; /* dy is NULL in the forward pass */
    float *y, *dgate, *dup;
} swiglu_job;

static float min(float x, float limit)
{
    return x > limit ? limit : x; /* NaN stays NaN */
}

/* Sets scaled to alpha min(gate, limit). */
static void scale_piece(const swiglu_job *job, int64_t first, int64_t count, float *scaled)
{
    for (int64_t i = 0; i < count; i++)
        scaled[i] = job->options.alpha * min(job->gate[first + i], job->options.limit);
}

/* Returns clamp(up, -limit, limit) + 1. */
static float factor_of(const swiglu_job *job, int64_t n)
{
    const float up = min(job->up[n], job->options.limit);
    return (up < -job->options.limit ? -job->options.limit : up) + 1;
}

static void forward_piece(const swiglu_job *job, int64_t first, int64_t count)
{
    float glu[PIECE];
    scale_piece(job, first, count, glu);
    job->kernels->map[MHA__SILU](glu, count);
    for (int64_t i = 0; i < count; i++)
        job->y[first + i] = factor_of(job, first + i) * (glu[i] / job->options.alpha);
}

static void backward_piece(const swiglu_job *job, int64_t first, int64_t count)
{
    float scaled[PIECE], glu[PIECE], dgate[PIECE];
    const float limit = job->options.limit;
    scale_piece(job, first, count, scaled);
    scale_piece(job, first, count, glu);
    job->kernels->map[MHA__SILU](glu, count);
    for (int64_t i = 0; i < count; i++)
        dgate[i] = job->dy[first + i] * factor_of(job, first + i);
    job->kernels->map_back[MHA__SILU](scaled, dgate, count, dgate);
    for (int64_t i = 0; i < count; i++) {
        const float up = job->up[first + i], dy = job->dy[first + i];
        job->dup[first + i] = up <= limit && up >= -limit ? dy * (glu[i] / job->options.alpha) : 0;
        job->dgate[first + i] = job->gate[first + i] <= limit ? dgate[i] : 0;
    }
}

static void swiglu_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const swiglu_job *job = arg;
    const int64_t end = mha__min64(job->count, (i + 1) * ELEMENTS_PER_TASK);
    for (int64_t n = i * ELEMENTS_PER_TASK; n < end; n += PIECE)
        (job->dy ? backward_piece : forward_piece)(job, n, mha__min64(PIECE, end - n));
}

static void run(mha_ctx *ctx, swiglu_job *job)
{
    job->kernels = mha__kernels_f32(mha__ctx_isa(ctx));
    mha__parallel(ctx, mha__ceil_div(job->count, ELEMENTS_PER_TASK), swiglu_task, job);
}

void mha__clamped_swiglu_forward(mha_ctx *ctx, const mha__clamped_swiglu *options, int64_t count, const float *gate,
                                 const float *up, float *y)
{
    run(ctx, &(swiglu_job){.options = *options, .count = count, .gate = gate, .up = up, .y = y});
}

void mha__clamped_swiglu_backward(mha_ctx *ctx, const mha__clamped_swiglu *options, int64_t count, const float *gate,
                                  const float *up, const float *dy, float *dgate, float *dup)
{
    run(ctx, &(swiglu_job){
                 .options = *options, .count = count, .gate = gate, .up = up, .dy = dy, .dgate = dgate, .dup = dup});
}
