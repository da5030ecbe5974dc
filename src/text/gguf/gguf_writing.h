/* gguf_writing.h - the state of writing the tokenizer of a checkpoint to a GGUF file, and the parts that all models
 * share: tokens, and the tokens that are added to a text. */
#ifndef MHA_TEXT_GGUF_GGUF_WRITING_H
#define MHA_TEXT_GGUF_GGUF_WRITING_H

#include "io/json/json.h"
#include "text/gguf/gguf_translation.h"

#define MHA__GGUF_TOKENIZER_FILE "tokenizer.json"

typedef struct mha__gguf_writing {
    mha__json_obj root, model;
    mha__gguf_words words;
    int32_t *type; /* [words.count] */
    float *score;  /* [words.count] */
    char *unused;  /* texts of rows without a token */
    int64_t eos;
    mha__gguf_keys *keys;
    mha_error *err;
} mha__gguf_writing;

/* Fails with "tokenizer.json: KEY must be RULE in a GGUF file (got VALUE)". */
mha_status mha__gguf_refuse_json(const mha__gguf_writing *writing, const char *key, const char *rule,
                                 const mha__json *got);
/* Returns true for NULL and for null. */
bool mha__gguf_is_absent(const mha__json *value);

/* Reads the texts, types and scores of all rows; rows without a token get the text [PADn] (gguf_tokens_write.c). */
mha_status mha__gguf_read_tokens(mha__gguf_writing *writing);
/* Write texts and types of the tokens: as they are, or as WordPiece stores them. */
void mha__gguf_put_tokens(mha__gguf_writing *writing);
void mha__gguf_put_pieces(mha__gguf_writing *writing);
/* Writes which tokens are added before and after a text (gguf_template_write.c). */
mha_status mha__gguf_put_template(mha__gguf_writing *writing, bool wordpiece);

#endif
