/* train_inputs.h - converts the texts of -f or the token files of --tokens to training data (mha/train_data.h). */
#ifndef CLI_TRAIN_TRAIN_INPUTS_H
#define CLI_TRAIN_TRAIN_INPUTS_H

#include "command.h"
#include "train/train_settings.h"

/* Properties of the sequences that the model reads. */
typedef struct train_form {
    mha_train_data_options data;
    bool masks;   /* true for an encoder that predicts masked tokens */
    int32_t mask; /* id of [MASK], encoders only */
} train_form;

/* Read texts (`how`: value of --documents, or NULL) or map token files, and complete *data. Log the number of truncated
 * texts, and the new sequence length if it is reduced because there are too few tokens. The caller must free *data even
 * after an error. Return an exit code and print any error. */
int train_inputs_texts(const cli_session *s, const mha_train_data_options *options, const train_list *paths,
                       const char *how, mha_train_data **data);
int train_inputs_ids(const cli_session *s, const mha_train_data_options *options, const train_list *paths,
                     mha_train_data **data);

#endif
