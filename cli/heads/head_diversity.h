/* head_diversity.h - measures how similar heads are, and shows the result as JSON and as text. */
#ifndef CLI_HEADS_HEAD_DIVERSITY_H
#define CLI_HEADS_HEAD_DIVERSITY_H

#include "command.h"
#include <jansson.h>

/* Computes the measures of mha/diversity.h from at most HEAD_DIVERSITY_ROWS rows of maps. Returns an exit code and
 * prints any error. */
enum { HEAD_DIVERSITY_ROWS = 4096 };
int head_diversity_measure(cli_session *s, const mha_model *model, const mha_head_data *data, const char *state,
                           mha_diversity **out);
/* Returns {rows, measures: {name: {blocks: [[...]]}}, unique [layers][heads], xy [N][2], merges [N - 1][a, b, height,
 * size]} for N heads; NULL if memory is exhausted. A block is the upper triangle of a symmetric matrix, row by row with
 * its diagonal: one block for all heads, or one per layer if a measure compares only heads of the same layer. Numbers
 * have six decimals; undefined values are null. */
json_t *head_diversity_json(const mha_diversity *diversity, const mha_heads *heads);
/* Prints the diversity of each layer, and the pairs of heads with the most similar maps (diversity_print.c). Returns an
 * exit code. */
int head_diversity_print(const cli_session *s, const mha_model *model, const mha_heads *heads,
                         const mha_diversity *diversity);

json_t *head_diversity_help(void);      /* {name: explanation} of all measures; NULL if memory is exhausted */
json_t *head_diversity_distances(void); /* names of the measures that are distances (0 = identical) */

#endif
