/* stats.h - the numbers of one head, gathered map by map. Definitions: docs/glossary.md. */
#ifndef MHA_HEADS_STATS_H
#define MHA_HEADS_STATS_H

#include <stdbool.h>
#include <stddef.h>

#include "mha/heads.h"

/* What a token is; several may hold. */
enum { MHA__TOKEN_SPECIAL = 1, MHA__TOKEN_SEP = 2, MHA__TOKEN_PUNCT = 4 };

/* Every metric is a quotient: what was summed over what it was summed over (rows, or the energy of the map). */
typedef struct mha__head_stats {
    double sum[MHA_HEAD_METRICS];
    double over[MHA_HEAD_METRICS];
} mha__head_stats;

/* Doubles of scratch that mha__head_stats_add needs for a map of n tokens. */
static inline size_t mha__head_stats_scratch(int64_t n)
{
    return (size_t)(6 * n);
}

/* Adds the map [n, n] (row = query) of one text. kind[n] says what each token is. Rows of special tokens count for the
 * statistics, not for the pattern scores; keys are always all tokens. `causal`: row i sees keys 0..i only. */
void mha__head_stats_add(mha__head_stats *stats, int64_t n, const uint8_t *kind, bool causal, const float *map,
                         double *scratch);

/* Adds the map of a probe text [first] r r [last]: r has `period` tokens and begins at `start`. */
void mha__head_stats_add_probe(mha__head_stats *stats, int64_t n, int64_t start, int64_t period, bool causal,
                               const float *map);

/* NAN where nothing was summed. */
double mha__head_stats_value(const mha__head_stats *stats, mha_head_metric metric);

/* The first rule that fires (heads.h). A score that is NAN fires nothing. */
mha_head_label mha__head_stats_label(const mha__head_stats *stats);

#endif
