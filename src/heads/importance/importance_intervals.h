/* importance_intervals.h - sums of every head's score over units (texts, pairs or batches), and the statistics derived
 * from them. These are the value, its confidence interval, and whether other units would rank the heads in the same
 * order.
 *
 * Unit u has a score s_u for each head, and a weight n_u that is the same for all heads (1, or the number of rows of
 * the text). The value is R = sum s / sum n, and its standard error is that of a ratio estimator, sqrt(sum (s - R n)^2
 * / (N (N - 1))) / mean n (Cochran 1977, 6.4). For weights of 1, this is the usual standard error. */
#ifndef MHA_HEADS_IMPORTANCE_IMPORTANCE_INTERVALS_H
#define MHA_HEADS_IMPORTANCE_IMPORTANCE_INTERVALS_H

#include <stdint.h>

#include "mha/ctx.h"

typedef struct mha__tally {
    int64_t heads; /* number of heads in all layers */
    int64_t units;
    double weight, weight_square; /* sums of n and n^2 */
    double half_weight[2];        /* sums of n over even and odd units */
    double *sum, *square, *cross; /* [heads] of s, s^2, s n */
    double *half[2];              /* [heads] of s over even and odd units */
} mha__tally;

/* Free with mha__tally_free, also after a failure. */
mha_status mha__tally_create(mha_ctx *ctx, int64_t heads, mha__tally *tally, mha_error *err);
void mha__tally_free(mha_ctx *ctx, mha__tally *tally);

/* Units must be added in a fixed order, because sums in double depend on it. */
void mha__tally_add(mha__tally *tally, const double *s, double n);

/* Returns NAN without units; the standard error is NAN for fewer than 2 units. */
double mha__tally_mean(const mha__tally *tally, int64_t head);
double mha__tally_error(const mha__tally *tally, int64_t head);
/* Returns the mean of even (0) or odd (1) units. */
double mha__tally_half(const mha__tally *tally, int half, int64_t head);

/* Computes Spearman's rank correlation of a and b [count]; ties get the mean of their ranks (that is, Pearson's
 * correlation of the ranks). Entries where either is NAN are omitted; NAN if fewer than 2 remain or all are equal. */
mha_status mha__spearman(mha_ctx *ctx, const double *a, const double *b, int64_t count, double *out, mha_error *err);

#endif
