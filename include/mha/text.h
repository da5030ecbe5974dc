/* text.h - text to token ids and back, as the model's own tokenizer.json says.
 *
 * Built so far: WordPiece (BERT) with its normaliser, pre-tokenizer, added tokens, template and decoder. Anything else in
 * a tokenizer.json is refused by name. Truncation and padding stored in the file are not applied unless asked for.
 * Time grows linearly with the text, also with hostile text.
 */
#ifndef MHA_TEXT_H
#define MHA_TEXT_H

#include "mha/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_tokenizer mha_tokenizer;

/* Reads `folder`/tokenizer.json. Immutable afterwards; any number of threads may use it at once. */
MHA_API mha_status mha_tokenizer_open(mha_ctx *ctx, const char *folder, mha_tokenizer **out, mha_error *err);
MHA_API void mha_tokenizer_free(mha_tokenizer *tokenizer);

typedef struct mha_encode_options {
    size_t size;
    int no_special; /* 1 = leave out the template's special tokens ([CLS], [SEP]) */
    int64_t
        max_tokens; /* longest result, specials included; the text (of a pair, the longer one) is cut; 0 = no limit */
    int stored_limits; /* 1 = also apply the truncation and padding stored in tokenizer.json */
} mha_encode_options;

/* Tokens of one text. Arrays have `count` entries. begin/end are byte offsets into the text that the token came from
 * (for a pair, the second text where sequence is 1); both 0 for special tokens of the template. */
typedef struct mha_encoding {
    int64_t count;
    int32_t *ids;
    int32_t *type_ids;
    int64_t *begin, *end;
    int8_t *sequence;  /* 0 first text, 1 second text, -1 special token of the template or padding */
    int64_t truncated; /* tokens that were cut off */
} mha_encoding;

/* Encodes `text` (`bytes` bytes of UTF-8; NUL is data), or a pair when `pair` is not NULL. `options` may be NULL.
 * Invalid UTF-8 is MHA_ERR_ARG naming the byte offset. */
MHA_API mha_status mha_tokenizer_encode(const mha_tokenizer *tokenizer, const char *text, size_t bytes,
                                        const char *pair, size_t pair_bytes, const mha_encode_options *options,
                                        mha_encoding **out, mha_error *err);
MHA_API void mha_encoding_free(mha_encoding *encoding);

/* Text of the ids, joined as the file's decoder says. *out is terminated and freed with mha_tokenizer_text_free.
 * An id outside the vocabulary is MHA_ERR_ARG. */
MHA_API mha_status mha_tokenizer_decode(const mha_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                                        int skip_special, char **out, size_t *bytes, mha_error *err);
MHA_API void mha_tokenizer_text_free(const mha_tokenizer *tokenizer, char *text);

/* Number of ids: one more than the largest id in use. */
MHA_API int64_t mha_tokenizer_size(const mha_tokenizer *tokenizer);
/* The token of an id as the file spells it; NULL for an id that has none. */
MHA_API const char *mha_tokenizer_token(const mha_tokenizer *tokenizer, int32_t id);
/* The id of a token; -1 if there is none. */
MHA_API int32_t mha_tokenizer_id(const mha_tokenizer *tokenizer, const char *token);
/* 1 for special tokens ([CLS], [SEP], [MASK] ...). */
MHA_API int mha_tokenizer_is_special(const mha_tokenizer *tokenizer, int32_t id);

#ifdef __cplusplus
}
#endif
#endif
