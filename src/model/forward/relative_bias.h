/* relative_bias.h - a table of biases by relative position, shared by all layers (MPNet, after T5). */
#ifndef MHA_MODEL_FORWARD_RELATIVE_BIAS_H
#define MHA_MODEL_FORWARD_RELATIVE_BIAS_H

#include "model/forward/batch.h"

enum { MHA__RELATIVE_BUCKETS = 32 }; /* rows that the rule uses; a table may have more */

/* The row of the table for a key at `distance` = key - query: half of the rows serve each sign, with single distances
 * below 8, then ranges that grow by the square root of 2 up to a distance of 91; one row serves all greater ones. */
int64_t mha__relative_bucket(int64_t distance);

/* Fills batch->bias [H, M, M] for the heads of a layer, where M is mha__batch_map_rows. */
void mha__relative_fill(const mha_model *m, mha__batch *batch, int64_t layer);
/* Adds the gradient [H, M, M] of a layer's biases to the gradient of the table. */
void mha__relative_back(const mha_model *m, const mha__batch *batch, int64_t layer, const float *dbias, float *dtable);

#endif
