/* rng_normal.c - samples the normal distribution by the Box-Muller method: two uniform numbers u1 and u2 give the pair
 * sqrt(-2 log(1 - u1)) cos(2 pi u2), sqrt(-2 log(1 - u1)) sin(2 pi u2).
 *
 * For fewer than 16 numbers, PyTorch computes in double with the C library, otherwise in float32 in blocks of 16. Its
 * vector kernels compute logarithm, sine and cosine by single-precision polynomials (Moshier's Cephes library), with
 * fused multiply-adds where this file calls fmaf. Bitwise identical results require all of these details. */
#include "base/cpu.h"
#include "base/error.h"
#include "math/pi.h"
#include "math/rng_draws.h"
#include <math.h>
#include <string.h>

enum { BLOCK = 16, HALF = BLOCK / 2 };

/* The following functions process the 8 pairs of a block in loops that compilers vectorize. Without an FMA instruction,
 * library calls of fmaf dominate the time, so the same code is also compiled for CPUs with that instruction. */
#define INLINE static inline __attribute__((always_inline))

/* ---- polynomials in float32 ---- */

/* Splits x = m 2^e with m in [1/2, 1); x is positive and normal. */
INLINE float split(float x, int32_t *e)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    *e = (bits >> 23) - 126;
    bits = (bits & 0x007FFFFF) | 0x3F000000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Returns log x for positive normal x. With m scaled to [sqrt 1/2, sqrt 2) and t = m - 1, log m = t - t^2 / 2 + t^3
 * P(t); in the code, `m` is t. log 2 is split into two parts; the product of the first part and e is exact. */
INLINE float vector_log(float x)
{
    int32_t e;
    const float part = split(x, &e);
    const int32_t low = part < 0x1.6a09e6p-1F;
    const float m = (part - 1) + (low ? part : 0), z = m * m, n = (float)(e - low);
    float y = fmaf(7.0376836292e-2F, m, -1.1514610310e-1F);
    y = fmaf(y, m, 1.1676998740e-1F);
    y = fmaf(y, m, -1.2420140846e-1F);
    y = fmaf(y, m, 1.4249322787e-1F);
    y = fmaf(y, m, -1.6668057665e-1F);
    y = fmaf(y, m, 2.0000714765e-1F);
    y = fmaf(y, m, -2.4999993993e-1F);
    y = fmaf(y, m, 3.3333331174e-1F) * m;
    y = fmaf(y, z, n * -2.12194440e-4F) - 0.5F * z;
    return (m + y) + n * 0.693359375F;
}

/* Computes the sine and cosine of x in [0, 2 pi]. j is the octant of x, rounded up to an even number. The reduced
 * argument x - j pi / 4 is computed with pi / 4 split into three parts. */
INLINE void vector_sincos(float x, float *sine, float *cosine)
{
    const int32_t j = ((int32_t)(x * 1.27323954473516F) + 1) & ~1;
    x = fmaf((float)j, -0.78515625F, x);
    x = fmaf((float)j, -2.4187564849853515625e-4F, x);
    x = fmaf((float)j, -3.77489497744594108e-8F, x);
    const float z = x * x;
    float c = fmaf(fmaf(2.443315711809948e-5F, z, -1.388731625493765e-3F), z, 4.166664568298827e-2F) * z;
    c = fmaf(c, z, -(0.5F * z)) + 1;
    float s = fmaf(fmaf(-1.9515295891e-4F, z, 8.3321608736e-3F), z, -1.6666654611e-1F) * z;
    s = fmaf(s, x, x);
    const float a = (j & 2) != 0 ? c : s, b = (j & 2) != 0 ? s : c;
    *sine = (j & 4) != 0 ? -a : a;
    *cosine = ((j + 2) & 4) != 0 ? -b : b;
}

/* ---- blocks of 16 numbers, converted from uniform to normal; elements j and j + 8 are a pair ---- */

INLINE void block_vector(float *x, float mean, float std)
{
    float r[HALF], sine[HALF], cosine[HALF];
    for (int j = 0; j < HALF; j++)
        r[j] = -2 * vector_log(1 - x[j]);
    for (int j = 0; j < HALF; j++)
        r[j] = sqrtf(r[j]);
    for (int j = 0; j < HALF; j++)
        vector_sincos((float)(2 * MHA__PI) * x[j + HALF], &sine[j], &cosine[j]);
    for (int j = 0; j < HALF; j++) {
        x[j] = fmaf(r[j] * cosine[j], std, mean);
        x[j + HALF] = fmaf(r[j] * sine[j], std, mean);
    }
}

