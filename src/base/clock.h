/* clock.h - seconds, for what measures itself. */
#ifndef MHA_BASE_CLOCK_H
#define MHA_BASE_CLOCK_H

#include <time.h>

static inline double mha__now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The clock for runs that take about `seconds` on that many threads. A long run of one thread is timed by the thread's
 * own clock, which does not run while other programs have the core. In shorter ones that clock is off by some
 * microseconds now and then, and the wall's has undisturbed moments. */
static inline clockid_t mha__clock_for(int threads, double seconds)
{
    return threads == 1 && seconds > 0.001 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
}

#endif
