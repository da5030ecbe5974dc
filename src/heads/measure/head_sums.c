/* head_sums.c - sums the statistics of heads over texts, as integers. */
#include "heads/measure/head_sums.h"

#include "base/ctx.h"
#include "base/size.h"
#include <string.h>

enum { NUMBERS = 2 * MHA_HEAD_METRICS, WORDS = MHA__FIXED_WORDS };

/* Returns the maximum number of fraction bits with which a sum of `tokens` weights, each at most 1, fits in an
 * int64_t. */
static int unit_bits(int64_t tokens)
{
    int bits = MHA__FIXED_BITS;
    while (bits > 0 && tokens >= INT64_C(1) << (62 - bits))
        bits--;
    return bits;
}

mha_status mha__head_sums_create(mha_ctx *ctx, int64_t heads, int64_t longest, int64_t tokens, mha__head_sums *sums,
                                 mha_error *err)
{
    const int64_t per_head[] = {heads, NUMBERS * WORDS + 1 + longest};
    size_t bytes;
    *sums = (mha__head_sums){.heads = heads, .longest = longest, .bits = unit_bits(tokens)};
    const bool fits = mha__bytes(per_head, 2, sizeof *sums->values, &bytes);
    sums->values = fits ? mha__calloc(ctx, 1, bytes) : NULL;
    if (!sums->values) return mha__no_memory(err, fits ? bytes : SIZE_MAX, "the statistics of heads");
    sums->count = per_head[0] * per_head[1];
    sums->stats = (mha__fixed *)sums->values;
    sums->bad = sums->values + heads * NUMBERS * WORDS;
    sums->received = sums->bad + heads;
    return MHA_OK;
}

void mha__head_sums_free(mha_ctx *ctx, mha__head_sums *sums)
{
    mha__free(ctx, sums->values);
}

void mha__head_sums_add(mha__head_sums *sums, int64_t head, mha__head_stats *stats, double *received, int64_t n)
{
    const double units = (double)(INT64_C(1) << sums->bits);
    mha__fixed *to = sums->stats + head * NUMBERS;
    int64_t *positions = sums->received + head * sums->longest;
    bool finite = true;
    for (int m = 0; m < MHA_HEAD_METRICS; m++) {
        mha__fixed_add(&to[m], stats->sum[m]);
        mha__fixed_add(&to[MHA_HEAD_METRICS + m], stats->over[m]);
    }
    for (int64_t j = 0; j < n; j++) {
        const bool fits =
            received[j] >= 0 && received[j] <= 2 * (double)n; /* at most n, and rounding cannot double it */
        if (fits) positions[j] += (int64_t)nearbyint(received[j] * units);
        finite = finite && fits;
    }
    sums->bad[head] += !finite;
    memset(stats, 0, sizeof *stats);
    memset(received, 0, (size_t)n * sizeof *received);
}

void mha__head_sums_read(const mha__head_sums *sums, int64_t head, mha__head_stats *stats, double *received)
{
    const double unit = 1 / (double)(INT64_C(1) << sums->bits);
    const mha__fixed *from = sums->stats + head * NUMBERS;
    const int64_t *positions = sums->received + head * sums->longest;
    for (int m = 0; m < MHA_HEAD_METRICS; m++) {
        stats->sum[m] += mha__fixed_value(from[m]);
        stats->over[m] += mha__fixed_value(from[MHA_HEAD_METRICS + m]);
    }
    for (int64_t j = 0; j < sums->longest; j++)
        received[j] = sums->bad[head] ? (double)NAN : (double)positions[j] * unit;
}
