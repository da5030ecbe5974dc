/* clock.h - reads the clocks that measure run times, in seconds. */
#ifndef MHA_BASE_CLOCK_H
#define MHA_BASE_CLOCK_H

#include <time.h>

static inline double mha__now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the clock for a run of about `seconds` on `threads` threads. A long run on one thread uses the CPU time of
 * the thread, which excludes the time that other programs take. CPU time is occasionally off by a few microseconds, so
 * shorter runs use wall time. */
static inline clockid_t mha__clock_for(int threads, double seconds)
{
    return threads == 1 && seconds > 0.001 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
}

#endif
