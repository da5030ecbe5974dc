/* selection_gates.h - the heads, experts or options with the greatest scores, the gates of those selected, and the
 * backward pass to the scores; for the variants and for layers of a model. */
#ifndef MHA_LAYER_SELECTION_SELECTION_GATES_H
#define MHA_LAYER_SELECTION_SELECTION_GATES_H

#include "mha/layer.h"
#include <stdbool.h>

/* list [keep] = the indices of the greatest of `count` scores, greatest first; equal scores by ascending index. NaN
 * ranks above every number, so that it is not hidden. `count` must fit in an int32_t. */
void mha__score_best(int64_t count, const double *score, int64_t keep, int32_t *list);

/* True if gates pass a gradient to the scores. */
bool mha__choice_learns(const mha_layer_choice *choice);
/* gate [count]: the gates of the scores in list [keep], 0 for all others; may be `score` itself. soft [count] receives
 * the trained gates: of the list, summed in its order by the softmax, or of all options, where `keep` is 1. */
void mha__choice_gates(const mha_layer_choice *choice, int64_t count, const double *score, const int32_t *list,
                       double *soft, double *gate);
/* d [count]: gradients of the gates, 0 for scores not in the list, are replaced by gradients of the scores. */
void mha__choice_gates_back(const mha_layer_choice *choice, int64_t count, const int32_t *list, const double *soft,
                            double *d);

#endif
