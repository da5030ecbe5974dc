/* linalg.c - computes dot products and orthonormal bases. */
#include "math/linalg.h"

#include <math.h>
#include <string.h>

enum { CHAINS = 8 };

double mha__dot(int64_t n, const double *a, const double *b)
{
    double sum[CHAINS] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + CHAINS <= n; i += CHAINS)
        for (int c = 0; c < CHAINS; c++)
            sum[c] += a[i + c] * b[i + c];
    for (; i < n; i++)
        rest += a[i] * b[i];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7])) + rest;
}

/* Subtracts from `row` its projections onto the rows of an orthonormal basis. */
static void subtract_projections(int64_t count, int64_t width, const double *basis, double *row)
{
    for (int64_t b = 0; b < count; b++, basis += width) {
        const double part = mha__dot(width, row, basis);
        for (int64_t i = 0; i < width; i++)
            row[i] -= part * basis[i];
    }
}

int64_t mha__orthonormal_rows(int64_t count, int64_t width, double *x)
{
    const double nothing_new = 1e-12;
    int64_t rank = 0;
    for (int64_t r = 0; r < count; r++) {
        double *row = x + rank * width;
        if (r > rank) memmove(row, x + r * width, (size_t)width * sizeof *row);
        const double before = sqrt(mha__dot(width, row, row));
        subtract_projections(rank, width, x, row);
        subtract_projections(rank, width, x,
                             row); /* reorthogonalization: removes the rounding error of the first pass */
        const double after = sqrt(mha__dot(width, row, row));
        if (!(after > nothing_new * before)) continue;
        for (int64_t i = 0; i < width; i++)
            row[i] /= after;
        rank++;
    }
    memset(x + rank * width, 0, (size_t)((count - rank) * width) * sizeof *x);
    return rank;
}
