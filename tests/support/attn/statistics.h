/* statistics.h - compares the statistics of a problem with its probabilities. */
#ifndef TEST_STATISTICS_H
#define TEST_STATISTICS_H

#include "support/attn/problem.h"

/* Allocates all statistics of a problem in the given layout and sets their views. */
void statistics_make(problem *p, const tensor_layout *layout);
mha_attn_stats statistics_views(const problem *p);

/* Returns true if the statistics agree with the probabilities of the same call: maxima and top keys bitwise, sums
 * within a few units in the last place. Otherwise, returns false with a message in why[capacity]. */
bool statistics_near(const problem *p, char *why, size_t capacity);

#endif
