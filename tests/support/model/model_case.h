/* model_case.h - opens checkpoints, reads golden tensors, and runs forward passes for tests of models. */
#ifndef TEST_MODEL_CASE_H
#define TEST_MODEL_CASE_H

#include "mha/io.h"
#include "mha/model.h"

/* Opens a model folder below MHA_TEST_DATA, or at an absolute path. On failure, fails the running test with the
 * error message. */
mha_model *case_model(mha_ctx *ctx, const char *folder, const mha_model_options *options);
/* case_model with default options, but without the tokenizer. */
mha_model *case_open(mha_ctx *ctx, const char *folder);
mha_file *case_file(const char *path);
/* Returns the folder of all-MiniLM-L6-v2: $MHA_MINILM if set, otherwise the folder to which `./run fetch minilm` writes
 * the model. NULL if the folder does not exist. */
const char *case_minilm(void);

/* Returns a copy of a tensor of a golden file, which the caller must free; fails the running test if it is missing. */
float *case_floats(const mha_file *file, const char *name);
int32_t *case_ints(const mha_file *file, const char *name);
int64_t case_dimension(const mha_file *file, const char *name, int axis);

/* Returns the number of elements of a tensor. */
int64_t case_elements(const mha_named_tensor *tensor);

/* Creates a temporary folder (support/files.h) with copies of config.json, model.safetensors and, if present,
 * tokenizer.json of `folder`. */
const char *case_copy(const char *folder);

/* Writes config.json of `folder` to the folder `copy`, with `key` set to the JSON `value`, or without `key` if `value`
 * is NULL. */
void case_write_config(const char *copy, const char *folder, const char *key, const char *value);
/* Returns a case_copy whose config.json is written by case_write_config. */
const char *case_copy_edited(const char *folder, const char *key, const char *value);

/* Creates a model with weights initialized from `seed`; fails the running test with the error message on failure. */
mha_model *case_create(mha_ctx *ctx, const char *config_json, uint64_t seed);
/* Returns a temporary folder (support/files.h) with a model that case_create makes, with weights of type `dtype`. */
const char *case_created(const char *config_json, mha_dtype dtype);

/* Fails the running test unless opening the model without its tokenizer returns `status` and a message that contains
 * `part`. `folder` is below MHA_TEST_DATA or an absolute path. */
void case_refused(const char *folder, mha_status status, const char *part);

/* Calls mha_model_create repeatedly, each time with the next allocation failing. Each call must return an error and
 * free all memory. */
void case_create_without_memory(const char *config_json);

/* All results of one forward pass. Arrays are allocated by malloc; free with case_run_free. */
typedef struct case_run {
    int64_t cells, maps; /* element counts: B L E, and B H L L */
    int64_t layers;
    float *hidden;      /* [layers + 1, B, L, E] */
    float *attn;        /* [layers, B, H, L, L] */
    float *last_hidden; /* [B, L, E] */
    float *pooled;      /* [B, E]; NULL unless requested */
} case_run;
void case_forward(const mha_model *model, const mha_model_input *input, int want_pooled, case_run *run);
void case_run_free(case_run *run);

/* Returns the logits [length, vocab] of one sequence, which the caller must free. gates [layers, heads] may be NULL. */
float *case_logits(const mha_model *model, const int32_t *ids, int64_t length, const float *gates);

/* Fails the running test unless |a - b| <= limit for all elements. Returns the largest difference. */
double case_near(const char *what, const float *a, const float *b, int64_t count, double limit);

#endif
