/* rng_draws.h - internals of the generator: raw draws, and the argument check with which every public function
 * begins. */
#ifndef MHA_MATH_RNG_DRAWS_H
#define MHA_MATH_RNG_DRAWS_H

#include "mha/rng.h"

/* Returns 64 bits from two draws, the high half first. */
static inline uint64_t mha__rng_u64(mha_rng *rng)
{
    const uint64_t high = mha_rng_next(rng);
    return high << 32 | mha_rng_next(rng);
}

/* Return a uniform number in [0, 1): from the low 24 bits of one draw, or the low 53 bits of two. */
static inline float mha__rng_unit(mha_rng *rng)
{
    return (float)(mha_rng_next(rng) & 0xFFFFFF) * 0x1p-24F;
}
static inline double mha__rng_unit64(mha_rng *rng)
{
    return (double)(mha__rng_u64(rng) & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

/* Returns the next output of splitmix64 (Steele, Lea and Flood 2014), for uses that need not match a PyTorch stream.
 * If the state is n * MHA__SPLITMIX, the output is a hash of n. */
#define MHA__SPLITMIX UINT64_C(0x9E3779B97F4A7C15)
static inline uint64_t mha__splitmix(uint64_t *state)
{
    uint64_t z = *state += MHA__SPLITMIX;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Returns output n = 1, 2, ... of splitmix64 seeded with `seed`. */
static inline uint64_t mha__splitmix_at(uint64_t seed, uint64_t n)
{
    uint64_t state = seed + (n - 1) * MHA__SPLITMIX;
    return mha__splitmix(&state);
}

/* Returns the first word of Philox4x32-10 (Salmon et al. 2011) for a counter and a key. The low word of the key is used
 * first, as in the dropout kernels. */
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

/* Convert 16 uniform numbers to normal numbers, as PyTorch's vector kernels do. mha__normal_avx2 requires a CPU with
 * MHA__AVX2; both functions give bitwise identical results. */
void mha__normal_any(float *x, float mean, float std);
void mha__normal_avx2(float *x, float mean, float std);

/* Checks that rng is not NULL, that n >= 0, and that x is not NULL if n > 0. `call` is the name of the public function,
 * used in the message. */
mha_status mha__rng_check(const mha_rng *rng, const void *x, int64_t n, const char *call, mha_error *err);

#endif
