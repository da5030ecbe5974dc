/* gguf_tokenizer.h - translates the tokenizer of a GGUF file to tokenizer.json, and back. */
#ifndef MHA_TEXT_GGUF_TOKENIZER_H
#define MHA_TEXT_GGUF_TOKENIZER_H

#include "io/gguf/gguf.h"
#include "io/gguf/gguf_writer.h"

/* Writes tokenizer.json for the keys tokenizer.ggml.* of a file. *json [*bytes] is to be freed with mha__free; it is
 * NULL if the file has no tokenizer. Errors: MHA_ERR_UNSUPPORTED for an unknown model or pre-tokenizer, MHA_ERR_FORMAT
 * for lists that do not agree; messages name file, key and value. */
mha_status mha__gguf_tokenizer(const mha_file *file, char **json, size_t *bytes, mha_error *err);

/* Adds the keys tokenizer.ggml.* of a tokenizer.json to a GGUF file whose embeddings have `rows` rows; rows without a
 * token become unused tokens. `eos` is the token that ends a text, -1 = none. Errors: MHA_ERR_UNSUPPORTED, with key and
 * value, for a tokenizer that GGUF cannot express. */
mha_status mha__gguf_tokenizer_write(mha_ctx *ctx, const char *json, size_t bytes, int64_t rows, int64_t eos,
                                     mha__gguf_keys *keys, mha_error *err);

#endif
