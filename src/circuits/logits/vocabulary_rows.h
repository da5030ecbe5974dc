/* vocabulary_rows.h - rows of the word embeddings and of the output matrix, whatever type the checkpoint stores. */
#ifndef MHA_CIRCUITS_VOCABULARY_ROWS_H
#define MHA_CIRCUITS_VOCABULARY_ROWS_H

#include "model/model_struct.h"

/* Returns the tensor [vocab, embed_width] of the output matrix of a model with logits. */
const mha_tensor *mha__output_table(const mha_model *model);

/* Sets *out to the rows first .. first + rows - 1 of a table [vocab, width]: in place if they are aligned f32,
 * otherwise converted in `room` [rows, width]. */
mha_status mha__vocabulary_rows(const mha_tensor *table, int64_t width, int64_t first, int64_t rows, float *room,
                                const float **out, mha_error *err);

#endif
