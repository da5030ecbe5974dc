/* gguf_save.h - checks that a GGUF file expresses a model. */
#ifndef MHA_MODEL_WEIGHTS_GGUF_SAVE_H
#define MHA_MODEL_WEIGHTS_GGUF_SAVE_H

#include "model/gguf/gguf_parts.h"
#include "model/model_struct.h"

/* Checks what can be checked before the file is written: layers of equal head counts, and no options of
 * "mha.attention". Errors: MHA_ERR_UNSUPPORTED, naming the key. */
mha_status mha__gguf_expressible(const mha_model *model, const mha__gguf_arch *arch, mha_error *err);

/* Checks that the config of the model opened from the written file computes the same. */
mha_status mha__gguf_compare(const mha_model *model, const mha_model *written, const char *arch, mha_error *err);

#endif
