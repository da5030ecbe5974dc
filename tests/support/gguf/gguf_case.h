/* gguf_case.h - opens and saves models of GGUF files, and compares their outputs. Functions fail the running test on
 * error. */
#ifndef MHA_TEST_GGUF_CASE_H
#define MHA_TEST_GGUF_CASE_H

#include "mha/model_save.h"
#include <stddef.h>

mha_model *gguf_open(const char *path, int no_tokenizer);
/* Opens a folder with another config.json, or with its own if it is NULL, and without its tokenizer. */
mha_model *gguf_open_as(const char *folder, const char *config_json);
/* Returns the logits of 24 tokens, or for encoders the hidden states, in allocated memory. */
float *gguf_outputs(const mha_model *model, size_t *bytes);
/* Checks that the outputs are bitwise identical. */
void gguf_same_outputs(const mha_model *a, const mha_model *b, const char *name);
void gguf_save(const mha_model *model, const char *path, mha_dtype dtype);

#endif
