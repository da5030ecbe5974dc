/* rng_draws.h - inside of the generator: raw draws, and the check that every public call begins with. */
#ifndef MHA_MATH_RNG_DRAWS_H
#define MHA_MATH_RNG_DRAWS_H

#include "mha/rng.h"

/* Two draws; the first is the high half. */
static inline uint64_t mha__rng_u64(mha_rng *rng)
{
    const uint64_t high = mha_rng_next(rng);
    return high << 32 | mha_rng_next(rng);
}

/* [0, 1): the low 24 bits of one draw, the low 53 of two. */
static inline float mha__rng_unit(mha_rng *rng)
{
    return (float)(mha_rng_next(rng) & 0xFFFFFF) * 0x1p-24F;
}
static inline double mha__rng_unit64(mha_rng *rng)
{
    return (double)(mha__rng_u64(rng) & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

/* The next number of splitmix64 (Steele, Lea and Flood 2014): for what needs no stream of PyTorch's. From state
 * n MHA__SPLITMIX it is the hash of n. */
#define MHA__SPLITMIX UINT64_C(0x9E3779B97F4A7C15)
static inline uint64_t mha__splitmix(uint64_t *state)
{
    uint64_t z = *state += MHA__SPLITMIX;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Number n = 1, 2, ... of the sequence from `seed`. */
static inline uint64_t mha__splitmix_at(uint64_t seed, uint64_t n)
{
    uint64_t state = seed + (n - 1) * MHA__SPLITMIX;
    return mha__splitmix(&state);
}

/* The first word of Philox4x32-10 (Salmon et al. 2011) at a counter, the key's low word first: as kernels draw. */
static inline uint32_t mha__philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9U, k1 += 0xBB67AE85U) {
        const uint64_t a = UINT64_C(0xD2511F53) * c0, b = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
    }
    return c0;
}

/* Makes normal numbers of 16 uniform ones, as PyTorch's vector kernels do. The second needs a CPU with MHA__AVX2; both
 * give the same bits. */
void mha__normal_any(float *x, float mean, float std);
void mha__normal_avx2(float *x, float mean, float std);

/* The generator is there, and so is x, of n >= 0 numbers. `call` is the function's name, for the sentence. */
mha_status mha__rng_check(const mha_rng *rng, const void *x, int64_t n, const char *call, mha_error *err);

#endif
