/* head_stats.h - the numbers of one head, gathered row by row. Definitions: docs/glossary.md. */
#ifndef MHA_HEADS_MEASURE_HEAD_STATS_H
#define MHA_HEADS_MEASURE_HEAD_STATS_H

#include <stdbool.h>
#include <stddef.h>

#include "mha/heads.h"

/* Every metric is a quotient: what was summed over what it was summed over (rows, or the energy of the map). */
typedef struct mha__head_stats {
    double sum[MHA_HEAD_METRICS];
    double over[MHA_HEAD_METRICS];
} mha__head_stats;

/* What all heads know of one text: filled by mha__head_text_fill. */
typedef struct mha__head_text {
    int64_t n;
    bool causal;             /* row i sees keys 0..i only */
    const uint8_t *kind;     /* [n] MHA_TOKEN_SPECIAL ... */
    const int32_t *segments; /* [n] the segment of each token; NULL: there are none */
    const double *bits;      /* [n + 1] log2 of each number from 1 on */
    int64_t *content;        /* [n + 1] content rows before each row: those that are no special token */
    int32_t *listed;         /* [3 n] special tokens, separators and punctuation, `most` n of each */
    int64_t specials, seps, puncts;
} mha__head_text;

/* From n, causal, kind, segments and bits, and the memory that `content` and `listed` point to. */
void mha__head_text_fill(mha__head_text *text);

/* Sums over the columns and the diagonals of the map of one text and head, while its rows go by; all 0 before and
 * after. Diagonal d = j - i is at [d + n - 1]. */
typedef struct mha__head_lines {
    double *column, *special; /* [n] over content rows, and over the others */
    double *diagonal;         /* [2n - 1] over content rows */
} mha__head_lines;

/* Doubles that the lines of a text of n tokens take, and their place in so many at `memory`, which the caller clears.
 */
static inline size_t mha__head_lines_doubles(int64_t n)
{
    return (size_t)(4 * n);
}
static inline mha__head_lines mha__head_lines_at(double *memory, int64_t n)
{
    return (mha__head_lines){memory, memory + n, memory + 2 * n};
}

/* Adds rows of a text, f32, that follow those added before. Rows of special tokens count for the statistics, not for
 * the pattern scores; keys are always all tokens. Behind the last row adds what the lines have come to, to `received`
 * [n] (unless it is NULL) what each key has received from all rows, and clears them. */
void mha__head_stats_add(mha__head_stats *stats, const mha__head_lines *lines, const mha__head_text *text,
                         const mha_attn_rows *rows, double *received);

/* Adds rows of a probe text [first] r r [last] of n tokens: r has `period` of them and begins at `start`. */
void mha__head_stats_add_probe(mha__head_stats *stats, int64_t start, int64_t period, bool causal,
                               const mha_attn_rows *rows);

/* NAN where nothing was summed. */
double mha__head_stats_value(const mha__head_stats *stats, mha_head_metric metric);

/* The first rule that fires (head_measures.h). A score that is NAN fires nothing. `limits` has no 0 in it. */
mha_head_label mha__head_stats_label(const mha__head_stats *stats, const mha_head_thresholds *limits);

/* Defaults in place of what is 0. MHA_ERR_ARG for one that is negative or no number. */
mha_status mha__head_thresholds_read(const mha_head_thresholds *given, mha_head_thresholds *limits, mha_error *err);

#endif
