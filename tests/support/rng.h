/* rng.h - reproducible random values for tests (SplitMix64). They depend only on (seed, stream). */
#ifndef TEST_RNG_H
#define TEST_RNG_H

#include <stdbool.h>
#include <stdint.h>

typedef struct rng {
    uint64_t state;
} rng;

static inline uint64_t rng_next(rng *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Returns a generator. Different streams of a seed are independent. */
static inline rng rng_make(uint64_t seed, uint64_t stream)
{
    rng r = {seed};
    r.state = rng_next(&r) ^ (stream * 0xD1B54A32D192ED03u);
    return r;
}

/* Returns a uniform value in [0, 1). */
static inline double rng_uniform(rng *r)
{
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}

/* Returns a uniform integer from low to high, both inclusive. */
static inline int64_t rng_range(rng *r, int64_t low, int64_t high)
{
    return low + (int64_t)(rng_next(r) % (uint64_t)(high - low + 1));
}

static inline bool rng_chance(rng *r, double p)
{
    return rng_uniform(r) < p;
}

/* Returns a value of mean 0, variance 1 and magnitude at most 3.47: the sum of four uniform values. A normal value
 * requires two libm calls, which would dominate the run time of the tests. */
static inline double rng_normal(rng *r)
{
    const uint64_t bits = rng_next(r);
    const double sum = (double)((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48));
    return (sum * 0x1p-16 - 2) * 1.7320508075688772;
}

#endif
