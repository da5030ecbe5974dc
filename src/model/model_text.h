/* model_text.h - one of a caller's texts, on its way to the model. */
#ifndef MHA_MODEL_MODEL_TEXT_H
#define MHA_MODEL_MODEL_TEXT_H

#include "mha/model.h"

typedef struct mha__text {
    const char *text; /* terminated */
    int64_t index;    /* 0 .. count - 1 */
    int64_t count;    /* texts of the call; sentences say "text 3 of 7", index 2 */
} mha__text;

/* Its tokens, cut at `max_tokens` (0 = no wish) and at the model's maximum. A cut that the caller did not ask for is a
 * warning in the log of the model's context. Errors: as mha_tokenizer_encode, and NULL, naming the text. */
mha_status mha__text_encode(const mha_model *model, const mha__text *text, int64_t max_tokens, mha_encoding **out,
                            mha_error *err);

/* How many of a text's `length` tokens are kept, with the same cut and warning; text->text is not read. */
int64_t mha__text_cut(const mha_model *model, const mha__text *text, int64_t length, int64_t max_tokens);

#endif
