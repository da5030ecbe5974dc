/* clock.h - measures the time of benchmark calls as the minimum over many rounds. With one thread, the clock is the CPU
 * time of the thread, which excludes other programs; with several threads, it is wall-clock time. */
#ifndef BENCH_CLOCK_H
#define BENCH_CLOCK_H

#include <time.h>

static inline double clock_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the minimum time of a call work(arg) [s], over at least 3 rounds that take about `budget` seconds in
 * total. */
static inline double min_seconds(void (*work)(void *arg), void *arg, double budget, clockid_t clock)
{
    double min = 1e300, total = 0;
    for (int round = 0; round < 3 || total < budget; round++) {
        const double start = clock_seconds(clock);
        work(arg);
        const double seconds = clock_seconds(clock) - start;
        total += seconds;
        min = seconds < min ? seconds : min;
    }
    return min;
}

#endif
