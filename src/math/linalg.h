/* linalg.h - linear algebra in double: products of columns, eigenvectors of a symmetric matrix, eigenvalues and
 * singular values of any matrix, Cholesky factorization, orthonormal bases.
 *
 * These functions replace LAPACK, whose rounding depends on how it was built. Matrices are row-major and contiguous
 * unless a stride is given. The sizes alone determine the order of every computation, so results are bitwise identical
 * for any number of threads. `err` may be NULL; every function that returns a status may fail with MHA_ERR_MEMORY.
 * Speed on one core of a 2023 server: about 3e9 multiply-adds per second; products of columns use AVX2 if the context
 * does, and are then twice as fast.
 */
#ifndef MHA_MATH_LINALG_H
#define MHA_MATH_LINALG_H

#include "math/fixed_sum.h"
#include "mha/ctx.h"
#include <stdbool.h>

/* Columns of f32 in memory: element (r, c) is data[r * row + c * column]. */
typedef struct mha__columns {
    const float *data;
    int64_t row, column;
    int64_t count; /* number of columns */
} mha__columns;

/* Returns the sum of a[i] * b[i], in ascending order of i. */
static inline double mha__dot_f32(int64_t n, const float *a, const float *b)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Adds X^T Y to out [m, n], over `rows` rows of x [rows, m] and y [rows, n]. Terms are added to each element of out
 * in the order of the rows. Results are therefore bitwise identical whether the rows are passed in one call or divided
 * among several calls. */
mha_status mha__gram_cross(mha_ctx *ctx, int64_t rows, const mha__columns *x, const mha__columns *y, double *out,
                           mha_error *err);
/* Adds X^T X to out [n, n], at half the cost of mha__gram_cross. The result is exactly symmetric if out is symmetric
 * before the call. */
mha_status mha__gram(mha_ctx *ctx, int64_t rows, const mha__columns *x, double *out, mha_error *err);
/* Adds X^T X of each of `count` runs of rows to `to`, a lower triangle of n (n + 1) / 2 sums, row by row. Run i has
 * the rows starts[i] to starts[i + 1] of x, and may be empty. The product of a run is that of mha__gram, and sums over
 * runs are exact (math/fixed_sum.h). Results are therefore bitwise identical if the runs are split over several
 * calls. */
mha_status mha__gram_runs(mha_ctx *ctx, const int64_t *starts, int64_t count, const mha__columns *x, mha__fixed *to,
                          mha_error *err);

/* Computes the eigenvalues in ascending order and, in the rows of vectors [n, n], orthonormal eigenvectors: a = sum of
 * values[i] v_i v_i^T, where v_i = vectors + i n. The sign of a vector is unspecified. Only the lower triangle of a [n,
 * n] is read; a is overwritten. The method is Householder reduction and implicit QL. Residual and loss of orthogonality
 * are of the order of n 2^-53 |a|. Returns MHA_ERR_NOT_FINITE if an element is not finite or too large, or if QL does
 * not converge. Time on one core: 0.1 s for n = 400, 6 s for n = 1600. */
mha_status mha__symmetric_eigen(mha_ctx *ctx, int64_t n, double *a, double *values, double *vectors, mha_error *err);

/* Computes the eigenvalues real[i] + i imaginary[i] of a [n, n], in no particular order; complex ones are adjacent
 * pairs. a is overwritten. The error is of the order of n 2^-53 |a| times the condition of the eigenvalue. Returns
 * false if an element is not finite or QR does not converge. Runs on the calling thread; about 10 n^3 multiply-adds. */
bool mha__eigenvalues(int64_t n, double *a, double *real, double *imaginary);
/* Computes the singular values of a [rows, columns] in descending order: values [rows], of which at most
 * min(rows, columns) are not 0 up to rounding. a is overwritten. The relative error of each value is of the order of
 * 2^-53 sqrt(columns) times the condition of the matrix with rows of unit norm. Returns false if an element is not
 * finite. Runs on the calling thread; about 30 rows^2 columns multiply-adds. */
bool mha__singular_values(int64_t rows, int64_t columns, double *a, double *values);

/* Factors a = L L^T. Reads the lower triangle of a [n, n] and replaces it with L; the upper triangle is then undefined.
 * Returns MHA_ERR_ARG if a is not numerically positive definite: a pivot is at most n 2^-52 times its diagonal element,
 * or not finite; MHA_ERR_NOT_FINITE if the diagonal element is not finite. On errors, a is partially overwritten. */
mha_status mha__cholesky(mha_ctx *ctx, int64_t n, double *a, mha_error *err);
/* Computes b [n, columns] = (L L^T)^-1 b, where l is the result of mha__cholesky. Cannot fail. */
void mha__cholesky_solve(mha_ctx *ctx, int64_t n, const double *l, int64_t columns, double *b);

/* Replaces the rows of x [count, width] with an orthonormal basis of their span, and returns the rank. The basis
 * occupies the first rows; the remaining rows become 0. A row counts as linearly dependent if the component that is
 * orthogonal to the previous rows has at most 1e-12 times the norm of the row. The method is Gram-Schmidt with
 * reorthogonalization. */
int64_t mha__orthonormal_rows(int64_t count, int64_t width, double *x);

/* Returns the sum of a[i] b[i], computed as eight independent partial sums for speed. */
double mha__dot(int64_t n, const double *a, const double *b);

#endif
