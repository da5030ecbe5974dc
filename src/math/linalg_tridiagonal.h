/* linalg_tridiagonal.h - the first half of mha__symmetric_eigen. */
#ifndef MHA_MATH_LINALG_TRIDIAGONAL_H
#define MHA_MATH_LINALG_TRIDIAGONAL_H

#include "mha/ctx.h"

/* a = Q T Q^T, n > 0: the diagonal of T goes to d [n], what lies beside it to e [n] (the last number of e is 0), and
 * Q^T [n, n] to q. a [n, n] is symmetric and overwritten; scratch has 3 n numbers. */
void mha__tridiagonal(mha_ctx *ctx, int64_t n, double *a, double *d, double *e, double *q, double *scratch);

#endif
