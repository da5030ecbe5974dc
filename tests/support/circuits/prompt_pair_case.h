/* prompt_pair_case.h - pairs of prompts for tests of patching and knockouts. */
#ifndef TEST_PROMPT_PAIR_CASE_H
#define TEST_PROMPT_PAIR_CASE_H

#include "mha/circuits.h"

enum { T = 7, M = MHA_CIRCUIT_METRICS };

/* Two prompts of T tokens that differ in token 2. */
extern const int32_t prompt_pair_clean[T], prompt_pair_corrupted[T];

/* Creates a pair whose metrics are measured at token `at`; fails the running test on error. */
mha_prompt_pair *prompt_pair_of(const mha_model *model, const int32_t *clean, const int32_t *corrupted, int64_t at);
/* Returns an array of `count` zeros, which the caller must free. */
double *prompt_pair_room(int64_t count);

#endif
