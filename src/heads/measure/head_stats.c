/* head_stats.c - computes the statistics of a head from the rows of its maps, one row at a time, with no buffer larger
 * than a row. Sums over a row are in float, in eight lanes that a compiler can vectorize; sums over rows are in double.
 *
 * "vertical" and "toeplitz" measure how much of the map's energy (sum of p^2) remains when every column, or every
 * diagonal, is replaced by its mean. A column of c elements with sum s keeps the energy s^2 / c. Columns and diagonals
 * are summed row by row, over content rows only. */
#include "heads/measure/head_stats.h"

#include "base/size.h"
#include <math.h>
#include <string.h>

/* ---- properties of a text ---- */

static bool is_content(const mha__head_text *t, int64_t row)
{
    const uint8_t *kinds = t->queries ? t->queries->kinds : t->kind;
    return !kinds || !(kinds[row] & MHA_TOKEN_SPECIAL);
}

void mha__head_text_fill(mha__head_text *t)
{
    t->specials = t->seps = t->puncts = 0;
    t->content[0] = 0;
    for (int64_t i = 0; i < t->n; i++) {
        const uint8_t kind = t->kind[i];
        if (kind & MHA_TOKEN_SPECIAL) t->listed[t->specials++] = (int32_t)i;
        if (kind & MHA_TOKEN_SEP) t->listed[t->n + t->seps++] = (int32_t)i;
        if (kind & MHA_TOKEN_PUNCT) t->listed[2 * t->n + t->puncts++] = (int32_t)i;
        t->content[i + 1] = t->content[i] + !(kind & MHA_TOKEN_SPECIAL);
    }
    t->rows = t->queries ? t->queries->tokens : t->n;
    t->content_rows = 0;
    for (int64_t i = 0; i < t->rows; i++)
        t->content_rows += is_content(t, i);
}

/* Returns the number of keys that row i attends to. */
static int64_t seen_by(const mha__head_text *t, int64_t i)
{
    return t->causal ? i + 1 : t->n;
}

/* ---- values of one row ---- */

enum { LANES = 8, RUN = 128 }; /* sums are float within a run of RUN elements, double over runs */

static double sum_lanes(const float lanes[LANES])
{
    const float a = (lanes[0] + lanes[4]) + (lanes[2] + lanes[6]), b = (lanes[1] + lanes[5]) + (lanes[3] + lanes[7]);
    return (double)(a + b);
}

/* Returns the sum of p[j]^2. */
static double energy_of(const float *p, int64_t n)
{
    double all = 0;
    for (int64_t start = 0; start < n; start += RUN) {
        const int64_t end = mha__min64(start + RUN, n);
        float lanes[LANES] = {0};
        int64_t j = start;
        for (; j + LANES <= end; j += LANES)
            for (int k = 0; k < LANES; k++)
                lanes[k] += p[j + k] * p[j + k];
        for (; j < end; j++)
            lanes[0] += p[j] * p[j];
        all += sum_lanes(lanes);
    }
    return all;
}

/* Returns the sum of p[j] (j - i). Within a run, j is counted from the start of the run, so that float represents it
 * exactly. */
static double offset_of(const float *p, int64_t n, int64_t i)
{
    static const float step[LANES] = {0, 1, 2, 3, 4, 5, 6, 7};
    double all = 0;
    for (int64_t start = 0; start < n; start += RUN) {
        const int64_t end = mha__min64(start + RUN, n);
        float mass[LANES] = {0}, moment[LANES] = {0};
        int64_t j = start;
        for (; j + LANES <= end; j += LANES)
            for (int k = 0; k < LANES; k++) {
                mass[k] += p[j + k];
                moment[k] += p[j + k] * ((float)(j - start) + step[k]);
            }
        for (; j < end; j++) {
            mass[0] += p[j];
            moment[0] += p[j] * (float)(j - start);
        }
        all += sum_lanes(moment) + sum_lanes(mass) * (double)(start - i);
    }
    return all;
}

static double mass_at(const float *p, const int32_t *keys, int64_t count)
{
    double sum = 0;
    for (int64_t n = 0; n < count; n++)
        sum += (double)p[keys[n]];
    return sum;
}

static double mass_within(const float *p, int64_t n, int64_t i, int64_t reach)
{
    double sum = 0;
    for (int64_t j = mha__max64(i - reach, 0); j <= mha__min64(i + reach, n - 1); j++)
        sum += (double)p[j];
    return sum;
}

