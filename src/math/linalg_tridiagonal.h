/* linalg_tridiagonal.h - the reduction to tridiagonal form, the first step of mha__symmetric_eigen. */
#ifndef MHA_MATH_LINALG_TRIDIAGONAL_H
#define MHA_MATH_LINALG_TRIDIAGONAL_H

#include "mha/ctx.h"

/* Factors a = Q T Q^T, n > 0. Stores the diagonal of T in d [n], its subdiagonal in e [n] (the last element is 0), and
 * Q^T [n, n] in q. a [n, n] must be symmetric and is overwritten; scratch has 3 n elements. */
void mha__tridiagonal(mha_ctx *ctx, int64_t n, double *a, double *d, double *e, double *q, double *scratch);

#endif
