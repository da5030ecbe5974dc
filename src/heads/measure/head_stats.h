/* head_stats.h - accumulates the scores of one head row by row. Definitions: docs/glossary.md. */
#ifndef MHA_HEADS_MEASURE_HEAD_STATS_H
#define MHA_HEADS_MEASURE_HEAD_STATS_H

#include "mha/heads.h"
#include <stdbool.h>
#include <stddef.h>

/* Every metric is a quotient of two sums; the denominator is the number of rows, or the energy of the map. */
typedef struct mha__head_stats {
    double sum[MHA_HEAD_METRICS];
    double over[MHA_HEAD_METRICS];
} mha__head_stats;

/* Properties of one text that all heads use, set by mha__head_text_fill. In cross-attention the tokens are the keys. */
typedef struct mha__head_text {
    int64_t n;
    const mha_head_queries *queries; /* cross-attention: the queries; NULL = the tokens themselves */
    bool causal;                     /* true = row i attends only to keys 0..i */
    const uint8_t *kind;             /* [n] MHA_TOKEN_SPECIAL ... */
    const int32_t *segments;         /* [n] the segment of each token; NULL = no segments */
    const double *bits;              /* [n + 1] log2 of each index from 1 on */
    int64_t *content; /* [n + 1] number of content tokens (tokens that are not special) before each token */
    int32_t *listed;  /* [3 n] special tokens, separators and punctuation, at most n of each */
    int64_t specials, seps, puncts;
    int64_t rows, content_rows; /* number of queries, and of queries that are not special tokens */
} mha__head_text;

/* Sets the remaining fields from n, queries, causal, kind, segments and bits, using the memory of `content` and
 * `listed`. */
void mha__head_text_fill(mha__head_text *text);

/* Sums over the columns and the diagonals of the map of one text and head, updated with each row; all 0 before the
 * first and after the last row. Diagonal d = j - i is at [d + n - 1]. */
typedef struct mha__head_lines {
    double *column, *special; /* [n] sums over content rows, and over rows of special tokens */
    double *diagonal;         /* [2n - 1] sums over content rows */
} mha__head_lines;

/* Return the number of doubles in the lines of a text of n tokens, and lines that use an array of that size. The caller
 * must set this array to 0. */
static inline size_t mha__head_lines_doubles(int64_t n)
{
    return (size_t)(4 * n);
}
static inline mha__head_lines mha__head_lines_at(double *memory, int64_t n)
{
    return (mha__head_lines){memory, memory + n, memory + 2 * n};
}

/* Adds the next f32 rows of a text. Rows of special tokens are included in the statistics, but not in the pattern
 * scores; keys always include all tokens. After the last row of the text, adds the energies of the lines to `stats`,
 * adds to `received` [n] (unless NULL) the weight that each key received from all rows, and sets the lines to 0. */
void mha__head_stats_add(mha__head_stats *stats, const mha__head_lines *lines, const mha__head_text *text,
                         const mha_attn_rows *rows, double *received);

/* Adds rows of a probe text, [first] r r [last]. The first r begins at token `start`; r has `period` tokens. */
void mha__head_stats_add_probe(mha__head_stats *stats, int64_t start, int64_t period, bool causal,
                               const mha_attn_rows *rows);

/* Returns the value of a metric; NAN if nothing was summed. */
double mha__head_stats_value(const mha__head_stats *stats, mha_head_metric metric);

/* Returns the label of the first rule that applies (head_labels.c). A NAN score satisfies no rule. `limits` must not
 * contain 0. */
mha_head_label mha__head_stats_label(const mha__head_stats *stats, const mha_head_thresholds *limits);

/* Copies the thresholds, replacing 0 with the defaults. Fails with MHA_ERR_ARG if a threshold is negative or NAN. */
mha_status mha__head_thresholds_read(const mha_head_thresholds *given, mha_head_thresholds *limits, mha_error *err);

#endif
