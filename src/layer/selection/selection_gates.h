/* selection_gates.h - which heads, experts or options have the greatest scores, the gates of those chosen, and their
 * backward pass to the scores: for the variants and for layers of a model. */
#ifndef MHA_LAYER_SELECTION_SELECTION_GATES_H
#define MHA_LAYER_SELECTION_SELECTION_GATES_H

#include "mha/layer.h"
#include <stdbool.h>

/* list [keep] = the indices of the greatest of `count` scores, greatest first, the lower index first of equals. NaN is
 * greater than every number, so that it is not hidden. `count` fits an int32_t. */
void mha__score_best(int64_t count, const double *score, int64_t keep, int32_t *list);

/* True if gates pass a gradient to the scores. */
bool mha__choice_learns(const mha_layer_choice *choice);
/* gate [count] of the scores in list [keep], 0 for all others; may be exactly `score`. soft [count] gets the trained
 * gates: those of the list, which the softmax sums in its order, or those of all options. `keep` of options is 1. */
void mha__choice_gates(const mha_layer_choice *choice, int64_t count, const double *score, const int32_t *list,
                       double *soft, double *gate);
/* d [count]: gradients of the gates, 0 for those not in the list, become gradients of the scores. */
void mha__choice_gates_back(const mha_layer_choice *choice, int64_t count, const int32_t *list, const double *soft,
                            double *d);

#endif
