/* gguf_tokenizer.h - translates the tokenizer of a GGUF file to tokenizer.json. */
#ifndef MHA_TEXT_GGUF_TOKENIZER_H
#define MHA_TEXT_GGUF_TOKENIZER_H

#include "io/gguf/gguf.h"
#include "io/gguf/gguf_writer.h"

/* Types of tokens, as numbered in files. */
enum {
    MHA__GGUF_TOKEN_NORMAL = 1,
    MHA__GGUF_TOKEN_UNKNOWN,
    MHA__GGUF_TOKEN_CONTROL,
    MHA__GGUF_TOKEN_USER,
    MHA__GGUF_TOKEN_UNUSED,
    MHA__GGUF_TOKEN_BYTE
};

/* Writes tokenizer.json for the keys tokenizer.ggml.* of a file. *json [*bytes] is to be freed with mha__free; it is
 * NULL if the file has no tokenizer. Errors: MHA_ERR_UNSUPPORTED for an unknown model or pre-tokenizer, MHA_ERR_FORMAT
 * for lists that do not agree; messages name file, key and value. */
mha_status mha__gguf_tokenizer(const mha_file *file, char **json, size_t *bytes, mha_error *err);

/* Adds the keys tokenizer.ggml.* of a tokenizer.json to a GGUF file whose embeddings have `rows` rows; rows without a
 * token become unused tokens. `eos` is the token that ends a text, -1 = none. Errors: MHA_ERR_UNSUPPORTED, with key and
 * value, for a tokenizer that GGUF cannot express. */
mha_status mha__gguf_tokenizer_write(mha_ctx *ctx, const char *json, size_t bytes, int64_t rows, int64_t eos,
                                     mha__gguf_keys *keys, mha_error *err);

/* ---- vocabularies of SentencePiece (gguf_merges.c) ---- */

/* A merge: bytes [0, left) and [left, n) of token `id`. */
typedef struct mha__gguf_merge {
    int32_t id, left;
    int32_t left_id, right_id, left_chars, right_chars;
    float score;
    int64_t order;
} mha__gguf_merge;

typedef struct mha__gguf_words {
    mha_ctx *ctx;
    const char *path; /* of the file, for messages */
    int64_t count;
    const char **text; /* [count] not NUL-terminated */
    size_t *bytes;     /* [count] */
} mha__gguf_words;

/* Lists the merges of a BPE that merges the pair of tokens whose joined token has the highest score, as transformers
 * does; *merges is to be freed with mha__free. Errors: MHA_ERR_FORMAT for equal tokens or too long tokens. */
mha_status mha__gguf_merges(const mha__gguf_words *words, const float *scores, mha__gguf_merge **merges, int64_t *count,
                            mha_error *err);

/* ---- pre-tokenizers of byte-level BPE ---- */

typedef struct mha__gguf_pre {
    const char *name;              /* tokenizer.ggml.pre */
    const char *pattern;           /* of Split, before ByteLevel; NULL = the expression of ByteLevel */
    bool nfc, whole_words, starts; /* NFC normalizer; ignore_merges; begins with BOS by default */
} mha__gguf_pre;

extern const mha__gguf_pre mha__gguf_pres[]; /* ends with a NULL name */

#endif
