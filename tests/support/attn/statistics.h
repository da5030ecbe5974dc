/* statistics.h - the statistics of a problem, compared with its probabilities. */
#ifndef TEST_STATISTICS_H
#define TEST_STATISTICS_H

#include "support/attn/problem.h"

/* Allocates all statistics in one layout and sets their views. */
void statistics_make(problem *p, const tensor_layout *layout);
mha_attn_stats statistics_views(const problem *p);

/* Returns false, with a message in why[capacity], unless the statistics agree with the probabilities from the same
 * call: maxima and top keys bitwise, sums within a few units in the last place. */
bool statistics_near(const problem *p, char *why, size_t capacity);

#endif
