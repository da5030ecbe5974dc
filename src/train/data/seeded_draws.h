/* seeded_draws.h - random numbers that are a function of a seed, a purpose and an index. */
#ifndef MHA_TRAIN_DATA_SEEDED_DRAWS_H
#define MHA_TRAIN_DATA_SEEDED_DRAWS_H

#include "math/rng_draws.h"
#include "mha/train_data.h"

/* Purposes of random numbers. With separate purposes, the order and the masks of the same seed and index are
 * independent. */
enum { MHA__DRAWS_ORDER = 1, MHA__DRAWS_MASKS };

/* Returns the initial splitmix64 state for a seed, a purpose and an index. */
static inline uint64_t mha__seeded_state(uint64_t seed, uint64_t purpose, int64_t index)
{
    uint64_t state = seed;
    state = mha__splitmix(&state) ^ purpose;
    state = mha__splitmix(&state) ^ (uint64_t)index;
    return mha__splitmix(&state);
}

#endif
