/* machine_peak.c - measures the peak rates of the machine: the best of many short runs of the two loops of
 * kernel/rows/peak_loops.inc on all threads of a context.
 *
 * Each run is one call of the thread pool, like a call of the operator. The best run is assumed to be one that was not
 * interrupted. */
#include "mha/machine_peak.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "kernel/kernel.h"
#include <inttypes.h>

enum {
    RUNS_MIN = 5,
    READ_ALIGN = 512, /* the read kernel reads 8 vectors of at most 64 bytes per step */
    READ_MIN = 4096,
    SLICES = 8 /* slices of memory per thread, so that a thread that wakes up late reads fewer slices */
};
static const double TOTAL_SECONDS = 0.1, FMA_SECONDS = 0.004;

typedef struct run {
    const mha__kernels *kernels;
    int64_t steps; /* number of multiply-add steps */
    const char *memory;
    int64_t bytes, slice; /* number of bytes to read, in total and per slice */
} run;

static double seconds_of(mha_ctx *ctx, int64_t count, mha__task_fn task, run *r, clockid_t clock)
{
    const double start = mha__now(clock);
    mha__parallel(ctx, count, task, r);
    return mha__now(clock) - start;
}

static double best_of(mha_ctx *ctx, int64_t count, mha__task_fn task, run *r)
{
    double best = seconds_of(ctx, count, task, r, CLOCK_MONOTONIC);
    const clockid_t clock = mha__clock_for(mha__threads(ctx), best);
    const double end = mha__now(CLOCK_MONOTONIC) + TOTAL_SECONDS;
    for (int i = 1; i < RUNS_MIN || mha__now(CLOCK_MONOTONIC) < end; i++) {
        const double seconds = seconds_of(ctx, count, task, r, clock);
        best = seconds < best ? seconds : best;
    }
    return best > 0 ? best : 1e-9; /* a coarse clock may measure 0 */
}

static void multiply_add(void *arg, int64_t i, int worker)
{
    const run *r = arg;
    (void)i, (void)worker;
    r->kernels->fma_steps(r->steps, 0.999);
}

static void read_slice(void *arg, int64_t i, int worker)
{
    const run *r = arg;
    const int64_t first = i * r->slice, bytes = mha__min64(r->slice, r->bytes - first);
    (void)worker;
    if (bytes > 0) r->kernels->read(bytes / (int64_t)r->kernels->real_size, r->memory + first);
}

mha_status mha_machine_peak_fma(mha_ctx *ctx, double *flops_per_second, mha_error *err)
{
    if (!flops_per_second) return mha__fail(err, MHA_ERR_ARG, "flops_per_second must not be NULL");
    MHA__TRY(mha__ctx_find(&ctx, err));
    run r = {.kernels = mha__kernels_f32(mha__ctx_isa(ctx)), .steps = 1000};
    const int threads = mha__threads(ctx);
    while (seconds_of(ctx, 1, multiply_add, &r, CLOCK_MONOTONIC) < FMA_SECONDS / 2)
        r.steps *= 2;
    const double best = best_of(ctx, threads, multiply_add, &r);
    *flops_per_second = 2.0 * r.kernels->mr * r.kernels->nr * (double)r.steps * threads / best;
    return MHA_OK;
}

mha_status mha_machine_peak_read(mha_ctx *ctx, const void *memory, int64_t bytes, double *bytes_per_second,
                                 mha_error *err)
{
    if (!memory) return mha__fail(err, MHA_ERR_ARG, "memory must not be NULL");
    if (!bytes_per_second) return mha__fail(err, MHA_ERR_ARG, "bytes_per_second must not be NULL");
    if (bytes < READ_MIN)
        return mha__fail(err, MHA_ERR_ARG, "bytes must be at least %d (got %" PRId64 ")", (int)READ_MIN, bytes);
    MHA__TRY(mha__ctx_find(&ctx, err));
    run r = {.kernels = mha__kernels_f32(mha__ctx_isa(ctx)), .memory = memory, .bytes = bytes};
    const int threads = mha__threads(ctx), slices = threads > 1 ? SLICES * threads : 1;
    r.slice = mha__round_up(mha__ceil_div(bytes, slices), READ_ALIGN);
    *bytes_per_second = (double)(bytes / READ_ALIGN * READ_ALIGN) / best_of(ctx, slices, read_slice, &r);
    return MHA_OK;
}
