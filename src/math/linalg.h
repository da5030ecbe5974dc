/* linalg.h - matrices in double: products of columns, eigenvectors of a symmetric matrix, Cholesky, bases.
 *
 * Own code, because the bits of a LAPACK depend on how it was built. Matrices are row-major and contiguous where no
 * stride is named. Every number is computed in an order that the sizes alone fix: the same bits for any number of
 * threads. `err` may be NULL; MHA_ERR_MEMORY is possible wherever a status is returned. Speed on one core of a 2023
 * server without vectors beyond SSE2: some 3e9 multiply-adds a second.
 */
#ifndef MHA_MATH_LINALG_H
#define MHA_MATH_LINALG_H

#include "mha/ctx.h"

/* Columns of f32 in memory: number (r, c) is data[r * row + c * column]. */
typedef struct mha__columns {
    const float *data;
    int64_t row, column;
    int64_t count; /* columns */
} mha__columns;

/* out [m, n] += X^T Y over `rows` rows of x [rows, m] and y [rows, n]. Each number is one chain over the rows that
 * goes on from what out holds: cutting the rows into several calls changes no bit. */
mha_status mha__gram_cross(mha_ctx *ctx, int64_t rows, const mha__columns *x, const mha__columns *y, double *out,
                           mha_error *err);
/* out [n, n] += X^T X, symmetric to the bit (so out must be symmetric before), at half the cost. */
mha_status mha__gram(mha_ctx *ctx, int64_t rows, const mha__columns *x, double *out, mha_error *err);

/* Eigenvalues in ascending order, and their eigenvectors in the rows of vectors [n, n]: a = sum of values[i] v_i v_i^T,
 * v_i = vectors + i n, orthonormal. The sign of a vector is not defined. The lower triangle of a [n, n] is read, a is
 * overwritten. Householder's reduction and implicit QL; residual and loss of orthogonality are of the order of
 * n 2^-53 |a|. MHA_ERR_ARG if a number is not finite. Time on one core: 0.1 s for n = 400, 6 s for n = 1600. */
mha_status mha__symmetric_eigen(mha_ctx *ctx, int64_t n, double *a, double *values, double *vectors, mha_error *err);

/* a = L L^T. The lower triangle of a [n, n] is read and becomes L; the upper one is then of no use. MHA_ERR_ARG if a is
 * not positive definite as far as doubles tell: a pivot is no more than n 2^-52 of its diagonal number, or not finite.
 * a is then half done. */
mha_status mha__cholesky(mha_ctx *ctx, int64_t n, double *a, mha_error *err);
/* b [n, columns] = (L L^T)^-1 b, for the L of mha__cholesky. Cannot fail. */
void mha__cholesky_solve(mha_ctx *ctx, int64_t n, const double *l, int64_t columns, double *b);

/* Replaces the rows of x [count, width] by an orthonormal basis of what they span, and returns how many there are: the
 * rows of the basis come first, the others become 0. A row of which less than 1e-12 is new adds none. Gram-Schmidt,
 * done twice. */
int64_t mha__orthonormal_rows(int64_t count, int64_t width, double *x);

/* Sum of a[i] b[i]; eight chains, so that it is quick. */
double mha__dot(int64_t n, const double *a, const double *b);

#endif
