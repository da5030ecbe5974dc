/* sequence.h - reads the one text of a command that runs one sequence: words to tokenize, token ids, or an image. */
#ifndef CLI_INPUT_SEQUENCE_H
#define CLI_INPUT_SEQUENCE_H

#include "input/source_target.h"
#include "input/tokens.h"

/* The input sequence, and the memory for its ids. */
typedef struct cli_sequence {
    mha_tokenizer *tokenizer; /* NULL if texts are ids and there is no tokenizer */
    mha_encoding *encoding;   /* encoding of a text */
    int32_t *listed;          /* ids of --ids */
    const int32_t *ids;       /* [count] ids of `encoding` or `listed` */
    int64_t count;
    char where[CLI_WHERE];  /* origin of the text for messages */
    cli_source_target pair; /* encoder-decoders: source and target; `listed` are the ids of the decoder */
    mha_model_input source; /* batch 0 for other models */
    float *pixels;          /* models of images: the image; `listed` are then the positions of its tokens */
    json_t *config;         /* config.json of an image classifier, for the names of its classes */
} cli_sequence;

/* Reads the sequence from one text: token ids with --ids, which do not require tokenizer.json, words to tokenize, or,
 * for a model of images, the name of an image file. Returns an exit code; the caller must free the sequence even after
 * an error. */
int cli_sequence_read(cli_session *session, const mha_model *model, cli_sequence *sequence);
void cli_sequence_free(cli_sequence *sequence);

/* Returns the token of an id as stored in the file, or the name of a class of an image; "" without a tokenizer. */
const char *cli_sequence_token(const cli_sequence *sequence, int64_t id);

/* Parses the value of an option that names one token: with --ids an id, otherwise a text of exactly one token, such as
 * " boat". Returns an exit code. */
int cli_sequence_answer(const cli_session *session, const mha_model *model, const cli_sequence *sequence,
                        const char *option, const char *text, int32_t *id);
/* Parses the value of an option that names one token of the sequence: its index, a negative index from the end, or the
 * token itself if it occurs once. NULL leaves *position unchanged. Returns an exit code. */
int cli_sequence_position(const cli_session *session, const cli_sequence *sequence, const char *option,
                          const char *text, int64_t *position);

#endif
