/* rng_distributions.c - samples all distributions except the normal distribution, which is in rng_normal.c. The fmaf
 * calls correspond to fused multiply-adds in PyTorch's vector kernels; -ffp-contract=off prevents the compiler from
 * fusing any others. */
#include "base/error.h"
#include "math/rng_draws.h"
#include <math.h>
#include <stdbool.h>

mha_status mha_rng_rand(mha_rng *rng, float *x, int64_t n, mha_error *err)
{
    MHA__TRY(mha__rng_check(rng, x, n, "mha_rng_rand", err));
    for (int64_t i = 0; i < n; i++)
        x[i] = mha__rng_unit(rng);
    return MHA_OK;
}

mha_status mha_rng_rand_f64(mha_rng *rng, double *x, int64_t n, mha_error *err)
{
    MHA__TRY(mha__rng_check(rng, x, n, "mha_rng_rand_f64", err));
    for (int64_t i = 0; i < n; i++)
        x[i] = mha__rng_unit64(rng);
    return MHA_OK;
}

/* Returns x, or low if rounding yielded the excluded upper bound, as PyTorch does. */
static float below(float x, float low, float high)
{
    return x >= high ? low : x;
}

mha_status mha_rng_uniform(mha_rng *rng, double low, double high, float *x, int64_t n, mha_error *err)
{
    MHA__TRY(mha__rng_check(rng, x, n, "mha_rng_uniform", err));
    const float from = (float)low, to = (float)high, span = to - from;
    if (!(low <= high) || !isfinite(from) || !isfinite(span))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_rng_uniform: low and high must be a finite ascending range in float32 (got %g to %g)",
                         low, high);
    if (rng->kernels == MHA_RNG_SCALAR)
        for (int64_t i = 0; i < n; i++)
            x[i] = below(mha__rng_unit(rng) * span + from, from, to);
    else
        for (int64_t i = 0; i < n; i++)
            x[i] = below(fmaf(mha__rng_unit(rng), span, from), from, to);
    return MHA_OK;
}

static float exponential_of(double u)
{
    return (float)-log1p(-u);
}

static float exponential(mha_rng *rng)
{
    return exponential_of(mha__rng_unit64(rng));
}

mha_status mha_rng_exponential(mha_rng *rng, float *x, int64_t n, mha_error *err)
{
    MHA__TRY(mha__rng_check(rng, x, n, "mha_rng_exponential", err));
    for (int64_t i = 0; i < n; i++)
        x[i] = exponential(rng);
    return MHA_OK;
}

mha_status mha_rng_randint(mha_rng *rng, int64_t low, int64_t high, int64_t *x, int64_t n, mha_error *err)
{
    MHA__TRY(mha__rng_check(rng, x, n, "mha_rng_randint", err));
    if (low >= high)
        return mha__fail(err, MHA_ERR_ARG, "mha_rng_randint: low must be below high = %lld (got %lld)", (long long)high,
                         (long long)low);
    const uint64_t span = (uint64_t)high - (uint64_t)low;
    const bool wide = span >= UINT64_C(1) << 28;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t bits = wide ? mha__rng_u64(rng) : mha_rng_next(rng);
        x[i] = (int64_t)((uint64_t)low + bits % span);
    }
    return MHA_OK;
}

mha_status mha_rng_randperm(mha_rng *rng, int64_t *x, int64_t n, mha_error *err)
{
    const int64_t max = UINT32_MAX / 20; /* for n of this size or more, PyTorch draws 64 bits and uses another
                                             shuffle */
    MHA__TRY(mha__rng_check(rng, x, n, "mha_rng_randperm", err));
    if (n >= max)
        return mha__fail(err, MHA_ERR_ARG, "mha_rng_randperm: n must be at most %lld (got %lld)", (long long)(max - 1),
                         (long long)n);
    for (int64_t i = 0; i < n; i++)
        x[i] = i;
    for (int64_t i = 0; i + 1 < n; i++) {
        const int64_t k = i + (int64_t)(mha_rng_next(rng) % (uint64_t)(n - i)), held = x[i];
        x[i] = x[k];
        x[k] = held;
    }
    return MHA_OK;
}

/* ---- dropout masks ---- */

/* The random stream of a dropout mask. MKL's generator computes x <- a x mod m; an element is 1 if x / 2^31, in
 * float32, is below p. */
typedef struct mask_stream {
    mha_rng *rng;
    bool mkl;
    double p;
    uint64_t x;
} mask_stream;

static const uint64_t MKL_MODULUS = 2147483647, MKL_FACTOR = 1132489760;

static mask_stream mask_start(mha_rng *rng, double p, mha_rng_route route)
{
    mask_stream s = {rng, route == MHA_RNG_ROUTE_MKL, p, 0};
    if (s.mkl) s.x = mha_rng_next(rng) % MKL_MODULUS;
    if (s.x == 0) s.x = 1;
    return s;
}

static bool mask_next(mask_stream *s)
{
    if (!s->mkl) return mha__rng_unit64(s->rng) < s->p;
    const bool one = (float)s->x * 0x1p-31F < (float)s->p;
    s->x = s->x * MKL_FACTOR % MKL_MODULUS;
    return one;
}

static mha_status check_mask(const mha_rng *rng, double p, mha_rng_route route, const void *x, int64_t n,
                             const char *call, mha_error *err)
{
    MHA__TRY(mha__rng_check(rng, x, n, call, err));
    if (!(p >= 0 && p <= 1)) return mha__fail(err, MHA_ERR_ARG, "%s: p must be from 0 to 1 (got %g)", call, p);
    if (route != MHA_RNG_ROUTE_DEFAULT && route != MHA_RNG_ROUTE_MKL)
        return mha__fail(err, MHA_ERR_ARG, "%s: route must be a value of mha_rng_route (got %d)", call, (int)route);
    return MHA_OK;
}

