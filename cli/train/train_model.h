/* train_model.h - the model that learns: a checkpoint, or a new one; and what it wants to read. */
#ifndef CLI_TRAIN_TRAIN_MODEL_H
#define CLI_TRAIN_TRAIN_MODEL_H

#include "train/train_inputs.h"
#include "train/train_settings.h"

/* Opens --from, or makes --shape. Returns an exit code, as the other one. */
int train_model_open(cli_session *s, const train_settings *t, mha_model **model);

/* Sequences as the model reads them, all but their length; the tokens that it needs are looked for in the tokenizer. */
int train_form_find(const cli_session *s, const train_settings *t, const mha_model *model, train_form *form);

#endif
