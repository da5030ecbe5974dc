/* importance_intervals.c - see importance_intervals.h. */
#include "heads/importance/importance_intervals.h"

#include <math.h>
#include <stdlib.h>

#include "base/ctx.h"
#include "base/error.h"

/* ---- sums ---- */

mha_status mha__tally_create(mha_ctx *ctx, int64_t heads, mha__tally *t, mha_error *err)
{
    *t = (mha__tally){.heads = heads};
    double *all = mha__calloc(ctx, (size_t)heads, 5 * sizeof *all);
    if (!all) return mha__no_memory(err, (size_t)heads * 5 * sizeof *all, "the scores of heads");
    t->sum = all;
    t->square = all + heads;
    t->cross = all + 2 * heads;
    t->half[0] = all + 3 * heads;
    t->half[1] = all + 4 * heads;
    return MHA_OK;
}

void mha__tally_free(mha_ctx *ctx, mha__tally *t)
{
    mha__free(ctx, t->sum); /* start of the single allocation */
}

void mha__tally_add(mha__tally *t, const double *s, double n)
{
    const int odd = (int)(t->units++ % 2);
    t->weight += n;
    t->weight_square += n * n;
    t->half_weight[odd] += n;
    for (int64_t h = 0; h < t->heads; h++) {
        t->sum[h] += s[h];
        t->square[h] += s[h] * s[h];
        t->cross[h] += s[h] * n;
        t->half[odd][h] += s[h];
    }
}

double mha__tally_mean(const mha__tally *t, int64_t head)
{
    return t->weight > 0 ? t->sum[head] / t->weight : NAN;
}

double mha__tally_error(const mha__tally *t, int64_t head)
{
    if (t->units < 2) return NAN;
    const double units = (double)t->units, mean = mha__tally_mean(t, head);
    const double left = t->square[head] - 2 * mean * t->cross[head] + mean * mean * t->weight_square;
    return sqrt(fmax(left, 0) / (units * (units - 1))) / (t->weight / units);
}

double mha__tally_half(const mha__tally *t, int half, int64_t head)
{
    return t->half_weight[half] > 0 ? t->half[half][head] / t->half_weight[half] : NAN;
}

/* ---- ranks ---- */

/* A value and its position in the list. */
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

/* Replaces values by ranks, and restores the original order. */
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
