/* train_inputs.h - converts the texts and token files of the options to training data (mha/train_data.h). */
#ifndef CLI_TRAIN_TRAIN_INPUTS_H
#define CLI_TRAIN_TRAIN_INPUTS_H

#include "command.h"
#include "train/train_settings.h"

/* The form of the sequences that the model reads. */
typedef struct train_form {
    mha_train_data_options data;
    bool masks;   /* an encoder that predicts masked tokens */
    int32_t mask; /* id of [MASK], encoders only */
} train_form;

/* Reads texts (`how` as --documents, or NULL) or maps token files, and completes the data. Logs truncated texts, and
 * a length reduced because the data are too short. The caller must free *data even after an error. Returns an exit
 * code and prints any error. */
int train_inputs_texts(const cli_session *s, const mha_train_data_options *options, const train_list *paths,
                       const char *how, mha_train_data **data);
int train_inputs_ids(const cli_session *s, const mha_train_data_options *options, const train_list *paths,
                     mha_train_data **data);

#endif
