/* relative_bias.h - a table of biases by relative position, shared by all layers (T5, MPNet). */
#ifndef MHA_MODEL_FORWARD_RELATIVE_BIAS_H
#define MHA_MODEL_FORWARD_RELATIVE_BIAS_H

#include "model/forward/batch.h"

/* Returns the table row for a key at `distance` = key - query. In an encoder, each sign of the distance has half of the
 * rows; in a decoder, all rows are for earlier keys. Half of the rows of a sign are for one distance each; the others
 * are for ranges that grow by a constant factor up to max_distance. The last row is for all greater distances. */
int64_t mha__relative_bucket(const mha__config *config, int64_t distance);

/* A bias depends on key - query only, so the operator reads [rows, keys] of a head from one array of rows + keys - 1
 * elements: its row stride is -1. mha__relative_size returns the elements of batch->bias, mha__relative_describe sets
 * the bias of batch->layer, and mha__relative_fill computes the biases for the heads of a layer. */
int64_t mha__relative_size(const mha_model *m, const mha__batch *batch);
void mha__relative_describe(mha__batch *batch);
void mha__relative_fill(const mha_model *m, int64_t layer, const mha__batch *batch);
/* Adds the gradient [H, 2 M - 1] of a layer's biases by distance to the gradient of the table. */
mha_status mha__relative_back(const mha_model *m, int64_t layer, int64_t M, const float *dbias, float *dtable,
                              mha_error *err);

#endif
