/* train_case.h - training texts and trainers of small models, and checks of training runs. */
#ifndef TEST_TRAIN_CASE_H
#define TEST_TRAIN_CASE_H

#include "mha/train.h"

/* Generates training text `number` as bench/train_torch.py does: ids below 61. On average, 7 of 8 ids are determined by
 * the previous id. */
void train_sequence(int64_t number, int64_t length, int32_t *ids);
/* Generates the texts of a step, ids [batch, length]; steps are counted from 1. */
void train_texts(int64_t step, int64_t batch, int64_t length, int32_t *ids);

/* Creates a trainer for a folder below MHA_TEST_DATA. On failure, fails the running test with the error message. */
mha_trainer *train_case(mha_ctx *ctx, const char *folder, const mha_train_options *options);
/* Runs the next step on the texts of train_texts; for encoders, every third token is a label. */
mha_train_report train_on(mha_trainer *trainer, int64_t batch, int64_t length);
/* Returns all weights in one array, which the caller must free. */
float *train_weights(const mha_trainer *trainer, int64_t *count);
/* Adds `by` times its gradient to every weight. */
void train_shift(mha_trainer *trainer, float by);
/* Fails unless both trainers have bitwise identical weights. */
void train_expect_alike(const mha_trainer *a, const mha_trainer *b);
/* Fails unless both trainers have the same step, and bitwise identical weights and moments. */
void train_expect_same_state(const mha_trainer *a, const mha_trainer *b);

/* Check training runs from a folder. Steps must be bitwise identical with 1 to 3 threads and with recomputation; a
 * saved and resumed run must be bitwise identical to an uninterrupted run. */
void train_check_threads(const char *folder, const mha_train_options *options, int64_t batch, int64_t length);
void train_check_resume(const char *folder, const mha_train_options *options, int64_t batch, int64_t length);

#endif
