/* model_digests.h - identifies the files that a model's weights were read from, for records. */
#ifndef MHA_HEADS_DATA_MODEL_DIGESTS_H
#define MHA_HEADS_DATA_MODEL_DIGESTS_H

#include "io/json/json_write.h"
#include "model/model_struct.h"

/* Writes a JSON object with the name of each file in the model folder and its SHA-256. */
mha_status mha__model_digests(const mha_model *model, mha__json_writer *w, mha_error *err);

#endif
