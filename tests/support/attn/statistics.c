/* statistics.c - compares the statistics of a problem with its probabilities. */
#include "support/attn/statistics.h"

#include "kernel/kernel.h"
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

void statistics_make(problem *p, const tensor_layout *layout)
{
    const mha_attn_desc *d = &p->desc;
    const mha_dtype real = d->dtype == MHA_F64 ? MHA_F64 : MHA_F32;
    const int64_t heads = d->inputs & MHA_ATTN_HEAD_LIST ? d->listed_heads : d->heads;
    const int64_t row[4] = {d->batch, heads, d->q_len, 1}, key[4] = {d->batch, heads, d->kv_len, 1};
    const int64_t top[4] = {d->batch, heads, d->q_len, d->top_keys};
    for (int n = 0; n < PROBLEM_STATS; n++) {
        const bool is_key = n == ROW_ARGMAX || n == TOP_KEY;
        const int64_t *dim = n == RECEIVED ? key : n == TOP_PROB || n == TOP_KEY ? top : row;
        tensor_make(&p->stats[n], is_key ? MHA_I64 : real, dim, layout, TEST_CANARY);
    }
}

mha_attn_stats statistics_views(const problem *p)
{
    return (mha_attn_stats){.size = sizeof(mha_attn_stats),
                            .row_entropy = tensor_view(&p->stats[ROW_ENTROPY]),
                            .row_max = tensor_view(&p->stats[ROW_MAX]),
                            .row_argmax = tensor_view(&p->stats[ROW_ARGMAX]),
                            .row_distance = tensor_view(&p->stats[ROW_DISTANCE]),
                            .received = tensor_view(&p->stats[RECEIVED]),
                            .top_prob = tensor_view(&p->stats[TOP_PROB]),
                            .top_key = tensor_view(&p->stats[TOP_KEY])};
}

/* One row or column of the probabilities whose statistics are checked, and the destination of messages. */
typedef struct line {
    const problem *p;
    int64_t b, h, i;
    /* The largest relative error of a sum. Within a block of keys, terms are added one after another. The error of
     * each addition is at most half a unit in the last place of the partial sum, which on average is half the
     * total; if terms are nearly equal, all additions round in the same direction. The errors of the terms and of the
     * sum over blocks, in double, add a few units. */
    double few;
    char *why;
    size_t capacity;
} line;

static bool close_to(const line *at, const char *name, int stat, double want, double limit)
{
    const double got = tensor_get(&at->p->stats[stat], at->b, at->h, at->i, 0);
    if (isnan(want) ? isnan(got) : fabs(got - want) <= limit) return true;
    snprintf(at->why, at->capacity, "%s[%lld,%lld,%lld] must be %.9g within %.3g (got %.9g)", name, (long long)at->b,
             (long long)at->h, (long long)at->i, want, limit, got);
    return false;
}

/* Compares the top keys with a search of the probabilities: each key must have the largest remaining probability, and
 * the lowest index among equal probabilities. */
static bool top_is_right(const line *at, bool nan)
{
    const problem *p = at->p;
    double above = INFINITY;
    int64_t last = -1;
    for (int64_t n = 0; n < p->desc.top_keys; n++) {
        double best = 0;
        int64_t where = -1;
        for (int64_t j = 0; j < p->desc.kv_len; j++) {
            const double x = tensor_get(&p->probs, at->b, at->h, at->i, j);
            const bool next = x < above || (x == above && j > last);
            if (next && x > best) best = x, where = j;
        }
        const double prob = tensor_get(&p->stats[TOP_PROB], at->b, at->h, at->i, n);
        const double key = tensor_get(&p->stats[TOP_KEY], at->b, at->h, at->i, n);
        if (key == (double)(nan ? -1 : where) && (nan ? isnan(prob) : prob == best)) {
            above = best, last = where;
            continue;
        }
        snprintf(at->why, at->capacity, "top key %lld of [%lld,%lld,%lld] must be %lld with %.9g (got %g with %.9g)",
                 (long long)n, (long long)at->b, (long long)at->h, (long long)at->i, (long long)where, best, key, prob);
        return false;
    }
    return true;
}

/* Checks the statistics of a row. A sum of non-negative terms may have the relative error `few`; the entropy also has
 * the rounding error of p in each log p. */
static bool row_is_right(const line *at)
{
    const problem *p = at->p;
    double max = 0;
    long double entropy = 0, distance = 0, total = 0;
    int64_t argmax = -1;
    for (int64_t j = 0; j < p->desc.kv_len; j++) {
        const double x = tensor_get(&p->probs, at->b, at->h, at->i, j);
        if (x != 0) entropy -= (long double)x * log2l((long double)x);
        distance += (long double)x * (long double)ref_distance(&p->desc, &p->args, at->b, at->i, j);
        total += (long double)x;
        if (x > max) max = x, argmax = j;
    }
    const bool nan = isnan(total);
    return close_to(at, "row_entropy", ROW_ENTROPY, (double)entropy, at->few * (double)(total + entropy)) &&
           close_to(at, "row_max", ROW_MAX, nan ? NAN : max, 0) &&
           close_to(at, "row_argmax", ROW_ARGMAX, nan ? -1 : (double)argmax, 0) &&
           close_to(at, "row_distance", ROW_DISTANCE, (double)distance, at->few * (double)distance) &&
           top_is_right(at, nan);
}

static bool column_is_right(const line *at)
{
    const problem *p = at->p;
    long double received = 0;
    for (int64_t i = 0; i < p->desc.q_len; i++)
        received += (long double)tensor_get(&p->probs, at->b, at->h, i, at->i);
    return close_to(at, "received", RECEIVED, (double)received, at->few * (double)received);
}

bool statistics_near(const problem *p, char *why, size_t capacity)
{
    const mha_attn_desc *d = &p->desc;
    const double unit = d->dtype == MHA_F64 ? 0x1p-53 : 0x1p-24;
    line at = {.p = p, .why = why, .capacity = capacity};
    at.few = (MHA__KEY_BLOCK / 2 + 16) * unit + 0x1p-56 * (double)(d->q_len + d->kv_len);
    for (at.b = 0; at.b < d->batch; at.b++)
        for (at.h = 0; at.h < p->probs.dim[1]; at.h++) {
            for (at.i = 0; at.i < d->q_len; at.i++)
                if (!row_is_right(&at)) return false;
            for (at.i = 0; at.i < d->kv_len && d->q_len > 0; at.i++)
                if (!column_is_right(&at)) return false;
        }
    return true;
}