static float largest_of(const float *p, int64_t n)
{
    float lanes[LANES] = {0}, max = 0;
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] = p[j + k] > lanes[k] ? p[j + k] : lanes[k];
    for (; j < n; j++)
        max = p[j] > max ? p[j] : max;
    for (int k = 0; k < LANES; k++)
        max = lanes[k] > max ? lanes[k] : max;
    return max;
}

/* Returns the largest weight on a key that is not a special token: the maximum over the ranges between special keys. */
static double largest_nospecial(const mha__head_text *t, const float *p, double largest, int64_t key)
{
    if (key < 0 || !(t->kind[key] & MHA_TOKEN_SPECIAL)) return largest;
    float max = 0;
    for (int64_t n = 0, from = 0; n <= t->specials; n++) {
        const int64_t to = n < t->specials ? t->listed[n] : t->n;
        const float here = largest_of(p + from, to - from);
        max = here > max ? here : max;
        from = to + 1;
    }
    return (double)max;
}

/* Returns the sum of the weights on keys in the segment of row i, minus the fraction of keys that are in this
 * segment. */
static double block_of(const mha__head_text *t, const float *p, int64_t i, int64_t seen)
{
    double mass = 0;
    int64_t keys = 0;
    for (int64_t j = 0; j < seen; j++) {
        if (t->segments[j] != t->segments[i]) continue;
        mass += (double)p[j];
        keys++;
    }
    return mass - (double)keys / (double)seen;
}

/* ---- sums over rows ---- */

static void put(mha__head_stats *s, mha_head_metric metric, double value)
{
    s->sum[metric] += value;
    s->over[metric] += 1;
}

/* One row of a map: its position, its weights, and the statistics that the operator computed. */
typedef struct row {
    const float *p;
    int64_t i, seen, key; /* key: index of the largest weight; -1 if the row contains NAN */
    double entropy, entropy_norm, largest, distance;
} row;

/* Adds the statistics that include the rows of special tokens. The entropy of a row with a single key cannot be
 * normalized. */
static void add_statistics(mha__head_stats *s, const mha__head_text *t, const row *r)
{
    put(s, MHA_HEAD_ENTROPY, r->entropy);
    if (r->seen > 1) put(s, MHA_HEAD_ENTROPY_NORM, r->entropy_norm);
    put(s, MHA_HEAD_CONFIDENCE, r->largest);
    put(s, MHA_HEAD_SINK, (double)r->p[0]);
    if (t->queries) return;
    put(s, MHA_HEAD_DISTANCE, r->distance);
    put(s, MHA_HEAD_OFFSET, t->causal ? -r->distance : offset_of(r->p, t->n, r->i));
}

/* Adds the weight on key `target`, and 1 if the largest weight is on this key, else 0. */
static void put_target(mha__head_stats *s, mha_head_metric mass, mha_head_metric argmax, const row *r, int64_t target)
{
    put(s, mass, (double)r->p[target]);
    put(s, argmax, isnan(r->largest) ? r->largest : r->key == target);
}

/* Adds the pattern scores that compare the position of the query with positions of keys. A row counts for a target only
 * if the row has that target. */
static void add_positions(mha__head_stats *s, const mha__head_text *t, const row *r)
{
    put_target(s, MHA_HEAD_SELF, MHA_HEAD_SELF_ARGMAX, r, r->i);
    if (r->i >= 1) put_target(s, MHA_HEAD_PREV, MHA_HEAD_PREV_ARGMAX, r, r->i - 1);
    if (r->i + 1 < t->n) put_target(s, MHA_HEAD_NEXT, MHA_HEAD_NEXT_ARGMAX, r, r->i + 1);
    put(s, MHA_HEAD_WINDOW2, mass_within(r->p, t->n, r->i, 2));
    if (t->segments) put(s, MHA_HEAD_BLOCK, block_of(t, r->p, r->i, r->seen));
    put(s, MHA_HEAD_DISTANCE_CONTENT, r->distance);
}

/* Adds the pattern scores of a row, for rows of content tokens only. */
static void add_patterns(mha__head_stats *s, const mha__head_text *t, const row *r)
{
    const float *p = r->p;
    const double energy = energy_of(p, r->seen);
    if (!t->queries) add_positions(s, t, r);
    if (t->queries || r->i >= 1) put_target(s, MHA_HEAD_FIRST, MHA_HEAD_FIRST_ARGMAX, r, 0);
    put(s, MHA_HEAD_SEP, mass_at(p, t->listed + t->n, t->seps));
    put(s, MHA_HEAD_PUNCT, mass_at(p, t->listed + 2 * t->n, t->puncts));
    if (r->seen > 1) put(s, MHA_HEAD_BROAD, r->entropy_norm);
    put(s, MHA_HEAD_ENTROPY_CONTENT, r->entropy);
    put(s, MHA_HEAD_CONFIDENCE_CONTENT, r->largest);
    put(s, MHA_HEAD_CONFIDENCE_NOSPECIAL, largest_nospecial(t, p, r->largest, r->key));
    s->over[MHA_HEAD_VERTICAL] += energy;
    if (!t->queries) s->over[MHA_HEAD_TOEPLITZ] += energy;
}

