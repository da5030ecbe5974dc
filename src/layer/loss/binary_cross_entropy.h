/* binary_cross_entropy.h - the loss of one logit per row, such as those of ELECTRA's discriminator. */
#ifndef MHA_LAYER_LOSS_BINARY_CROSS_ENTROPY_H
#define MHA_LAYER_LOSS_BINARY_CROSS_ENTROPY_H

#include <stdint.h>

/* Returns scale times the sum over all rows of log(1 + exp(z)) - label z, in the order of the rows. labels [rows] are 0
 * or 1. Unless dlogits is NULL, sets it to the gradient, scale (sigmoid(z) - label); it may be `logits`. */
double mha__binary_cross_entropy(int64_t rows, const float *logits, const int32_t *labels, double scale,
                                 float *dlogits);

#endif
