/* clock.h - timing of the benchmarks: the minimum over many rounds. CPU time of the thread excludes the time of other
 * programs; with several threads, wall-clock time is used. */
#ifndef BENCH_CLOCK_H
#define BENCH_CLOCK_H

#include <time.h>

static inline double clock_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the minimum seconds of a call work(arg), over at least 3 rounds that together take about `budget` seconds. */
static inline double least_seconds(void (*work)(void *arg), void *arg, double budget, clockid_t clock)
{
    double least = 1e300, total = 0;
    for (int round = 0; round < 3 || total < budget; round++) {
        const double start = clock_seconds(clock);
        work(arg);
        const double seconds = clock_seconds(clock) - start;
        total += seconds;
        least = seconds < least ? seconds : least;
    }
    return least;
}

#endif
