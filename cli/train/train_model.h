/* train_model.h - opens or creates the model to train, and determines the form of its sequences. */
#ifndef CLI_TRAIN_TRAIN_MODEL_H
#define CLI_TRAIN_TRAIN_MODEL_H

#include "train/train_inputs.h"
#include "train/train_settings.h"

/* Opens the model of --from, or creates the model of --shape. Returns an exit code. */
int train_model_open(cli_session *s, const train_settings *t, mha_model **model);

/* Sets *form to the form of the model's sequences, including the special tokens of the tokenizer. Returns an exit
 * code. */
int train_form_find(const cli_session *s, const train_settings *t, const mha_model *model, train_form *form);

#endif