void mha__normal_any(float *x, float mean, float std)
{
    block_vector(x, mean, std);
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) void mha__normal_avx2(float *x, float mean, float std)
{
    block_vector(x, mean, std);
}
#else
void mha__normal_avx2(float *x, float mean, float std)
{
    mha__normal_any(x, mean, std);
}
#endif

/* Converts a block as PyTorch does with ATEN_CPU_CAPABILITY=default: with the C library's functions, and with a fused
 * multiply-add in the last step. */
static void block_scalar(float *x, float mean, float std)
{
    for (int j = 0; j < HALF; j++) {
        const float r = sqrtf(-2 * logf(1 - x[j])), theta = (float)(2 * MHA__PI * x[j + HALF]);
        x[j] = fmaf(r * cosf(theta), std, mean);
        x[j + HALF] = fmaf(r * sinf(theta), std, mean);
    }
}

static void block_f64(double *x)
{
    for (int j = 0; j < HALF; j++) {
        const double r = sqrt(-2 * log(1 - x[j])), theta = 2 * MHA__PI * x[j + HALF];
        x[j] = r * cos(theta);
        x[j + HALF] = r * sin(theta);
    }
}

/* ---- fewer than 16 numbers: in double, pair by pair; the generator keeps the second number of a pair ---- */

static double normal_f64(mha_rng *rng)
{
    if (rng->has_spare) {
        rng->has_spare = 0;
        return rng->spare;
    }
    const double u1 = mha__rng_unit64(rng), u2 = mha__rng_unit64(rng);
    const double r = sqrt(-2 * log1p(-u2)), theta = 2 * MHA__PI * u1;
    rng->spare = r * sin(theta);
    rng->has_spare = 1;
    return r * cos(theta);
}

/* ---- tensors ---- */

/* Writes normal numbers to x [n] in blocks of 16, n >= 16. If n is not a multiple of 16, resamples the last 16 numbers,
 * as PyTorch does. */
static void normal_blocks(mha_rng *rng, float mean, float std, float *x, int64_t n)
{
    void (*transform)(float *, float, float) = mha__cpu_has(MHA__AVX2) ? mha__normal_avx2 : mha__normal_any;
    if (rng->kernels == MHA_RNG_SCALAR) transform = block_scalar;
    for (int64_t i = 0; i < n; i++)
        x[i] = mha__rng_unit(rng);
    for (int64_t i = 0; i + BLOCK <= n; i += BLOCK)
        transform(x + i, mean, std);
    if (n % BLOCK == 0) return;
    float *const last = x + n - BLOCK;
    for (int j = 0; j < BLOCK; j++)
        last[j] = mha__rng_unit(rng);
    transform(last, mean, std);
}

mha_status mha_rng_normal(mha_rng *rng, double mean, double std, float *x, int64_t n, mha_error *err)
{
    MHA__TRY(mha__rng_check(rng, x, n, "mha_rng_normal", err));
    if (!isfinite(mean) || !isfinite(std) || std < 0)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_rng_normal: mean must be finite, and std finite and at least 0 (got %g and %g)", mean,
                         std);
    if (n >= BLOCK)
        normal_blocks(rng, (float)mean, (float)std, x, n);
    else
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)(normal_f64(rng) * std + mean);
    return MHA_OK;
}

mha_status mha_rng_randn(mha_rng *rng, float *x, int64_t n, mha_error *err)
{
    MHA__TRY(mha__rng_check(rng, x, n, "mha_rng_randn", err));
    return mha_rng_normal(rng, 0, 1, x, n, err);
}

mha_status mha_rng_randn_f64(mha_rng *rng, double *x, int64_t n, mha_error *err)
{
    MHA__TRY(mha__rng_check(rng, x, n, "mha_rng_randn_f64", err));
    for (int64_t i = 0; i < n; i++)
        x[i] = n < BLOCK ? normal_f64(rng) : mha__rng_unit64(rng);
    if (n < BLOCK) return MHA_OK;
    for (int64_t i = 0; i + BLOCK <= n; i += BLOCK)
        block_f64(x + i);
    if (n % BLOCK == 0) return MHA_OK;
    double *const last = x + n - BLOCK;
    for (int j = 0; j < BLOCK; j++)
        last[j] = mha__rng_unit64(rng);
    block_f64(last);
    return MHA_OK;
}
