/* kernel.c - measures single kernels on data in the L1 cache, on one thread, as a fraction of the multiply-add peak of
 * the same run. `mha bench attention` measures the whole operator.
 *
 *     bench_kernel [ISA]     prints CSV: isa,what,milliseconds,GFLOP/s,percent of peak
 *
 * The softmax row has Gelem/s instead of GFLOP/s, and no percentage. */
#include "kernel/kernel.h"

#include "bench/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double BUDGET = 0.4; /* seconds of measurement per row */
static volatile double sink;

static void row(const char *isa, const char *what, double seconds, double flops, double peak)
{
    printf("%s,%s,%.4f,%.1f,%.1f\n", isa, what, 1e3 * seconds, 1e-9 * flops / seconds, 100 * flops / seconds / peak);
    fflush(stdout);
}

/* Returns an array of `count` deterministic values in [-1, 1). */
static float *numbers(size_t count)
{
    float *x = aligned_alloc(64, (count * sizeof *x + 63) / 64 * 64);
    if (!x) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    uint32_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) * 0x1p-23f - 1;
    }
    return x;
}

enum { KEYS = MHA__KEY_BLOCK, WIDTH = 64, REPEAT = 200 };

typedef struct panel_work {
    const mha__kernels *k;
    float *key, *q, *s, *v, *o, *top, *max, *sum, *alpha;
    int64_t m, n, inner; /* shape of the dense product */
    float *a, *panels, *c;
} panel_work;

static void run_peak(void *arg)
{
    sink = ((panel_work *)arg)->k->fma_steps(100000, 0.999);
}

static void run_scores(void *arg)
{
    const panel_work *w = arg;
    for (int i = 0; i < REPEAT; i++)
        w->k->scores(KEYS, WIDTH, w->key, WIDTH, 1, w->q, w->k->nr, 0.125, w->s, w->top, NULL);
}

static void run_values(void *arg)
{
    const panel_work *w = arg;
    for (int i = 0; i < REPEAT; i++)
        w->k->values(w->k->nr, WIDTH, KEYS, w->s, w->v, WIDTH, w->k->nr, w->alpha, w->o, WIDTH, NULL);
}

/* Each round reads the output of the previous round: probabilities, for which exp always takes the same time. */
static void run_softmax(void *arg)
{
    const panel_work *w = arg;
    for (int i = 0; i < REPEAT; i++)
        w->k->softmax(KEYS, w->k->nr, w->top, w->s, w->max, w->sum, w->alpha);
}

static void run_dense(void *arg)
{
    const panel_work *w = arg;
    w->k->product(w->m, w->n, w->inner, w->a, w->inner, w->panels, w->inner * w->k->nr, NULL, 0, w->c, w->n);
}

static void dense(panel_work *w, int64_t m, int64_t n, int64_t inner, double peak)
{
    char name[64];
    float *weight = numbers((size_t)(n * inner));
    w->m = m, w->n = n, w->inner = inner;
    w->a = numbers((size_t)(m * inner));
    w->panels = numbers((size_t)((n + 63) / 64 * 64 * inner));
    w->c = numbers((size_t)(m * n));
    w->k->pack_rows(n, inner, weight, inner, 1, w->panels);
    snprintf(name, sizeof name, "dense %lldx%lldx%lld", (long long)m, (long long)n, (long long)inner);
    row(w->k->isa, name, min_seconds(run_dense, w, BUDGET, CLOCK_THREAD_CPUTIME_ID),
        2 * (double)m * (double)n * (double)inner, peak);
    free(weight), free(w->a), free(w->panels), free(w->c);
}

static void bench_kernels(const mha__kernels *k)
{
    panel_work w = {.k = k};
    float **piece[] = {&w.key, &w.q, &w.s, &w.v, &w.o, &w.top, &w.max, &w.sum, &w.alpha};
    for (size_t i = 0; i < sizeof piece / sizeof piece[0]; i++)
        *piece[i] = numbers((size_t)KEYS * WIDTH);
    const double flops = 2.0 * KEYS * WIDTH * k->nr * REPEAT;
    const double peak_seconds = min_seconds(run_peak, &w, BUDGET, CLOCK_THREAD_CPUTIME_ID);
    const double peak = 2.0 * 100000 * k->mr * k->nr / peak_seconds;
    row(k->isa, "fma peak", peak_seconds, peak * peak_seconds, peak);
    row(k->isa, "scores 128x64", min_seconds(run_scores, &w, BUDGET, CLOCK_THREAD_CPUTIME_ID), flops, peak);
    const double seconds = min_seconds(run_softmax, &w, BUDGET, CLOCK_THREAD_CPUTIME_ID);
    printf("%s,softmax (Gelem/s),%.4f,%.2f,\n", k->isa, 1e3 * seconds, 1e-9 * KEYS * k->nr * REPEAT / seconds);
    row(k->isa, "values 128x64", min_seconds(run_values, &w, BUDGET, CLOCK_THREAD_CPUTIME_ID), flops, peak);
    dense(&w, 1, 768, 768, peak);
    dense(&w, 16, 768, 768, peak);
    dense(&w, 512, 768, 768, peak);
    dense(&w, 512, 3072, 768, peak);
    dense(&w, 512, 768, 3072, peak);
    for (size_t i = 0; i < sizeof piece / sizeof piece[0]; i++)
        free(*piece[i]);
}

int main(int argc, char **argv)
{
    const mha__kernels *last = NULL;
    for (int isa = 0; isa < MHA__ISAS; isa++) {
        const mha__kernels *k = mha__kernels_f32((mha__isa)isa);
        if (!mha__cpu_has((mha__isa)isa) || k == last) continue;
        last = k;
        if (argc > 1 ? strcmp(argv[1], k->isa) == 0 : isa != MHA__SCALAR) bench_kernels(k);
    }
    return 0;
}
