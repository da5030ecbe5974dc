/* importance_intervals.h - sums of every head's score over units (texts, pairs or batches), and what follows from them:
 * the value, its confidence interval, and whether other units would rank the heads alike.
 *
 * Unit u gives s_u of each head, and a weight n_u that all heads share (1, or the rows of a text). The value is
 * R = sum s / sum n, and its standard error that of a ratio: sqrt(sum (s - R n)^2 / (N (N - 1))) / mean n, which for
 * weights of 1 is the usual one (Cochran 1977, 6.4).
 */
#ifndef MHA_HEADS_IMPORTANCE_IMPORTANCE_INTERVALS_H
#define MHA_HEADS_IMPORTANCE_IMPORTANCE_INTERVALS_H

#include <stdint.h>

#include "mha/ctx.h"

typedef struct mha__tally {
    int64_t heads; /* of all layers */
    int64_t units;
    double weight, weight_square; /* sums of n and n^2 */
    double half_weight[2];        /* sums of n over even and odd units */
    double *sum, *square, *cross; /* [heads] of s, s^2, s n */
    double *half[2];              /* [heads] of s over even and odd units */
} mha__tally;

/* Freed with mha__tally_free, also after a failure. */
mha_status mha__tally_create(mha_ctx *ctx, int64_t heads, mha__tally *tally, mha_error *err);
void mha__tally_free(mha_ctx *ctx, mha__tally *tally);

/* Units must come in one order: sums in double depend on it. */
void mha__tally_add(mha__tally *tally, const double *s, double n);

/* NAN where there are no units; the error is NAN for fewer than 2. */
double mha__tally_mean(const mha__tally *tally, int64_t head);
double mha__tally_error(const mha__tally *tally, int64_t head);
/* The mean of even (0) or odd (1) units. */
double mha__tally_half(const mha__tally *tally, int half, int64_t head);

/* Spearman's rank correlation of a and b [count], equals sharing the mean of their ranks (Pearson's of the ranks, that
 * is). Places where either is NAN are left out; NAN where fewer than 2 are left or all are equal. */
mha_status mha__spearman(mha_ctx *ctx, const double *a, const double *b, int64_t count, double *out, mha_error *err);

#endif
