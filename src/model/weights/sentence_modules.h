/* sentence_modules.h - what modules.json of a sentence-transformers folder adds to a text encoder: the pooling of its
 * vectors, and dense layers after it. Without the file, vectors are means of hidden states.
 * model_struct.h declares the functions that read and free the modules. */
#ifndef MHA_MODEL_WEIGHTS_SENTENCE_MODULES_H
#define MHA_MODEL_WEIGHTS_SENTENCE_MODULES_H

#include "model/model_struct.h"

/* Returns MHA_ERR_UNSUPPORTED, naming the module, if the vectors of the model cannot be computed. */
mha_status mha__sentence_check(const mha_model *model, mha_error *err);
/* Returns the elements of the memory that mha__sentence_dense requires between dense layers; 0 with fewer than two. */
int64_t mha__sentence_room(const mha_model *model);
/* Applies the dense layers to a pooled vector [hidden] and writes out [embedding_width], which must not overlap it. */
mha_status mha__sentence_dense(const mha_model *model, const float *pooled, float *room, float *out, mha_error *err);

#endif
