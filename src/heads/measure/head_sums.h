/* head_sums.h - sums the statistics of heads over texts, as integers. The order of the texts does not affect the sums,
 * so the texts may be distributed over several processes (mha/work.h). */
#ifndef MHA_HEADS_MEASURE_HEAD_SUMS_H
#define MHA_HEADS_MEASURE_HEAD_SUMS_H

#include "heads/measure/head_stats.h"
#include "math/fixed_sum.h"
#include "mha/ctx.h"

/* Views of one array of integers. A position receives a weight of at most 1 from each row, and the number of rows is
 * known. Therefore, one integer per position suffices, in the smallest unit in which the sum cannot overflow. */
typedef struct mha__head_sums {
    int64_t *values;   /* [count] the array that contains the fields below */
    int64_t count;     /* number of integers */
    mha__fixed *stats; /* [heads, 2, MHA_HEAD_METRICS] `sum` and `over` of mha__head_stats */
    int64_t *bad;      /* [heads] number of texts with an invalid sum at a position */
    int64_t *received; /* [heads, longest] in units of 2^-bits */
    int64_t heads, longest;
    int bits;
} mha__head_sums;

/* Creates sums of 0 for `heads` heads and texts of at most `longest` tokens each, `tokens` in total. Free with
 * mha__head_sums_free, also after a failure. */
mha_status mha__head_sums_create(mha_ctx *ctx, int64_t heads, int64_t longest, int64_t tokens, mha__head_sums *sums,
                                 mha_error *err);
void mha__head_sums_free(mha_ctx *ctx, mha__head_sums *sums);

/* Adds the statistics of a text of n tokens for one head, and the weights its positions received; sets both to 0. */
void mha__head_sums_add(mha__head_sums *sums, int64_t head, mha__head_stats *stats, double *received, int64_t n);
/* Adds the sums of a head to `stats`, and writes the sums of its positions to `received` [longest]. */
void mha__head_sums_read(const mha__head_sums *sums, int64_t head, mha__head_stats *stats, double *received);

#endif
