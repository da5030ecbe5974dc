/* train_model.h - the model to train, and the form of its input. */
#ifndef CLI_TRAIN_TRAIN_MODEL_H
#define CLI_TRAIN_TRAIN_MODEL_H

#include "train/train_inputs.h"
#include "train/train_settings.h"

/* Opens --from, or creates the model of --shape. Both functions return an exit code. */
int train_model_open(cli_session *s, const train_settings *t, mha_model **model);

/* Sets *form to the form of the model's sequences, except their length, with the special tokens of the tokenizer. */
int train_form_find(const cli_session *s, const train_settings *t, const mha_model *model, train_form *form);

#endif
