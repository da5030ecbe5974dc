/* rng.c - the MT19937 generator and its seeding. Like PyTorch, it regenerates all 624 words of its state at the first
 * draw after seeding, and whenever all words have been used. */
#include "base/error.h"
#include "math/rng_draws.h"
#include <stddef.h>

enum { WORDS = 624, SHIFT = 397 };

void mha_rng_manual_seed(mha_rng *rng, uint64_t seed)
{
    uint32_t x = (uint32_t)seed;
    if (!rng) return;
    *rng = (mha_rng){.used = WORDS};
    for (uint32_t j = 0; j < WORDS; j++) {
        if (j > 0) x = UINT32_C(1812433253) * (x ^ x >> 30) + j;
        rng->state[j] = x;
    }
}

static uint32_t refreshed(uint32_t here, uint32_t next, uint32_t far)
{
    const uint32_t y = (here & 0x80000000) | (next & 0x7FFFFFFF);
    return far ^ y >> 1 ^ ((y & 1) != 0 ? 0x9908B0DF : 0);
}

/* Regenerates the words in place, so the last words are computed from the new first words. */
static void refresh(uint32_t *s)
{
    for (int k = 0; k < WORDS - SHIFT; k++)
        s[k] = refreshed(s[k], s[k + 1], s[k + SHIFT]);
    for (int k = WORDS - SHIFT; k < WORDS - 1; k++)
        s[k] = refreshed(s[k], s[k + 1], s[k + SHIFT - WORDS]);
    s[WORDS - 1] = refreshed(s[WORDS - 1], s[0], s[SHIFT - 1]);
}

uint32_t mha_rng_next(mha_rng *rng)
{
    if (!rng) return 0;
    if (rng->used < 0 || rng->used >= WORDS) {
        refresh(rng->state);
        rng->used = 0;
    }
    uint32_t y = rng->state[rng->used++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9D2C5680;
    y ^= y << 15 & 0xEFC60000;
    return y ^ y >> 18;
}

mha_status mha__rng_check(const mha_rng *rng, const void *x, int64_t n, const char *call, mha_error *err)
{
    if (rng == NULL) return mha__fail(err, MHA_ERR_ARG, "%s: rng must not be NULL", call);
    if (n < 0) return mha__fail(err, MHA_ERR_ARG, "%s: n must be at least 0 (got %lld)", call, (long long)n);
    if (x == NULL && n > 0)
        return mha__fail(err, MHA_ERR_ARG, "%s: the output must not be NULL if n is not 0 (got n = %lld)", call,
                         (long long)n);
    return MHA_OK;
}
