/* source_target.h - texts for encoder-decoders: a source, and the target after a tab. */
#ifndef CLI_INPUT_SOURCE_TARGET_H
#define CLI_INPUT_SOURCE_TARGET_H

#include "input/input.h"

typedef struct cli_source_target {
    mha_encoding *source, *target; /* `target` is NULL if the text has no tab */
} cli_source_target;

/* Encodes text n, with the special tokens of the template. Returns an exit code; call cli_source_target_free even after
 * an error. */
int cli_source_target_encode(const cli_session *session, const mha_model *model, const mha_tokenizer *tokenizer,
                             const cli_texts *texts, int64_t n, cli_source_target *pair);
void cli_source_target_free(cli_source_target *pair);

/* Lists of sources and targets. Their texts are in `memory`, without the tabs. */
typedef struct cli_pairs {
    cli_texts source, target; /* with the lines and the path of the texts */
    char *memory;
} cli_pairs;

/* Returns true if the first text has a tab: the texts are then pairs. */
bool cli_texts_are_pairs(const cli_texts *texts);
/* Splits each text at its tab. A text without a tab, or with two, is an error. Returns an exit code; call
 * cli_pairs_free even after an error. */
int cli_pairs_split(const cli_session *session, const cli_texts *texts, cli_pairs *pairs);
void cli_pairs_free(cli_pairs *pairs);

/* Returns the encoder of an encoder-decoder, and any other model itself. */
const mha_model *cli_encoder_of(const mha_model *model);

#endif
