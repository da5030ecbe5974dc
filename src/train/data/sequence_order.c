/* sequence_order.c - computes the order of training sequences: a pseudo-random permutation that requires no table. */
#include "train/data/seeded_draws.h"

enum { ROUNDS = 4 };
#define SEQUENCES_MAX (INT64_C(1) << 60) /* 2^60 = 4^30: the shifts below fit in 64 bits */

static uint64_t feistel(const uint64_t key[ROUNDS], int half, uint64_t x)
{
    const uint64_t low = (1ULL << half) - 1;
    uint64_t left = x >> half, right = x & low;
    for (int n = 0; n < ROUNDS; n++) {
        uint64_t state = key[n] ^ right;
        const uint64_t mixed = left ^ (mha__splitmix(&state) & low);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

int64_t mha_train_sequence_order(uint64_t seed, int64_t epoch, int64_t index, int64_t count)
{
    uint64_t state = mha__seeded_state(seed, MHA__DRAWS_ORDER, epoch), key[ROUNDS], x = (uint64_t)index;
    int half = 1;
    if (index < 0 || index >= count || count > SEQUENCES_MAX) return -1;
    while (count > 1LL << (2 * half))
        half++;
    for (int n = 0; n < ROUNDS; n++)
        key[n] = mha__splitmix(&state);
    do
        x = feistel(key, half, x);
    while (x >= (uint64_t)count);
    return (int64_t)x;
}
