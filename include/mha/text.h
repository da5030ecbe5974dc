/* text.h - converts text to token ids and back, as defined by the model's tokenizer.json.
 *
 * Supported types in tokenizer.json:
 *   model           BPE, Unigram, WordPiece
 *   normalizer      BertNormalizer, NFC, NFD, NFKC, NFKD, Precompiled, Prepend, Replace, Strip, StripAccents,
 *                   Lowercase, Sequence
 *   pre_tokenizer   BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, FixedLength, Metaspace, Punctuation,
 *                   Split, Whitespace, WhitespaceSplit, Sequence
 *   post_processor  TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence
 *   decoder         ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, WordPiece, Sequence
 *
 * These cover BERT, GPT-2, LLaMA, Mistral, Qwen, Gemma, T5 and models with the same tokenizers. Ids and decoded bytes
 * are identical to those of the `tokenizers` library (0.23), with one exception: an added token whose content is empty
 * after normalization, such as a newline with Strip, is never matched, while the library matches it between all
 * characters. Any other type is an error that names it. Truncation and padding stored in the file are only applied on
 * request.
 *
 * Regular expressions in the file are never executed. The patterns of published tokenizers (such as those of GPT-2,
 * LLaMA-3 and Qwen, T5's " {2,}", and those that transformers 5 writes) are recognized by their text and run as
 * built-in functions; any other pattern is rejected.
 *
 * This reader is stricter than the `tokenizers` library. It rejects duplicate keys, two tokens with one id, and an
 * added token whose id the library would change on reading. It rejects added tokens that are empty or longer than 1024
 * bytes. It rejects templates that do not contain each text once, template and padding ids without a token, an
 * unk_token that is not a token, and max_input_chars_per_word above 1000. It also rejects BPE with dropout or with a
 * token prefix or suffix, and sequences of more than 32 steps. It rejects Unigram without an unk_id, with a duplicate
 * piece or with a piece longer than 512 bytes. It rejects a decoder that reads whole tokens (ByteFallback, ByteLevel,
 * Replace, WordPiece) after Fuse or ByteLevel.
 *
 * For a text of n bytes, time is O(n log n) at worst (BPE on a single word of n bytes) and memory is O(n), even for
 * hostile input. A text may be at most 4 GiB minus one byte long; its normalized form, at most 16 times that length
 * plus 4096 bytes. */
#ifndef MHA_TEXT_H
#define MHA_TEXT_H

#include "mha/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_tokenizer mha_tokenizer;

/* Reads `folder`/tokenizer.json, or the tokenizer of a GGUF file given as `folder`. The tokenizer is immutable; any
 * number of threads may use it concurrently. Uses ctx (which may be NULL) until the tokenizer is freed. Errors:
 * MHA_ERR_IO; MHA_ERR_FORMAT for a malformed file, or if reading it would require more than 240 MiB of memory;
 * MHA_ERR_UNSUPPORTED for another type of tokenizer; MHA_ERR_MEMORY. */
MHA_API mha_status mha_tokenizer_open(mha_ctx *ctx, const char *folder, mha_tokenizer **out, mha_error *err);
/* Reads `json` [bytes], the content of a tokenizer.json, which is not used after the call. Errors: those of
 * mha_tokenizer_open. */
MHA_API mha_status mha_tokenizer_open_memory(mha_ctx *ctx, const char *json, size_t bytes, mha_tokenizer **out,
                                             mha_error *err);
/* Frees the tokenizer. Free every encoding and stream created with it first. */
MHA_API void mha_tokenizer_free(mha_tokenizer *tokenizer);

typedef struct mha_encode_options {
    size_t size;
    int no_special;     /* 1 = omit the template's special tokens ([CLS], [SEP]) */
    int64_t max_tokens; /* maximum length, specials included, before padding; 0 = unlimited; see mha_tokenizer_encode */
    int stored_limits;  /* 1 = also apply the truncation and padding stored in tokenizer.json */
} mha_encode_options;

/* Tokens of one text. Arrays have `count` entries. begin/end are byte offsets into the token's source text (for a pair,
 * the second text where sequence is 1). They give the range of characters that the token was made from, before
 * normalization. Both are 0 for special tokens of the template and for padding. Tokens may overlap: normalization can
 * turn one character into several, and the range of a token that contains some bytes of a character includes the whole
 * character. Only the library creates this struct; later versions may add fields at the end. */
typedef struct mha_encoding {
    int64_t count;
    int32_t *ids;
    int32_t *type_ids;
    int64_t *begin, *end;
    int8_t *sequence;  /* 0 first text, 1 second text, -1 special token of the template or padding */
    int64_t truncated; /* number of truncated tokens, of both texts together */
} mha_encoding;