mha_status mha_rng_bernoulli(mha_rng *rng, double p, mha_rng_route route, uint8_t *x, int64_t n, mha_error *err)
{
    MHA__TRY(check_mask(rng, p, route, x, n, "mha_rng_bernoulli", err));
    if (n == 0) return MHA_OK; /* like PyTorch, does not draw a seed for an empty tensor */
    mask_stream mask = mask_start(rng, p, route);
    for (int64_t i = 0; i < n; i++)
        x[i] = mask_next(&mask);
    return MHA_OK;
}

mha_status mha_rng_dropout_mask(mha_rng *rng, double p, mha_rng_route route, uint8_t *keep, int64_t n, mha_error *err)
{
    MHA__TRY(check_mask(rng, p, route, keep, n, "mha_rng_dropout_mask", err));
    if (p > 0 && p < 1) return mha_rng_bernoulli(rng, 1 - p, route, keep, n, err);
    for (int64_t i = 0; i < n; i++)
        keep[i] = p == 0;
    return MHA_OK;
}

mha_status mha_rng_dropout(mha_rng *rng, double p, mha_rng_route route, const float *x, float *y, int64_t n,
                           mha_error *err)
{
    MHA__TRY(check_mask(rng, p, route, x, n, "mha_rng_dropout", err));
    MHA__TRY(check_mask(rng, p, route, y, n, "mha_rng_dropout", err));
    if (n == 0) return MHA_OK;
    const bool drawn = p > 0 && p < 1;
    const float kept = p < 1 ? 1 / (float)(1 - p) : 0;
    mask_stream mask = drawn ? mask_start(rng, 1 - p, route) : (mask_stream){0};
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * (!drawn || mask_next(&mask) ? kept : 0);
    return MHA_OK;
}

/* ---- multinomial sampling ---- */

static mha_status check_weights(const float *weights, int64_t count, bool replacement, int64_t n, mha_error *err)
{
    int64_t possible = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!(weights[i] >= 0) || !isfinite(weights[i]))
            return mha__fail(err, MHA_ERR_ARG,
                             "mha_rng_multinomial: weights[%lld] must be finite and at least 0 (got %g)", (long long)i,
                             (double)weights[i]);
        possible += weights[i] > 0;
    }
    if (possible == 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_rng_multinomial: weights must contain a positive weight (got none)");
    if (!replacement && n > possible)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_rng_multinomial: n without replacement must be at most %lld, the number of positive "
                         "weights (got %lld)",
                         (long long)possible, (long long)n);
    return MHA_OK;
}

/* Samples with replacement. Each sample is the first index whose cumulative probability, a float32 sum, is at least a
 * random float64. */
static void choose_again(mha_rng *rng, const float *weights, int64_t count, float *share, int64_t *x, int64_t n)
{
    float total = 0;
    for (int64_t i = 0; i < count; i++)
        share[i] = total += weights[i];
    for (int64_t i = 0; i < count; i++)
        share[i] /= total;
    share[count - 1] = 1;
    for (int64_t s = 0; s < n; s++) {
        const double u = mha__rng_unit64(rng);
        int64_t low = 0, high = count - 1;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (share[middle] < u)
                low = middle + 1;
            else
                high = middle;
        }
        x[s] = low;
    }
}

/* Samples without replacement: selects the n indices with the largest scores, in descending order. A score is the
 * weight divided by an exponentially distributed number; the score of a selected index is set to -1. */
static void choose_once(mha_rng *rng, const float *weights, int64_t count, float *score, int64_t *x, int64_t n)
{
    for (int64_t i = 0; i < count; i++)
        score[i] = weights[i] / exponential(rng);
    for (int64_t s = 0; s < n; s++) {
        int64_t best = 0;
        for (int64_t i = 1; i < count; i++)
            if (score[i] > score[best]) best = i;
        score[best] = -1;
        x[s] = best;
    }
}

/* Same as choose_once for n = 1. Computes a logarithm only if the score can be the largest so far: because -log1p(-u)
 * >= u, the score is at most weight / u. The factor 0.99999 is a margin for rounding. */
static int64_t choose_one(mha_rng *rng, const float *weights, int64_t count)
{
    int64_t best = 0;
    float max = -1;
    for (int64_t i = 0; i < count; i++) {
        const double u = mha__rng_unit64(rng);
        if ((double)weights[i] < 0.99999 * (double)max * u) continue;
        const float score = weights[i] / exponential_of(u);
        if (score > max) max = score, best = i;
    }
    return best;
}

mha_status mha_rng_multinomial(mha_rng *rng, const float *weights, int64_t count, int replacement, float *work,
                               int64_t *x, int64_t n, mha_error *err)
{
    const char *const call = "mha_rng_multinomial";
    MHA__TRY(mha__rng_check(rng, x, n, call, err));
    MHA__TRY(mha__rng_check(rng, weights, count, call, err));
    MHA__TRY(mha__rng_check(rng, work, count, call, err));
    MHA__TRY(check_weights(weights, count, replacement != 0, n, err));
    if (n == 1)
        x[0] = choose_one(rng, weights, count);
    else if (replacement)
        choose_again(rng, weights, count, work, x, n);
    else
        choose_once(rng, weights, count, work, x, n);
    return MHA_OK;
}
