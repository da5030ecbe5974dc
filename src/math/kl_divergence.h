/* kl_divergence.h - compares rows of logits with a distribution. */
#ifndef MHA_MATH_KL_DIVERGENCE_H
#define MHA_MATH_KL_DIVERGENCE_H

#include "mha/ctx.h"

/* Returns log sum exp of x [count] in double. */
double mha__log_sum_exp(const float *x, int64_t count);

/* Returns sum over v of p(v) (log p(v) - log q(v)), where p and q are the distributions of two vectors of logits
 * [count] with log sums p_sum and q_sum, at least 0. Elements with p(v) = 0 add 0. */
double mha__kl_of_logits(const float *p, double p_sum, const float *q, double q_sum, int64_t count);

/* For each row of logits [rows, count]: log_sum = log sum exp, and kl = sum over v of p(v) (log p(v) - log softmax(v)).
 * log_p [count] are log-probabilities; log_sum and kl are [rows]. Computed in double, row by row. */
void mha__kl_rows(mha_ctx *ctx, int64_t rows, int64_t count, const float *logits, const double *log_p, double *log_sum,
                  double *kl);

#endif
