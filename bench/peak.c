/* peak.c - measures the limits of this machine: multiply-adds in registers, and reads from each cache level and memory.
 * The other benchmarks report fractions of these limits, which they measure again in the same run.
 *
 *     bench_peak [THREADS [ISA]]       prints CSV: isa,threads,what,value,unit
 */
#include "mha/mha.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20, LARGEST = 1024 };
static const int footprints[] = {1, 4, 16, 32, 64, 128, 256, LARGEST}; /* sizes of the memory that is read, in MiB */

static void row(mha_ctx *ctx, const char *what, double rate, const char *unit)
{
    printf("%s,%d,%s,%.1f,%s\n", mha_ctx_isa(ctx), mha_ctx_threads(ctx), what, 1e-9 * rate, unit);
    fflush(stdout);
}

static mha_status measure(mha_ctx *ctx, const void *memory, mha_error *error)
{
    double rate;
    mha_status status = mha_machine_peak_fma(ctx, &rate, error);
    if (status == MHA_OK) row(ctx, "fma", rate, "GFLOP/s");
    for (size_t i = 0; status == MHA_OK && i < sizeof footprints / sizeof *footprints; i++) {
        char what[32];
        snprintf(what, sizeof what, "read %d MiB", footprints[i]);
        status = mha_machine_peak_read(ctx, memory, (int64_t)footprints[i] * MIB, &rate, error);
        if (status == MHA_OK) row(ctx, what, rate, "GB/s");
    }
    return status;
}

int main(int argc, char **argv)
{
    const mha_ctx_options options = {
        .size = sizeof options, .threads = argc > 1 ? atoi(argv[1]) : 1, .isa = argc > 2 ? argv[2] : NULL};
    mha_ctx *ctx;
    mha_error error = {.message = "out of memory"};
    mha_status status = mha_ctx_create(&options, &ctx, &error);
    void *memory = status == MHA_OK ? mha_alloc(ctx, (size_t)LARGEST * MIB) : NULL;
    if (memory) {
        memset(memory, 0, (size_t)LARGEST * MIB); /* maps the pages before reads are timed */
        status = measure(ctx, memory, &error);
    }
    if (!memory || status != MHA_OK) fprintf(stderr, "bench_peak: %s\n", error.message);
    mha_free(ctx, memory);
    mha_ctx_free(ctx);
    return !memory || status != MHA_OK;
}
