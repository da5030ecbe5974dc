/* importance_intervals.c - sums scores over units, and computes their means, standard errors and rank correlation. */
#include "heads/importance/importance_intervals.h"

#include "base/ctx.h"
#include "base/error.h"
#include <math.h>
#include <stdlib.h>

/* ---- sums ---- */

enum { ARRAYS = 5, SCALARS = 4 };

mha_status mha__tally_create(mha_ctx *ctx, int64_t heads, int64_t more, mha__tally *t, mha_error *err)
{
    const int64_t fixed = SCALARS + ARRAYS * heads;
    *t = (mha__tally){.heads = heads, .count = 1 + fixed * MHA__FIXED_WORDS + more};
    t->values = mha__calloc(ctx, (size_t)t->count, sizeof *t->values);
    if (!t->values) return mha__no_memory(err, (size_t)t->count * sizeof *t->values, "the scores of heads");
    t->units = t->values;
    t->weight = (mha__fixed *)(t->units + 1);
    t->weight_square = t->weight + 1;
    t->half_weight = t->weight + 2;
    t->sum = t->weight + SCALARS;
    t->square = t->sum + heads;
    t->cross = t->square + heads;
    t->half[0] = t->cross + heads;
    t->half[1] = t->half[0] + heads;
    t->more = (int64_t *)(t->half[1] + heads);
    return MHA_OK;
}

void mha__tally_free(mha_ctx *ctx, mha__tally *t)
{
    mha__free(ctx, t->values);
}

void mha__tally_add(mha__tally *t, int64_t unit, const double *s, double n)
{
    const int odd = (int)(unit % 2);
    ++*t->units;
    mha__fixed_add(t->weight, n);
    mha__fixed_add(t->weight_square, n * n);
    mha__fixed_add(&t->half_weight[odd], n);
    for (int64_t h = 0; h < t->heads; h++) {
        mha__fixed_add(&t->sum[h], s[h]);
        mha__fixed_add(&t->square[h], s[h] * s[h]);
        mha__fixed_add(&t->cross[h], s[h] * n);
        mha__fixed_add(&t->half[odd][h], s[h]);
    }
}

static double quotient(mha__fixed sum, mha__fixed weight)
{
    const double over = mha__fixed_value(weight);
    return over > 0 ? mha__fixed_value(sum) / over : NAN;
}

double mha__tally_mean(const mha__tally *t, int64_t head)
{
    return quotient(t->sum[head], *t->weight);
}

double mha__tally_error(const mha__tally *t, int64_t head)
{
    if (*t->units < 2) return NAN;
    const double units = (double)*t->units, mean = mha__tally_mean(t, head);
    const double left = mha__fixed_value(t->square[head]) - 2 * mean * mha__fixed_value(t->cross[head]) +
                        mean * mean * mha__fixed_value(*t->weight_square);
    return sqrt(fmax(left, 0) / (units * (units - 1))) / (mha__fixed_value(*t->weight) / units);
}

double mha__tally_half(const mha__tally *t, int half, int64_t head)
{
    return quotient(t->half[half][head], t->half_weight[half]);
}

/* ---- ranks ---- */

/* A value, its rank, and its original position in the list. */
typedef struct entry {
    double value, rank;
    int64_t at;
} entry;

static int by_value(const void *a, const void *b)
{
    const double x = ((const entry *)a)->value, y = ((const entry *)b)->value;
    return (x > y) - (x < y);
}

static int by_place(const void *a, const void *b)
{
    const int64_t x = ((const entry *)a)->at, y = ((const entry *)b)->at;
    return (x > y) - (x < y);
}

/* Replaces values with ranks, and restores the original order. */
static void rank(entry *e, int64_t count)
{
    qsort(e, (size_t)count, sizeof *e, by_value);
    for (int64_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && e[end].value == e[first].value;)
            end++;
        for (int64_t i = first; i < end; i++)
            e[i].rank = (double)(first + end - 1) / 2;
    }
    qsort(e, (size_t)count, sizeof *e, by_place);
}

static double correlation(const entry *a, const entry *b, int64_t count)
{
    const double mean = (double)(count - 1) / 2;
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < count; i++) {
        const double x = a[i].rank - mean, y = b[i].rank - mean;
        ab += x * y;
        aa += x * x;
        bb += y * y;
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : NAN;
}

mha_status mha__spearman(mha_ctx *ctx, const double *a, const double *b, int64_t count, double *out, mha_error *err)
{
    entry *x = mha__calloc(ctx, (size_t)count, 2 * sizeof *x), *y = x + count;
    int64_t used = 0;
    *out = NAN;
    if (!x) return mha__no_memory(err, (size_t)count * 2 * sizeof *x, "ranks");
    for (int64_t i = 0; i < count; i++) {
        if (isnan(a[i]) || isnan(b[i])) continue;
        x[used] = (entry){.value = a[i], .at = i};
        y[used++] = (entry){.value = b[i], .at = i};
    }
    rank(x, used);
    rank(y, used);
    *out = correlation(x, y, used);
    mha__free(ctx, x);
    return MHA_OK;
}
