/* transcribe.h - the parts of `mha transcribe`: the prompt that selects language and task, and the words of a
 * transcript with their times. */
#ifndef CLI_RUN_TRANSCRIBE_H
#define CLI_RUN_TRANSCRIBE_H

#include "command.h"
#include <jansson.h>

enum { TRANSCRIBE_PROMPT = 4 }; /* maximum number of tokens of a prompt */

/* The first tokens of every text of a model: the start, language and task of a multilingual model, and no time
 * stamps. */
typedef struct transcribe_prompt {
    int32_t ids[TRANSCRIBE_PROMPT]; /* [count] */
    int64_t count;
    int32_t language; /* token of the language; -1 = the model has none */
} transcribe_prompt;

/* Makes the prompt. `language` NULL = the most likely one for the audio features of the first window; `task` is
 * "transcribe" or "translate", or NULL for transcribe. Prints the message of a failure and returns its exit code. */
int transcribe_prompt_make(const cli_session *session, const mha_model *model, const char *language, const char *task,
                           const float *features, transcribe_prompt *prompt);

/* A word that ends where the next one begins. */
typedef struct transcribe_word {
    char *text; /* without spaces around it */
    double begin, end;
} transcribe_word;

typedef struct transcribe_words {
    transcribe_word *list; /* [count] */
    int64_t count;
} transcribe_words;

/* Appends the words of ids [count], whose tokens begin at `seconds` [count]; `origin` and `end` are the beginning and
 * the end of their audio in the file. Words are separated by spaces. */
int transcribe_words_add(const cli_session *session, const mha_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                         const double *seconds, double origin, double end, transcribe_words *words);
void transcribe_words_free(transcribe_words *words);

#endif
