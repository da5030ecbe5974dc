/* head_texts.h - the texts that heads are measured on, as tokens: those of the model's tokenizer or, with --ids, the
 * ids that each text lists. */
#ifndef CLI_HEADS_HEAD_TEXTS_H
#define CLI_HEADS_HEAD_TEXTS_H

#include "input/input.h"

/* Texts that are all blank are refused: what a model makes of its special tokens alone says nothing of its heads.
 * Returns an exit code; the message has been printed. */
int head_texts_data(const cli_session *session, const mha_model *model, const cli_texts *texts, mha_head_data **data);

/* Measures one text and keeps its attention maps (options->keep_maps) and tokens. */
int head_texts_maps(const cli_session *session, const mha_model *model, const char *text,
                    const mha_heads_options *options, mha_heads **heads);

#endif
