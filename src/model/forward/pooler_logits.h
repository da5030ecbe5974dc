/* pooler_logits.h - what stands behind the last layer: pooler and logits. */
#ifndef MHA_MODEL_FORWARD_POOLER_LOGITS_H
#define MHA_MODEL_FORWARD_POOLER_LOGITS_H

#include "model/forward/batch.h"

/* MHA_ERR_UNSUPPORTED for what the checkpoint lacks. */
mha_status mha__head_check(const mha_model *m, bool pooled, bool logits, mha_error *err);

/* x [B, L, E] -> pooled [B, E]; `first` has room for [B, E]. */
mha_status mha__head_pool(const mha_model *m, const mha__batch *batch, const float *x, float *first, float *pooled,
                          mha_error *err);

/* What the matrix of logits reads: x [rows, E] itself, or, behind BERT's dense and norm, `room` [rows, E]. */
mha_status mha__head_input(const mha_model *m, int64_t rows, const float *x, float *room, const float **input,
                           mha_error *err);
mha_status mha__head_logits(const mha_model *m, int64_t rows, const float *input, float *logits, mha_error *err);

#endif
