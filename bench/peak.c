/* peak.c - the limits of this machine, one thread, for each ISA: multiply-adds in registers, and reading from each
 * cache level and from memory. The 100 % of all other benchmarks.
 *
 *     bench_peak [ISA]       one CSV row for each measurement: isa,what,value,unit
 */
#include "bench/clock.h"
#include "kernel/kernel.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile double sink; /* keeps results alive */

typedef struct fma_work {
    const mha__kernels *kernels;
    int64_t steps;
} fma_work;

static void run_fma(void *arg)
{
    const fma_work *w = arg;
    sink = w->kernels->fma_steps(w->steps, 0.999);
}

typedef struct read_work {
    const mha__kernels *kernels;
    const float *memory;
    int64_t count, repeats;
} read_work;

static void run_read(void *arg)
{
    const read_work *w = arg;
    for (int64_t i = 0; i < w->repeats; i++)
        sink = w->kernels->read(w->count, w->memory);
}

static void measure_fma(const mha__kernels *k)
{
    fma_work w = {k, 200000};
    const double seconds = least_seconds(run_fma, &w, 0.3, CLOCK_THREAD_CPUTIME_ID);
    printf("%s,fma,%.1f,GFLOP/s\n", k->isa, 2e-9 * (double)w.steps * k->mr * k->nr / seconds);
}

static int measure_read(const mha__kernels *k)
{
    const int64_t kib[] = {24, 256, 4096, 16384, 262144};
    for (size_t i = 0; i < sizeof kib / sizeof kib[0]; i++) {
        const size_t bytes = (size_t)kib[i] * 1024;
        float *memory = aligned_alloc(4096, bytes);
        if (!memory) return 1;
        memset(memory, 0, bytes);
        read_work w = {k, memory, (int64_t)(bytes / sizeof *memory), 1 + (int64_t)((64 << 20) / bytes)};
        const double seconds = least_seconds(run_read, &w, 0.2, CLOCK_THREAD_CPUTIME_ID);
        printf("%s,read %lld KiB,%.1f,GB/s\n", k->isa, (long long)kib[i],
               1e-9 * (double)bytes * (double)w.repeats / seconds);
        free(memory);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const mha__kernels *last = NULL;
    for (int isa = 0; isa < MHA__ISAS; isa++) {
        const mha__kernels *k = mha__kernels_f32((mha__isa)isa);
        if (!mha__cpu_has((mha__isa)isa) || k == last) continue;
        last = k;
        if (argc > 1 && strcmp(argv[1], k->isa) != 0) continue;
        measure_fma(k);
        if (measure_read(k) != 0) {
            fprintf(stderr, "out of memory\n");
            return 1;
        }
    }
    return 0;
}
