/* pooler_logits.h - the outputs after the last layer: pooler output and logits. */
#ifndef MHA_MODEL_FORWARD_POOLER_LOGITS_H
#define MHA_MODEL_FORWARD_POOLER_LOGITS_H

#include "model/forward/batch.h"

/* Returns MHA_ERR_UNSUPPORTED if the checkpoint lacks a requested part. */
mha_status mha__head_check(const mha_model *m, bool pooled, bool logits, mha_error *err);

/* Computes pooled [B, E] from x [B, L, E]; `first` is scratch [B, E]. */
mha_status mha__head_pool(const mha_model *m, const mha__batch *batch, const float *x, float *first, float *pooled,
                          mha_error *err);

/* Sets *input to the input of the output matrix: x [rows, E] or, with BERT's dense layer and norm, their output in
 * `room` [rows, E]. */
mha_status mha__head_input(const mha_model *m, int64_t rows, const float *x, float *room, const float **input,
                           mha_error *err);
mha_status mha__head_logits(const mha_model *m, int64_t rows, const float *input, float *logits, mha_error *err);

#endif
