/* head_texts.h - converts the texts on which heads are measured to token ids, with the model's tokenizer or, if --ids
 * is given, by parsing them; for a model of images, the texts name image files, which become pixels. */
#ifndef CLI_HEADS_HEAD_TEXTS_H
#define CLI_HEADS_HEAD_TEXTS_H

#include "input/input.h"

/* Stores the token ids of all texts in *data. At least one text must not be blank, because attention among special
 * tokens is not informative. `work`: same as in mha_head_data_options. Returns an exit code and prints any error. */
int head_texts_data(const cli_session *session, const mha_model *model, const cli_texts *texts, const mha_work *work,
                    mha_head_data **data);

/* Measures the heads on one text and keeps its attention maps (options->keep_maps) and tokens. */
int head_texts_maps(const cli_session *session, const mha_model *model, const char *text,
                    const mha_heads_options *options, mha_heads **heads);

#endif
