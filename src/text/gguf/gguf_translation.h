/* gguf_translation.h - the state of the translation of a GGUF file's tokenizer, and functions that write parts of
 * tokenizer.json. */
#ifndef MHA_TEXT_GGUF_GGUF_TRANSLATION_H
#define MHA_TEXT_GGUF_GGUF_TRANSLATION_H

#include "io/json/json_write.h"
#include "text/gguf_tokenizer.h"
#include "text/vocabulary/vocab.h"

#define MHA__GGUF_KEY(name) "tokenizer.ggml." name
#define MHA__GGUF_MARK "\xE2\x96\x81" /* U+2581, which stands for a space */

/* Types of tokens, as numbered in files. */
enum {
    MHA__GGUF_TOKEN_NORMAL = 1,
    MHA__GGUF_TOKEN_UNKNOWN,
    MHA__GGUF_TOKEN_CONTROL,
    MHA__GGUF_TOKEN_USER,
    MHA__GGUF_TOKEN_UNUSED,
    MHA__GGUF_TOKEN_BYTE
};

typedef enum mha__gguf_model {
    MHA__GGUF_BYTE_LEVEL,
    MHA__GGUF_SENTENCEPIECE,
    MHA__GGUF_WORDPIECE,
    MHA__GGUF_UNIGRAM
} mha__gguf_model;

typedef struct mha__gguf_words {
    mha_ctx *ctx;
    const char *path; /* of the file, for messages */
    int64_t count;
    const char **text; /* [count] not NUL-terminated */
    size_t *bytes;     /* [count] */
} mha__gguf_words;

/* A pre-tokenizer of byte-level BPE. */
typedef struct mha__gguf_pre {
    const char *name;              /* tokenizer.ggml.pre */
    const char *pattern;           /* of Split, before ByteLevel; NULL = the expression of ByteLevel */
    bool nfc, whole_words, starts; /* NFC normalizer; ignore_merges; begins with BOS by default */
    bool digits;                   /* Digits, which splits off each digit, before ByteLevel */
} mha__gguf_pre;

extern const mha__gguf_pre mha__gguf_pres[]; /* ends with a NULL name */

typedef struct mha__gguf_translation {
    const mha_file *file;
    mha__gguf_words words;
    int32_t *type; /* [words.count] */
    mha__gguf_model model;
    const mha__gguf_pre *pre; /* of byte-level BPE */
    mha__json_writer w;
    mha_error *err;
} mha__gguf_translation;

/* ---- reading of the lists ---- */

mha_status mha__gguf_check_count(const mha__gguf_translation *t, const char *key, const mha__gguf_value *v);
mha_status mha__gguf_read_words(mha__gguf_translation *t);
mha_status mha__gguf_read_types(mha__gguf_translation *t);
/* Reads the id of a token that must be in the vocabulary; -1 if the file has none. */
mha_status mha__gguf_token_id(const mha__gguf_translation *t, const char *key, int64_t *id);
/* Finds the pre-tokenizer of byte-level BPE. */
mha_status mha__gguf_find_pre(mha__gguf_translation *t);

/* ---- writing of JSON ---- */

void mha__gguf_put_text(mha__gguf_translation *t, const char *key, const char *value);
void mha__gguf_put_bool(mha__gguf_translation *t, const char *key, bool value);
/* Begins an object with a type, as the value of `key` or, if it is NULL, in a list. */
void mha__gguf_begin(mha__gguf_translation *t, const char *key, const char *type);
void mha__gguf_end(mha__gguf_translation *t);
void mha__gguf_begin_list(mha__gguf_translation *t, const char *key);
void mha__gguf_end_list(mha__gguf_translation *t);
/* Writes the text of a token. */
void mha__gguf_put_word(mha__gguf_translation *t, int64_t id);
void mha__gguf_put_byte_level(mha__gguf_translation *t, const char *key, bool regex);

/* ---- vocabularies of SentencePiece (gguf_merges.c) ---- */

enum { MHA__GGUF_LONGEST = 192 }; /* bytes of a token; bounds the work, which grows with its square */

/* A merge of two tokens to token `id`, and the characters of both. */
typedef struct mha__gguf_merge {
    int32_t id, left_id, right_id, left_chars, right_chars;
    float score;
} mha__gguf_merge;

/* Fills an empty map from the words to their ids. Errors: those of mha__gguf_merges. */
mha_status mha__gguf_vocab(const mha__gguf_words *words, mha__vocab *vocab, mha_error *err);

/* Lists the merges of a BPE that merges the pair of tokens whose joined token has the highest score, as transformers
 * does; *merges is to be freed with mha__free. Errors: MHA_ERR_FORMAT for equal tokens or too long tokens. */
mha_status mha__gguf_merges(const mha__gguf_words *words, const float *scores, mha__gguf_merge **merges, int64_t *count,
                            mha_error *err);

/* Computes score [words->count], which must be 0, so that a reader has the merges of a tokenizer.json in their order.
 * Errors: MHA_ERR_UNSUPPORTED if no scores express the merges. */
mha_status mha__gguf_scores(const mha__gguf_words *words, const mha__json *merges, float *score, mha_error *err);

/* ---- stages ---- */

static inline bool mha__gguf_has_type(const mha__json *stage, const char *type)
{
    return mha__json_has_text(stage, "type", type);
}

mha_status mha__gguf_put_post_processor(mha__gguf_translation *t);
/* Write the normalizer, the pre-tokenizer, the decoder and the model. */
mha_status mha__gguf_put_byte_level_model(mha__gguf_translation *t);
mha_status mha__gguf_put_sentencepiece(mha__gguf_translation *t);
mha_status mha__gguf_put_wordpiece(mha__gguf_translation *t);
mha_status mha__gguf_put_unigram(mha__gguf_translation *t);
/* Writes the keys for the normalizer and the pre-tokenizer of a Unigram tokenizer.json, in the other direction
 * (gguf_unigram_write.c). Errors: MHA_ERR_UNSUPPORTED for stages that files cannot express. */
mha_status mha__gguf_unigram_stages(mha_ctx *ctx, const mha__json *root, mha__gguf_keys *keys, mha_error *err);
void mha__gguf_put_vocab(mha__gguf_translation *t);

#endif
