/* head_sums.h - sums of the statistics of heads over texts, as integers: the order of the texts does not matter, so
 * several processes may share them (mha/work.h). */
#ifndef MHA_HEADS_MEASURE_HEAD_SUMS_H
#define MHA_HEADS_MEASURE_HEAD_SUMS_H

#include "heads/measure/head_stats.h"
#include "math/fixed_sum.h"
#include "mha/ctx.h"

/* Views of one array of integers. What positions receive is at most the number of rows of all texts, which are known:
 * one integer per position, in the smallest unit with which such a sum fits. */
typedef struct mha__head_sums {
    int64_t *values;   /* [count] everything below */
    int64_t count;     /* number of integers */
    mha__fixed *stats; /* [heads, 2, MHA_HEAD_METRICS] as in mha__head_stats */
    int64_t *bad;      /* [heads] texts in which a position received a number that is not finite */
    int64_t *received; /* [heads, longest] in units of 2^-bits */
    int64_t heads, longest;
    int bits;
} mha__head_sums;

/* Zeros for `heads` heads and texts of up to `longest` of `tokens` tokens in all. Free with mha__head_sums_free, also
 * after a failure. */
mha_status mha__head_sums_create(mha_ctx *ctx, int64_t heads, int64_t longest, int64_t tokens, mha__head_sums *sums,
                                 mha_error *err);
void mha__head_sums_free(mha_ctx *ctx, mha__head_sums *sums);
void mha__head_sums_clear(mha__head_sums *sums);

/* Adds what a text of n tokens gave for one head, and clears it. */
void mha__head_sums_add(mha__head_sums *sums, int64_t head, mha__head_stats *stats, double *received, int64_t n);
/* Adds the sums of a head to `stats`, and writes those of its positions to `received` [longest]. */
void mha__head_sums_read(const mha__head_sums *sums, int64_t head, mha__head_stats *stats, double *received);

#endif
