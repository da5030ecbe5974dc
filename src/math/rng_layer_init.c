/* rng_layer_init.c - initializes layers as PyTorch's constructors do: with the same bounds, in the same order of
 * tensors. */
#include "base/error.h"
#include "base/size.h"
#include "math/rng_draws.h"
#include <math.h>
#include <string.h>

/* Checks that a weight [out, in] is not NULL, that its dimensions are positive, and that its size does not overflow. */
static mha_status check_weight(const mha_rng *rng, const char *out_name, int64_t out, const char *in_name, int64_t in,
                               const float *weight, const char *call, mha_error *err)
{
    size_t bytes;
    if (in < 1 || out < 1 || !mha__bytes((const int64_t[]){out, in}, 2, sizeof *weight, &bytes) || bytes > PTRDIFF_MAX)
        return mha__fail(
            err, MHA_ERR_ARG,
            "%s: %s and %s must be at least 1, and their product must fit the address space (got %lld, %lld)", call,
            out_name, in_name, (long long)out, (long long)in);
    return mha__rng_check(rng, weight, out * in, call, err);
}

static mha_status fill_within(mha_rng *rng, double bound, float *x, int64_t n, mha_error *err)
{
    return mha_rng_uniform(rng, -bound, bound, x, n, err);
}

/* Return the bound of the uniform distribution: sqrt(3) times the standard deviation, computed in double and in
 * PyTorch's order of operations. */
static double kaiming_bound(int64_t in, double a)
{
    return sqrt(3.0) * (sqrt(2.0 / (1 + a * a)) / sqrt((double)in));
}
static double xavier_bound(int64_t in, int64_t out, double gain)
{
    return sqrt(3.0) * (gain * sqrt(2.0 / (double)(in + out)));
}

mha_status mha_rng_kaiming_uniform(mha_rng *rng, int64_t in, int64_t out, double a, float *weight, mha_error *err)
{
    const char *const call = "mha_rng_kaiming_uniform";
    MHA__TRY(check_weight(rng, "out", out, "in", in, weight, call, err));
    if (!isfinite(a)) return mha__fail(err, MHA_ERR_ARG, "%s: a must be finite (got %g)", call, a);
    return fill_within(rng, kaiming_bound(in, a), weight, out * in, err);
}

mha_status mha_rng_xavier_uniform(mha_rng *rng, int64_t in, int64_t out, double gain, float *weight, mha_error *err)
{
    const char *const call = "mha_rng_xavier_uniform";
    MHA__TRY(check_weight(rng, "out", out, "in", in, weight, call, err));
    if (!isfinite(gain) || gain < 0)
        return mha__fail(err, MHA_ERR_ARG, "%s: gain must be finite and at least 0 (got %g)", call, gain);
    return fill_within(rng, xavier_bound(in, out, gain), weight, out * in, err);
}

mha_status mha_rng_linear(mha_rng *rng, int64_t in, int64_t out, float *weight, float *bias, mha_error *err)
{
    MHA__TRY(check_weight(rng, "out", out, "in", in, weight, "mha_rng_linear", err));
    MHA__TRY(fill_within(rng, kaiming_bound(in, sqrt(5.0)), weight, out * in, err));
    return bias == NULL ? MHA_OK : fill_within(rng, 1 / sqrt((double)in), bias, out, err);
}

mha_status mha_rng_embedding(mha_rng *rng, int64_t rows, int64_t width, int64_t padding, float *weight, mha_error *err)
{
    const char *const call = "mha_rng_embedding";
    MHA__TRY(check_weight(rng, "rows", rows, "width", width, weight, call, err));
    if (padding < -1 || padding >= rows)
        return mha__fail(err, MHA_ERR_ARG, "%s: padding must be at least -1 and below rows = %lld (got %lld)", call,
                         (long long)rows, (long long)padding);
    MHA__TRY(mha_rng_randn(rng, weight, rows * width, err));
    if (padding >= 0) memset(weight + padding * width, 0, (size_t)width * sizeof *weight);
    return MHA_OK;
}

mha_status mha_rng_multihead(mha_rng *rng, int64_t width, float *in_weight, float *in_bias, float *out_weight,
                             float *out_bias, mha_error *err)
{
    const char *const call = "mha_rng_multihead";
    const int64_t rows = width > INT64_MAX / 4 ? INT64_MAX : 3 * width;
    MHA__TRY(check_weight(rng, "3 width", rows, "width", width, in_weight, call, err));
    MHA__TRY(check_weight(rng, "width", width, "width", width, out_weight, call, err));
    if ((in_bias == NULL) != (out_bias == NULL))
        return mha__fail(err, MHA_ERR_ARG, "%s: in_bias and out_bias must both be NULL or both be set (got %s = NULL)",
                         call, in_bias == NULL ? "in_bias" : "out_bias");
    MHA__TRY(mha_rng_linear(rng, width, width, out_weight, out_bias, err));
    MHA__TRY(mha_rng_xavier_uniform(rng, width, rows, 1, in_weight, err));
    if (in_bias != NULL) {
        memset(in_bias, 0, (size_t)rows * sizeof *in_bias);
        memset(out_bias, 0, (size_t)width * sizeof *out_bias);
    }
    return MHA_OK;
}
