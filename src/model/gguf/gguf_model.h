/* gguf_model.h - opens a GGUF file as a checkpoint of transformers: a config.json, and tensors with the names and
 * layouts of the family. */
#ifndef MHA_MODEL_GGUF_GGUF_MODEL_H
#define MHA_MODEL_GGUF_GGUF_MODEL_H

#include "io/tensor_file.h"
#include "model/gguf/gguf_parts.h"

/* Opens the file. The tensors of *file have names of the family; tensors whose layout differs are copies in memory.
 * *config_json is a text to be freed with mha__free. Errors: those of mha_file_open; MHA_ERR_UNSUPPORTED for an unknown
 * architecture; MHA_ERR_FORMAT for a key of a wrong type or a tensor that the architecture lacks. */
mha_status mha__gguf_model_open(mha_ctx *ctx, const char *path, const mha_file_options *options, mha_file **file,
                                char **config_json, mha_error *err);

/* Checks the keys of the architecture: every key must be known, and must not request what config.json cannot express.
 * Errors: MHA_ERR_UNSUPPORTED, with key and value. */
mha_status mha__gguf_check_keys(const mha_file *file, const mha__gguf_arch *arch, mha_error *err);

/* Writes config.json from the keys and tensor names of a GGUF file, which still has its own tensor names. */
mha_status mha__gguf_config(const mha_file *file, const mha__gguf_arch *arch, char **config_json, mha_error *err);

/* Reads ARCH.SUFFIX: one integer, or an array of equal integers. */
mha_status mha__gguf_arch_int(const mha_file *file, const mha__gguf_arch *arch, const char *suffix, int64_t max,
                              int64_t *value, mha_error *err);

#endif
