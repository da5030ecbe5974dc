/* importance_intervals.h - sums of every head's score over units (texts, pairs or batches), and the statistics derived
 * from these sums: the mean score, its standard error, and the agreement of the rankings of two halves of the units.
 *
 * Unit u has a score s_u for each head, and a weight n_u that is the same for all heads (1, or the number of rows of
 * the text). The value is R = sum s / sum n. Its standard error is that of a ratio estimator for N units, sqrt(sum (s -
 * R n)^2 / (N (N - 1))) / mean n (Cochran 1977, 6.4). If all weights are 1, this is the standard error of the mean. */
#ifndef MHA_HEADS_IMPORTANCE_IMPORTANCE_INTERVALS_H
#define MHA_HEADS_IMPORTANCE_IMPORTANCE_INTERVALS_H

#include "math/fixed_sum.h"
#include "mha/ctx.h"
#include <stdint.h>

/* Sums over a set of units, as views of one array of integers. The arrays of disjoint sets can be added element by
 * element. */
typedef struct mha__tally {
    int64_t heads;                      /* number of heads in all layers */
    int64_t *values;                    /* [count] the array that contains the fields below */
    int64_t count;                      /* number of integers */
    int64_t *units;                     /* [1] number of units */
    mha__fixed *weight, *weight_square; /* [1] sums of n and n^2 */
    mha__fixed *half_weight;            /* [2] sums of n over even and odd units */
    mha__fixed *sum, *square, *cross;   /* [heads] sums of s, s^2 and s n */
    mha__fixed *half[2];                /* [heads] sums of s over even and odd units */
    int64_t *more;                      /* [more] additional sums of the caller */
} mha__tally;

/* Allocates sums of 0 for `heads` heads, and `more` integers for the caller. Free with mha__tally_free, also after a
 * failure. */
mha_status mha__tally_create(mha_ctx *ctx, int64_t heads, int64_t more, mha__tally *tally, mha_error *err);
void mha__tally_free(mha_ctx *ctx, mha__tally *tally);

/* Adds the scores s [heads] and the weight n of unit number `unit`. The order of the units does not matter. */
void mha__tally_add(mha__tally *tally, int64_t unit, const double *s, double n);

/* Return the value of a head and its standard error; NAN without units. The standard error is also NAN for a single
 * unit. */
double mha__tally_mean(const mha__tally *tally, int64_t head);
double mha__tally_error(const mha__tally *tally, int64_t head);
/* Returns the value of a head over even (0) or odd (1) units. */
double mha__tally_half(const mha__tally *tally, int half, int64_t head);

/* Computes Spearman's rank correlation of a and b [count]; ties get the mean of their ranks (that is, Pearson's
 * correlation of the ranks). Entries where either is NAN are omitted; NAN if fewer than 2 remain or all are equal. */
mha_status mha__spearman(mha_ctx *ctx, const double *a, const double *b, int64_t count, double *out, mha_error *err);

#endif
