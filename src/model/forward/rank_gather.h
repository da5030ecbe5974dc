/* rank_gather.h - passes of a model whose weights are divided among processes (mha/model_ranks.h): embeddings and
 * logits, whose tables are divided by token. */
#ifndef MHA_MODEL_FORWARD_RANK_GATHER_H
#define MHA_MODEL_FORWARD_RANK_GATHER_H

#include "model/forward/batch.h"

/* Fails, before any process waits for another process, for ids out of range and for inputs and outputs that depend on
 * the heads of other ranks. Does nothing in a model that is not divided. */
mha_status mha__rank_check(const mha_model *m, const mha_model_input *in, const mha_model_output *out, mha_error *err);

/* Computes the word embeddings x [rows, E]; collective if the model is divided. */
mha_status mha__words_forward(const mha_model *m, const int32_t *ids, int64_t rows, float *x, mha_error *err);
/* Collective. Computes logits [rows, vocab], neither scaled nor capped, in a divided model. */
mha_status mha__rank_logits(const mha_model *m, int64_t rows, const float *input, float *logits, mha_error *err);

#endif
