/* head_texts.h - the texts to measure heads on, as token ids: from the model's tokenizer or, with --ids, listed in
 * each text. */
#ifndef CLI_HEADS_HEAD_TEXTS_H
#define CLI_HEADS_HEAD_TEXTS_H

#include "input/input.h"

/* At least one text must not be blank: attention among special tokens is not informative.
 * `work`: as in mha_head_data_options. Returns an exit code and prints any error. */
int head_texts_data(const cli_session *session, const mha_model *model, const cli_texts *texts, const mha_work *work,
                    mha_head_data **data);

/* Measures one text and keeps its attention maps (options->keep_maps) and tokens. */
int head_texts_maps(const cli_session *session, const mha_model *model, const char *text,
                    const mha_heads_options *options, mha_heads **heads);

#endif
