/* js_mixtures.h - entropy sums of the mixtures of all pairs of heads, from which Jensen-Shannon divergences are
 * computed. */
#ifndef MHA_ATTN_STATS_JS_MIXTURES_H
#define MHA_ATTN_STATS_JS_MIXTURES_H

#include "mha/ctx.h"

/* Adds to sums [heads, heads], lower triangle with its diagonal: sums[a][b] += sum of (p + q) log2(p + q) over the n
 * elements p of head a and q of head b. The elements of head h begin at probs + h stride. Over rows of probabilities,
 * the sum of the divergences in bits is (sums[a][a] + sums[b][b]) / 4 - sums[a][b] / 2. Results are bitwise identical
 * for any number of threads. */
void mha__mixtures(mha_ctx *ctx, int64_t heads, int64_t n, const float *probs, int64_t stride, double *sums);

#endif
