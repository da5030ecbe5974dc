/* clock.h - time in seconds, for code that measures itself. */
#ifndef MHA_BASE_CLOCK_H
#define MHA_BASE_CLOCK_H

#include <time.h>

static inline double mha__now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the clock for runs of about `seconds` on `threads` threads. A long run on one thread uses the CPU time of the
 * thread, which stops while other programs occupy the core. That clock is occasionally off by some microseconds, so
 * shorter runs use wall time, which has undisturbed intervals. */
static inline clockid_t mha__clock_for(int threads, double seconds)
{
    return threads == 1 && seconds > 0.001 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
}

#endif
