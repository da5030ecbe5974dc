/* source_target.h - texts for encoder-decoders: a source, and the target after a tab. */
#ifndef CLI_INPUT_SOURCE_TARGET_H
#define CLI_INPUT_SOURCE_TARGET_H

#include "input/input.h"

typedef struct cli_source_target {
    mha_encoding *source, *target; /* `target` is NULL if the text has no tab */
} cli_source_target;

/* Encodes text n; the target gets special tokens unless `plain`. Returns an exit code; call cli_source_target_free even
 * after an error. */
int cli_source_target_encode(const cli_session *session, const mha_model *model, const mha_tokenizer *tokenizer,
                             const cli_texts *texts, int64_t n, bool plain, cli_source_target *pair);
void cli_source_target_free(cli_source_target *pair);

/* Returns the encoder of an encoder-decoder, and any other model itself. */
const mha_model *cli_encoder_of(const mha_model *model);

#endif
