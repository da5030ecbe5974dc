/* stats.c - one pass over each row of a map, in double; nothing larger than a row is kept.
 *
 * "vertical" and "toeplitz" ask how much of the map's energy (sum of p^2) is left when every column, or every diagonal,
 * is replaced by its mean: for a column of c numbers with sum s that is s^2 / c. Columns and diagonals are summed as
 * the rows go by. Both use content rows only.
 */
#include "heads/stats.h"

#include <math.h>
#include <string.h>

/* Sums over the columns and the diagonals of the content rows of one map. Diagonal d = j - i is at [d + n - 1]. */
typedef struct lines {
    double *column, *column_rows;     /* [n] */
    double *diagonal, *diagonal_rows; /* [2n - 1] */
} lines;

static lines lines_clear(double *scratch, int64_t n)
{
    memset(scratch, 0, mha__head_stats_scratch(n) * sizeof *scratch);
    return (lines){scratch, scratch + n, scratch + 2 * n, scratch + 4 * n};
}

static void lines_add(const lines *l, int64_t n, int64_t i, int64_t seen, const float *row)
{
    for (int64_t j = 0; j < n; j++) {
        l->column[j] += (double)row[j];
        l->column_rows[j] += j < seen;
        l->diagonal[j - i + n - 1] += (double)row[j];
        l->diagonal_rows[j - i + n - 1] += 1;
    }
}

static double energy_of_means(const double *sum, const double *count, int64_t n)
{
    double energy = 0;
    for (int64_t i = 0; i < n; i++)
        if (count[i] > 0) energy += sum[i] * sum[i] / count[i];
    return energy;
}

/* What one walk along a row finds. */
typedef struct row_sums {
    double entropy, distance, offset, largest, sep, punct, near, energy;
} row_sums;

/* A NaN makes every sum that it enters one; what is asked of single entries has to be told. */
static row_sums walk(int64_t n, int64_t i, const uint8_t *kind, const float *row)
{
    row_sums r = {0};
    for (int64_t j = 0; j < n; j++) {
        double p = (double)row[j], away = (double)(j - i);
        if (p > 0) r.entropy -= p * log2(p);
        if (p > r.largest) r.largest = p;
        r.distance += p * fabs(away);
        r.offset += p * away;
        r.energy += p * p;
        if (kind[j] & MHA__TOKEN_SEP) r.sep += p;
        if (kind[j] & MHA__TOKEN_PUNCT) r.punct += p;
        if (fabs(away) <= 2) r.near += p;
    }
    if (isnan(r.energy)) r.entropy = r.largest = NAN;
    return r;
}

static void put(mha__head_stats *s, mha_head_metric metric, double value)
{
    s->sum[metric] += value;
    s->over[metric] += 1;
}

/* Rows of all tokens. A row that sees one key has no entropy to normalise. */
static void add_statistics(mha__head_stats *s, const row_sums *r, int64_t seen)
{
    put(s, MHA_HEAD_ENTROPY, r->entropy);
    if (seen > 1) put(s, MHA_HEAD_ENTROPY_NORM, r->entropy / log2((double)seen));
    put(s, MHA_HEAD_DISTANCE, r->distance);
    put(s, MHA_HEAD_OFFSET, r->offset);
    put(s, MHA_HEAD_CONFIDENCE, r->largest);
}

/* Rows of content tokens. A row counts for a target only where the target exists. */
static void add_patterns(mha__head_stats *s, const row_sums *r, int64_t n, int64_t i, int64_t seen, const float *row)
{
    put(s, MHA_HEAD_SELF, (double)row[i]);
    if (i >= 1) put(s, MHA_HEAD_FIRST, (double)row[0]);
    if (i >= 1) put(s, MHA_HEAD_PREV, (double)row[i - 1]);
    if (i + 1 < n) put(s, MHA_HEAD_NEXT, (double)row[i + 1]);
    put(s, MHA_HEAD_SEP, r->sep);
    put(s, MHA_HEAD_PUNCT, r->punct);
    put(s, MHA_HEAD_WINDOW2, r->near);
    if (seen > 1) put(s, MHA_HEAD_BROAD, r->entropy / log2((double)seen));
    s->over[MHA_HEAD_VERTICAL] += r->energy;
    s->over[MHA_HEAD_TOEPLITZ] += r->energy;
}

void mha__head_stats_add(mha__head_stats *s, int64_t n, const uint8_t *kind, bool causal, const float *map,
                         double *scratch)
{
    lines l = lines_clear(scratch, n);
    for (int64_t i = 0; i < n; i++) {
        const float *row = map + i * n;
        int64_t seen = causal ? i + 1 : n;
        row_sums r = walk(n, i, kind, row);
        add_statistics(s, &r, seen);
        if (kind[i] & MHA__TOKEN_SPECIAL) continue;
        add_patterns(s, &r, n, i, seen, row);
        lines_add(&l, n, i, seen, row);
    }
    s->sum[MHA_HEAD_VERTICAL] += energy_of_means(l.column, l.column_rows, n);
    s->sum[MHA_HEAD_TOEPLITZ] += energy_of_means(l.diagonal, l.diagonal_rows, 2 * n - 1);
}

void mha__head_stats_add_probe(mha__head_stats *s, int64_t n, int64_t start, int64_t period, bool causal,
                               const float *map)
{
    for (int64_t i = start + period; i < start + 2 * period; i++) { /* the second copy looks back */
        put(s, MHA_HEAD_DUP_PROBE, (double)map[i * n + i - period]);
        put(s, MHA_HEAD_INDUCTION_PROBE, (double)map[i * n + i - period + 1]);
    }
    for (int64_t i = start; !causal && i < start + period; i++) /* the first may look ahead */
        put(s, MHA_HEAD_DUP_PROBE, (double)map[i * n + i + period]);
}

double mha__head_stats_value(const mha__head_stats *s, mha_head_metric metric)
{
    return s->over[metric] > 0 ? s->sum[metric] / s->over[metric] : NAN;
}
