/* train_inputs.h - what a training run learns from: the texts and token files of the options as training data
 * (mha/train_data.h). */
#ifndef CLI_TRAIN_TRAIN_INPUTS_H
#define CLI_TRAIN_TRAIN_INPUTS_H

#include "command.h"
#include "train/train_settings.h"

/* What the model reads. */
typedef struct train_form {
    mha_train_data_options data;
    bool masks;   /* an encoder is to predict masked tokens */
    int32_t mask; /* of encoders: [MASK] */
} train_form;

/* Reads texts (`how` as --documents, or NULL) or maps token files, and completes the data. Texts that are truncated,
 * and a length that the data are too short for, are logged. Free *data in any case. Returns an exit code; the message
 * has been printed. */
int train_inputs_texts(const cli_session *s, const mha_train_data_options *options, const train_list *paths,
                       const char *how, mha_train_data **data);
int train_inputs_ids(const cli_session *s, const mha_train_data_options *options, const train_list *paths,
                     mha_train_data **data);

#endif
