/* functions.h - the user functions of random problems (mha/score_functions.h), and their definitions for the
 * reference. They depend on all indices, so that wrong indices change results. */
#ifndef TEST_FUNCTIONS_H
#define TEST_FUNCTIONS_H

#include "mha/attn.h"
#include <stdbool.h>

/* score, score_back, keep and block, for scores in f32 and in f64. */
extern const mha_attn_functions functions_f32, functions_f64;

/* Return true if score, or keep, masks key j for the row at position i. */
bool functions_drop(int64_t b, int64_t h, int64_t i, int64_t j);
bool functions_hide(int64_t b, int64_t h, int64_t i, int64_t j);

/* Returns the term that score adds. Its magnitude is at most 1. */
double functions_term(int64_t b, int64_t h, int64_t i, int64_t j);

/* The score of a key that is not masked is s / FUNCTIONS_SCALE(s) + functions_term(), with the derivative 1 /
 * FUNCTIONS_SCALE(s)^2. */
#define FUNCTIONS_SCALE(s) (1 + ((s) < 0 ? -(s) : (s)) / 8)

#endif
