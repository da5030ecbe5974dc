/* model_digests.h - identifies the files that a model's weights were read from, for records. */
#ifndef MHA_HEADS_DATA_MODEL_DIGESTS_H
#define MHA_HEADS_DATA_MODEL_DIGESTS_H

#include "io/json/json_write.h"
#include "model/model_struct.h"

/* Writes an object with the SHA-256 of each file under its name in the folder. */
mha_status mha__model_digests(const mha_model *model, mha__json_writer *w, mha_error *err);

#endif
