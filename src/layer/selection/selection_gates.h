/* selection_gates.h - which heads, experts or options have the greatest scores, the gates of those chosen, and their
 * backward pass to the scores: for the variants and for layers of a model. */
#ifndef MHA_LAYER_SELECTION_SELECTION_GATES_H
#define MHA_LAYER_SELECTION_SELECTION_GATES_H

#include <stdbool.h>
#include <stdint.h>

/* Gates of `count` scores: their softmax, or the sigmoid of each. */
void mha__soft_gates(bool softmax, int64_t count, const double *score, double *gate);
/* dscore from the gradients of these gates; dscore may be exactly dgate. */
void mha__soft_gates_back(bool softmax, int64_t count, const double *gate, const double *dgate, double *dscore);

/* list [keep] = the indices of the greatest of `count` scores, greatest first, the lower index first of equals. NaN is
 * greater than every number, so that it is not hidden. `count` fits an int32_t. */
void mha__score_best(int64_t count, const double *score, int64_t keep, int32_t *list);

#endif
