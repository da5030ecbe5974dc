/* tensor_pieces.h - reads some rows or columns of a tensor. No other bytes of the file are read. */
#ifndef MHA_MODEL_WEIGHTS_TENSOR_PIECES_H
#define MHA_MODEL_WEIGHTS_TENSOR_PIECES_H

#include "model/weights/weights.h"

/* Indices along one dimension of a tensor: `count` pieces of `length` indices, which begin at start[0 .. count). */
typedef struct mha__tensor_pieces {
    int dimension;
    int64_t count, length;
    const int64_t *start;
} mha__tensor_pieces;

/* Sets *out to the elements of the tensor with these indices, in the order of the pieces, and with all indices of the
 * other dimension. The elements are used in place if they are one aligned f32 array; otherwise, they are converted and
 * kept in `weights`. */
mha_status mha__tensor_read_pieces(mha__weights *weights, const mha_tensor *tensor, const mha__tensor_pieces *pieces,
                                   const float **out, mha_error *err);

#endif
