/* statistics.h - the statistics of a problem, tied to its probabilities. */
#ifndef TEST_STATISTICS_H
#define TEST_STATISTICS_H

#include "support/attn/problem.h"

/* Memory for all statistics, in one layout, and the views of it. */
void statistics_make(problem *p, const tensor_layout *layout);
mha_attn_stats statistics_views(const problem *p);

/* False, with a sentence in why[capacity], unless the statistics are those of the probabilities that the call gave too:
 * maxima and top keys to the bit, sums within a few units in the last place. */
bool statistics_near(const problem *p, char *why, size_t capacity);

#endif
