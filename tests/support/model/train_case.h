/* train_case.h - training texts, and trainers of small models. */
#ifndef TEST_TRAIN_CASE_H
#define TEST_TRAIN_CASE_H

#include "mha/train.h"

/* Generates a training text as in bench/train_torch.py: of 8 tokens below 61, 7 are determined by the previous
 * token. */
void train_sequence(int64_t number, int64_t length, int32_t *ids);
/* Generates ids [batch, length] of a step, counted from 1. */
void train_texts(int64_t step, int64_t batch, int64_t length, int32_t *ids);

/* Creates a trainer for a folder below MHA_TEST_DATA. On failure, fails the running test with the error message. */
mha_trainer *train_case(mha_ctx *ctx, const char *folder, const mha_train_options *options);
/* Runs the next step on its train_texts; for encoders, every third token is a label. */
mha_train_report train_on(mha_trainer *trainer, int64_t batch, int64_t length);
/* Returns all weights in one array, which the caller must free. */
float *train_weights(const mha_trainer *trainer, int64_t *count);
/* Adds its gradient, multiplied by `by`, to every weight. */
void train_shift(mha_trainer *trainer, float by);
/* Fails unless both trainers have bitwise identical weights. */
void train_expect_alike(const mha_trainer *a, const mha_trainer *b);

/* Checks training runs of a folder: steps must be bitwise identical with 1 to 3 threads and with recomputation, and
 * a saved and resumed run must be identical to an uninterrupted run. */
void train_check_threads(const char *folder, const mha_train_options *options, int64_t batch, int64_t length);
void train_check_resume(const char *folder, const mha_train_options *options, int64_t batch, int64_t length);

#endif
