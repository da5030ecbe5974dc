/* model_text.h - tokenizes one of a caller's texts for the model. */
#ifndef MHA_MODEL_MODEL_TEXT_H
#define MHA_MODEL_MODEL_TEXT_H

#include "mha/model.h"

typedef struct mha__text {
    const char *text; /* NUL-terminated */
    int64_t index;    /* index of the text, 0 .. count - 1 */
    int64_t count;    /* number of texts in the call; messages say "text 3 of 7" for index 2 */
} mha__text;

/* Tokenizes the text, truncated at `max_tokens` (0 = no limit) and at the model's maximum. Truncation that the caller
 * did not request is logged as a warning in the model's context. Fails if the text is NULL or mha_tokenizer_encode
 * fails; messages name the text. */
mha_status mha__text_encode(const mha_model *model, const mha__text *text, int64_t max_tokens, mha_encoding **out,
                            mha_error *err);

/* Returns how many of the `length` tokens of a text are kept, with the same truncation and warning; does not read
 * text->text. */
int64_t mha__text_truncate(const mha_model *model, const mha__text *text, int64_t length, int64_t max_tokens);

#endif
