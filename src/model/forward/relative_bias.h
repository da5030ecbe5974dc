/* relative_bias.h - a table of biases by relative position, shared by all layers (MPNet, as in T5). */
#ifndef MHA_MODEL_FORWARD_RELATIVE_BIAS_H
#define MHA_MODEL_FORWARD_RELATIVE_BIAS_H

#include "model/model_struct.h"

/* Returns the table row for a key at `distance` = key - query. Each sign of the distance has half of the rows: one row
 * per distance below 8, then ranges that grow by a factor of the square root of 2 up to distance 91, and one row for
 * all greater distances. */
int64_t mha__relative_bucket(int64_t distance);

/* Computes bias [H, M, M] for the heads of a layer; M is the length of the longest sequence. */
void mha__relative_fill(const mha_model *m, int64_t layer, int64_t M, float *bias);
/* Adds the gradient [H, M, M] of a layer's biases to the gradient of the table. */
void mha__relative_back(const mha_model *m, int64_t layer, int64_t M, const float *dbias, float *dtable);

#endif