/* ---- columns and diagonals ---- */

static void add_to(double *to, const float *from, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        to[j] += (double)from[j];
}

static void add_lines(const mha__head_lines *l, const mha__head_text *t, const row *r, bool content)
{
    add_to(content ? l->column : l->special, r->p, r->seen);
    if (content && !t->queries) add_to(l->diagonal + t->n - 1 - r->i, r->p, r->seen);
}

/* Return the number of content rows that attend to key j, and the number of content rows that diagonal d crosses. */
static int64_t column_rows(const mha__head_text *t, int64_t j)
{
    return t->content_rows - (t->causal ? t->content[j] : 0);
}

static int64_t diagonal_rows(const mha__head_text *t, int64_t d)
{
    return d >= 0 ? t->content[t->n - d] : t->content[t->n] - t->content[-d];
}

static double energy_of_mean(double sum, int64_t count)
{
    return count > 0 ? sum * sum / (double)count : 0;
}

/* After the last row of a text, adds the energies of columns and diagonals to the statistics and sets the lines to
 * 0. */
static void close_lines(mha__head_stats *s, const mha__head_lines *l, const mha__head_text *t, double *received)
{
    double vertical = 0, toeplitz = 0;
    for (int64_t j = 0; j < t->n; j++)
        vertical += energy_of_mean(l->column[j], column_rows(t, j));
    for (int64_t d = 1 - t->n; !t->queries && d < t->n; d++)
        toeplitz += energy_of_mean(l->diagonal[d + t->n - 1], diagonal_rows(t, d));
    for (int64_t j = 0; received && j < t->n; j++)
        received[j] += l->column[j] + l->special[j];
    s->sum[MHA_HEAD_VERTICAL] += vertical;
    s->sum[MHA_HEAD_TOEPLITZ] += toeplitz;
    memset(l->column, 0, (size_t)t->n * sizeof *l->column);
    memset(l->special, 0, (size_t)t->n * sizeof *l->special);
    memset(l->diagonal, 0, (size_t)(2 * t->n - 1) * sizeof *l->diagonal);
}

/* ---- public functions ---- */

void mha__head_stats_add(mha__head_stats *s, const mha__head_lines *lines, const mha__head_text *t,
                         const mha_attn_rows *rows, double *received)
{
    for (int64_t n = 0; n < rows->count; n++) {
        const int64_t i = rows->first + n, seen = seen_by(t, i);
        const bool content = is_content(t, i);
        const row r = {.p = (const float *)rows->p + n * rows->stride,
                       .i = i,
                       .seen = seen,
                       .key = rows->largest_key[n],
                       .entropy = rows->entropy[n],
                       .entropy_norm = seen > 1 ? rows->entropy[n] / t->bits[seen] : 0,
                       .largest = rows->largest[n],
                       .distance = rows->distance[n]};
        add_statistics(s, t, &r);
        if (content) add_patterns(s, t, &r);
        add_lines(lines, t, &r, content);
    }
    if (rows->first + rows->count == t->rows) close_lines(s, lines, t, received);
}

void mha__head_stats_add_probe(mha__head_stats *s, int64_t start, int64_t period, bool causal,
                               const mha_attn_rows *rows)
{
    for (int64_t n = 0; n < rows->count; n++) {
        const float *p = (const float *)rows->p + n * rows->stride;
        const int64_t i = rows->first + n;
        if (i >= start + period && i < start + 2 * period) { /* row of the second copy: weights on the first copy */
            put(s, MHA_HEAD_DUP_PROBE, (double)p[i - period]);
            put(s, MHA_HEAD_INDUCTION_PROBE, (double)p[i - period + 1]);
        }
        if (!causal && i >= start && i < start + period) /* encoder row of the first copy: weight on the second copy */
            put(s, MHA_HEAD_DUP_PROBE, (double)p[i + period]);
    }
}

double mha__head_stats_value(const mha__head_stats *s, mha_head_metric metric)
{
    return s->over[metric] > 0 ? s->sum[metric] / s->over[metric] : NAN;
}
