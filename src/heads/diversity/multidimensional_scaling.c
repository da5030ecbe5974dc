/* multidimensional_scaling.c - places heads in the plane by classical scaling (Torgerson 1952) of the distances
 * sqrt(js). */
#include "base/ctx.h"
#include "base/size.h"
#include "heads/diversity/diversity.h"
#include "math/linalg.h"
#include <math.h>

/* Computes b = -1/2 J d2 J, where J subtracts the mean of every row and column; d2 is symmetric. */
static void centre(int64_t n, const double *d2, double *mean, double *b)
{
    double all = 0;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++)
            sum += d2[i * n + j];
        mean[i] = sum / (double)n;
        all += mean[i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            b[i * n + j] = -0.5 * (d2[i * n + j] - mean[i] - mean[j] + all);
}

/* Writes the coordinates of one axis. The sign of an eigenvector is arbitrary, so it is chosen to make the largest
 * coordinate positive (on ties, the first of them). */
static void place(int64_t n, const double *vector, double value, double *axis)
{
    int64_t largest = 0;
    for (int64_t i = 1; i < n; i++)
        if (fabs(vector[i]) > fabs(vector[largest])) largest = i;
    const double scale = copysign(sqrt(fmax(value, 0)), vector[largest]);
    for (int64_t i = 0; i < n; i++)
        axis[2 * i] = scale * vector[i];
}

mha_status mha__head_map(mha_ctx *ctx, int64_t n, const double *js, double *xy, double eigenvalues[2], mha_error *err)
{
    const size_t numbers = (size_t)(2 * n * n + n), bytes = numbers * sizeof(double);
    double *b = mha__alloc(ctx, bytes);
    if (!b) return mha__no_memory(err, bytes, "the plane map of the heads");
    double *vectors = b + n * n, *values = vectors + n * n;
    centre(n, js, values, b);
    const mha_status status = mha__symmetric_eigen(ctx, n, b, values, vectors, err);
    for (int64_t k = 0; k < 2 && status == MHA_OK; k++) {
        const int64_t at = n - 1 - k; /* a single head has only one eigenvector */
        eigenvalues[k] = at < 0 ? 0 : values[at];
        place(n, at < 0 ? vectors : vectors + at * n, eigenvalues[k], xy + k);
    }
    mha__free(ctx, b);
    return status;
}
