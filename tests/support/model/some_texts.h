/* some_texts.h - ten short texts of token ids for tests that measure heads of small models. */
#ifndef TEST_SOME_TEXTS_H
#define TEST_SOME_TEXTS_H

#include "mha/importance.h"

enum { SOME_TEXTS = 10, SOME_LONGEST = 12 };

/* What some_data made last: text t is some_ids[some_starts[t]] and on. */
extern int32_t some_ids[SOME_TEXTS * SOME_LONGEST];
extern int64_t some_starts[SOME_TEXTS + 1];

/* A folder below MHA_TEST_DATA, without its tokenizer. */
mha_model *some_model(mha_ctx *ctx, const char *folder);
/* Texts of 3 to 12 tokens, in no order of length. */
mha_head_data *some_data(const mha_model *model);
/* Fails the running test with the sentence; fills options.size. */
mha_importance *some_importance(const mha_model *model, const mha_head_data *data, mha_importance_options options);

#endif
