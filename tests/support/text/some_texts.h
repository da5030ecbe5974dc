/* some_texts.h - ten short texts of token ids for tests that measure heads of small models. */
#ifndef TEST_SOME_TEXTS_H
#define TEST_SOME_TEXTS_H

#include "mha/importance.h"

enum { SOME_TEXTS = 10, SOME_LONGEST = 12 };

/* The texts of the last some_data call: text t begins at some_ids[some_starts[t]]. */
extern int32_t some_ids[SOME_TEXTS * SOME_LONGEST];
extern int64_t some_starts[SOME_TEXTS + 1];

/* Opens a folder below MHA_TEST_DATA, without its tokenizer. */
mha_model *some_model(mha_ctx *ctx, const char *folder);
/* Creates random texts of 3 to 12 tokens. The texts are not sorted by length. */
mha_head_data *some_data(const mha_model *model);
/* Measures the importance of all heads; `options.size` need not be set. On failure, fails the running test with the
 * error message. */
mha_importance *some_importance(const mha_model *model, const mha_head_data *data, mha_importance_options options);

#endif
