/* selection_gates.h - selects the heads, experts or options with the greatest scores, and computes their gates and the
 * gradients of the scores; used by variants and models. */
#ifndef MHA_LAYER_SELECTION_SELECTION_GATES_H
#define MHA_LAYER_SELECTION_SELECTION_GATES_H

#include "mha/layer.h"
#include <stdbool.h>

/* Sets list [keep] to the indices of the greatest of `count` scores, greatest first; equal scores by ascending index.
 * NaN ranks above every number, so that errors are not hidden. `count` must fit in an int32_t. */
void mha__score_best(int64_t count, const double *score, int64_t keep, int32_t *list);

/* Returns true if gates pass a gradient to the scores. */
bool mha__choice_learns(const mha_layer_choice *choice);
/* Sets gate [count] to the gates of the scores in list [keep], and to 0 for all other scores; `gate` may be `score`.
 * soft [count] receives the trained gates: the gates of all options with MHA_CHOICE_OPTIONS and `keep` 1, otherwise the
 * gates of the scores in the list, where a softmax is summed in list order. */
void mha__choice_gates(const mha_layer_choice *choice, int64_t count, const double *score, const int32_t *list,
                       double *soft, double *gate);
/* Replaces d [count], the gradients of the gates, with the gradients of the scores. d must be 0 for scores not in the
 * list. */
void mha__choice_gates_back(const mha_layer_choice *choice, int64_t count, const int32_t *list, const double *soft,
                            double *d);

#endif
