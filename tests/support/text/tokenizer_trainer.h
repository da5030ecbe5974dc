/* tokenizer_trainer.h - options and texts for tests of tokenizer training, and calls that fail the running test on
 * error. */
#ifndef TEST_TOKENIZER_TRAINER_H
#define TEST_TOKENIZER_TRAINER_H

#include "mha/text_train.h"
#include <stddef.h>

/* A small text, and its size without the final NUL. */
extern const char trainer_small[];
extern const size_t trainer_small_bytes;
/* Returns a text of about `bytes` bytes with many kinds of whitespace and words of several scripts, which the caller
 * must free. On average, one in `line` pieces is followed by a newline; with line = 0, none is. */
char *trainer_text(size_t bytes, unsigned line);

/* Options with vocabularies that fit trainer_small. */
extern const mha_tokenizer_train_options trainer_bpe, trainer_wordpiece;

mha_tokenizer_trainer *trainer_create(mha_ctx *ctx, const mha_tokenizer_train_options *o);
void trainer_put(mha_tokenizer_trainer *t, const char *text, size_t n);
/* Runs the training and returns the tokenizer. */
mha_tokenizer *trainer_learn(mha_tokenizer_trainer *t);
/* Fails the running test unless both tokenizers have the same tokens. */
void trainer_same(const mha_tokenizer *a, const mha_tokenizer *b);

#endif
