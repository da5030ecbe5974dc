/* tensor_order.h - tensors whose elements a checkpoint stores in another order than the model uses. */
#ifndef MHA_MODEL_WEIGHTS_TENSOR_ORDER_H
#define MHA_MODEL_WEIGHTS_TENSOR_ORDER_H

#include "model/config/family.h"

/* Returns the number of elements that a role's weight, or its bias, has in the order of the model:
 *     per_head    all rows of q, then of k and of v
 *     alternating of each expert, first the columns of gate, then those of up
 *     padded      the columns of each head, then zeros up to head_dim
 * Returns 0 if the stored order is the model's. */
int64_t mha__order_elements(const mha__config *config, mha__role role, int64_t layer, bool bias);
/* Copies a tensor from the stored order to the model's order; with `back`, to the stored order. */
void mha__order_copy(const mha__config *config, mha__role role, int64_t layer, bool bias, const float *from, float *to,
                     bool back);

#endif