/* Encodes `text` (`bytes` bytes of UTF-8; NUL is data), or a pair of texts if `pair` is not NULL. `options` may be
 * NULL. An empty text still gets its special tokens. Special tokens written in the text ("[SEP]") are encoded as those
 * special tokens, as in the `tokenizers` library. Errors: MHA_ERR_ARG for invalid UTF-8 (naming the byte offset), and
 * for a max_tokens below the number of special tokens; MHA_ERR_MEMORY; MHA_ERR_UNSUPPORTED for a text that is too long
 * before or after normalization.
 *
 * Beyond max_tokens, the text is truncated at its end. Of a pair, the longer text is truncated until both texts have
 * the same length, then both are truncated. Padding is added after truncation. */
MHA_API mha_status mha_tokenizer_encode(const mha_tokenizer *tokenizer, const char *text, size_t bytes,
                                        const char *pair, size_t pair_bytes, const mha_encode_options *options,
                                        mha_encoding **out, mha_error *err);
MHA_API void mha_encoding_free(mha_encoding *encoding);

/* Decodes ids to text with the decoder of the file, without special tokens if skip_special is set (as in the
 * `tokenizers` library, a special token whose content the normalizer changes is kept, unless the changed content is
 * that of a special token). *out is NUL-terminated and is freed with mha_tokenizer_text_free; *bytes (may be NULL) gets
 * its length. The text is UTF-8: invalid byte sequences become U+FFFD. Errors: MHA_ERR_ARG for an id without a token;
 * MHA_ERR_UNSUPPORTED for a text of more than 16 times the length of the tokens plus 4096 bytes per token, which only
 * the decoder of a hostile file can produce. */
MHA_API mha_status mha_tokenizer_decode(const mha_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                                        int skip_special, char **out, size_t *bytes, mha_error *err);
MHA_API void mha_tokenizer_text_free(const mha_tokenizer *tokenizer, char *text);

/* Incremental decoding, for ids that arrive one at a time during generation. */
typedef struct mha_text_stream mha_text_stream;

/* Creates a stream. `skip_special` has the same meaning as in mha_tokenizer_decode. The tokenizer must outlive the
 * stream. Errors: MHA_ERR_ARG, MHA_ERR_MEMORY. */
MHA_API mha_status mha_text_stream_create(const mha_tokenizer *tokenizer, int skip_special, mha_text_stream **out,
                                          mha_error *err);
MHA_API void mha_text_stream_free(mha_text_stream *stream);

/* Appends the next id. *text and *bytes get the text that is final now, possibly empty: whole characters only, not
 * NUL-terminated, valid until the next call. Text held back (bytes of an incomplete character, white space that the
 * decoder may strip) is returned with a later id or at the end. The concatenated text equals that of
 * mha_tokenizer_decode, with one exception. If consecutive byte tokens ("<0xE3>") together are not valid UTF-8,
 * mha_tokenizer_decode returns U+FFFD for each of them, but a stream only for those after the last whole character.
 * Memory does not grow with the text. Errors: MHA_ERR_ARG for an id without a token, after which the stream stays
 * usable; MHA_ERR_MEMORY and MHA_ERR_UNSUPPORTED as above, after which the stream can only be freed. */
MHA_API mha_status mha_text_stream_put(mha_text_stream *stream, int32_t id, const char **text, size_t *bytes,
                                       mha_error *err);
/* Returns the held-back text after the last id. No id may be appended afterwards. */
MHA_API mha_status mha_text_stream_end(mha_text_stream *stream, const char **text, size_t *bytes, mha_error *err);

/* Returns the number of ids, one more than the largest id in use. */
MHA_API int64_t mha_tokenizer_size(const mha_tokenizer *tokenizer);
/* Returns the token of an id, spelled as in the file, or NULL if the id has no token. An added token that is matched
 * in normalized text is returned in its normalized form. Valid until the tokenizer is freed. The string comes from the
 * file: escape it before printing it to a terminal. */
MHA_API const char *mha_tokenizer_token(const mha_tokenizer *tokenizer, int32_t id);
/* Returns the id of a token, spelled as in the file, or -1 if the token is unknown. */
MHA_API int32_t mha_tokenizer_id(const mha_tokenizer *tokenizer, const char *token);
/* Returns the id of the mask token, [MASK] or <mask>; -1 if the tokenizer has none. */
MHA_API int32_t mha_tokenizer_mask_id(const mha_tokenizer *tokenizer);
/* Returns 1 for special tokens ([CLS], [SEP], [MASK] ...), as the file marks them. */
MHA_API int mha_tokenizer_is_special(const mha_tokenizer *tokenizer, int32_t id);

#ifdef __cplusplus
}
#endif
#endif
