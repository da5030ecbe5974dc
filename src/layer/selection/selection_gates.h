/* selection_gates.h - gates of what was chosen, and the way back from them to its scores; for the variants that choose
 * and for layers of a model. */
#ifndef MHA_LAYER_SELECTION_SELECTION_GATES_H
#define MHA_LAYER_SELECTION_SELECTION_GATES_H

#include <stdbool.h>
#include <stdint.h>

/* Gates of `count` scores: their softmax, or the sigmoid of each. */
void mha__soft_gates(bool softmax, int64_t count, const double *score, double *gate);
/* dscore from the gradients of these gates; dscore may be exactly dgate. */
void mha__soft_gates_back(bool softmax, int64_t count, const double *gate, const double *dgate, double *dscore);

/* How many of `count` scores come before number n: greater ones, and equal ones with a lower number. NaN counts as
 * greatest, so that it does not hide. */
int64_t mha__score_rank(int64_t count, const double *score, int64_t n);

#endif
