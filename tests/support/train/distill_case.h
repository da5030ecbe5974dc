/* distill_case.h - teachers, pruned students, texts and steps for tests of distillation. */
#ifndef TEST_DISTILL_CASE_H
#define TEST_DISTILL_CASE_H

#include "mha/prune.h"
#include "mha/train.h"

#define GPT2 "models/gpt2-tiny"
#define BERT "models/bert-tiny" /* a model without an output head */

enum { FOLDERS = 5, B = 3, L = 12 };

/* The folders of the teachers. */
extern const char *const distill_folders[FOLDERS];

/* The batch of three texts that distill_input fills. The second text is padded. */
extern int32_t distill_ids[B * L], distill_labels[B * L];
extern uint8_t distill_mask[B * L];
mha_model_input distill_input(void);

/* A model without the last two heads of layer 0, which are a whole group if heads share keys. */
typedef struct distill_student {
    mha_model_edit *made;
    mha_model *model;
} distill_student;
distill_student distill_prune(const mha_model *teacher);
void distill_release(distill_student *p);

mha_trainer *distill_trainer(const mha_model *model, const mha_train_options *o);
/* Returns the batch of `input`, with labels if the model of the trainer is an encoder. */
mha_train_batch distill_batch(const mha_trainer *t, const mha_model_input *input);
/* Runs a step; fails the running test on error. */
mha_train_report distill_step(mha_trainer *t, const mha_model_input *input);

/* Returns weights of all loss terms that the model supports, different for each term. */
mha_model_distill distill_terms(const mha_model *m, double of_labels);

#endif
