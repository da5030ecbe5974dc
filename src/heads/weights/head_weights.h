/* head_weights.h - locates the elements of one head in the projections of a layer, in every layout of a checkpoint. The
 * projections of q, k and v are three matrices or one, [out, in] or [in, out]. Several query heads may share a key or
 * value head. */
#ifndef MHA_HEADS_WEIGHTS_HEAD_WEIGHTS_H
#define MHA_HEADS_WEIGHTS_HEAD_WEIGHTS_H

#include "model/model_struct.h"

typedef enum mha__projection { MHA__OF_Q, MHA__OF_K, MHA__OF_V, MHA__OF_O } mha__projection;

/* Location of one head in a projection: element (r, c) is at data[first + r row + c column] of the tensor of `role`:
 * [D, E] for q, k and v, [E, D] for o. */
typedef struct mha__head_part {
    mha__role role;
    int64_t first, row, column, rows, columns;
} mha__head_part;

/* Return the location of query head `head` of the layer; for k and v, of the key or value head that it reads.
 * mha__head_part_of: in the tensor as the checkpoint stores it, and in its gradient. mha__head_part_loaded: in the
 * tensor that mha__weights_again returns, whose rows may be in another order (tensor_order.h). The two parts differ
 * only in `first`. */
mha__head_part mha__head_part_of(const mha_model *model, int64_t layer, mha__projection which, int64_t head);
mha__head_part mha__head_part_loaded(const mha_model *model, int64_t layer, mha__projection which, int64_t head);
/* Returns the location of a head of the cross-attention, in both tensors. */
mha__head_part mha__head_part_cross(const mha_model *model, int64_t layer, mha__projection which, int64_t head);

/* Return the sum of |a| over the elements of a part, and the sum of a b. Both a and b have the layout of the part's
 * tensor. */
double mha__head_part_abs(const mha__head_part *part, const float *a);
double mha__head_part_dot(const mha__head_part *part, const float *a, const float *b);

#endif
