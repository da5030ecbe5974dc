/* text.h - text to token ids and back, as the model's own tokenizer.json says.
 *
 * What tokenizer.json may hold, by its type names:
 *
 *   model           BPE, Unigram, WordPiece
 *   normalizer      BertNormalizer, NFC, NFD, NFKC, NFKD, Precompiled, Prepend, Replace, Strip, Sequence
 *   pre_tokenizer   BertPreTokenizer, ByteLevel, Digits, Metaspace, Split, WhitespaceSplit, Sequence
 *   post_processor  TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence
 *   decoder         ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, WordPiece, Sequence
 *
 * That is BERT, GPT-2, LLaMA, Mistral, Qwen, Gemma, T5 and what is built like them. The result is that of the
 * `tokenizers` library (0.23), id for id and byte for byte. Anything else in one of these places is refused by name.
 * Truncation and padding stored in the file are not applied unless asked for.
 *
 * A regular expression of the file is never run: the split patterns of GPT-2, LLaMA-3 and Qwen, and T5's " {2,}", are
 * recognised by their text and run in our own writing; any other is refused.
 *
 * Stricter than that library: duplicate keys, two tokens with one id, an added token whose id the library would
 * change on reading, an empty added token or one of more than 1024 bytes, templates that do not hold each text once,
 * template and padding ids that are no tokens, an unk_token that is no token, max_input_chars_per_word above 1000, BPE
 * with dropout or with a prefix or suffix of tokens, Unigram without an unk_id, with a piece twice or of more than 512
 * bytes, and sequences of more than 32 steps are refused.
 *
 * Time grows with the text as n log n at worst (a word without end, under BPE), memory linearly, also with hostile
 * text. A text may have 4 GiB less one byte; rewritten by the normalizer, 16 times its length and 4096 bytes.
 */
#ifndef MHA_TEXT_H
#define MHA_TEXT_H

#include "mha/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_tokenizer mha_tokenizer;

/* Reads `folder`/tokenizer.json. Immutable afterwards; any number of threads may use it at once. Uses ctx (which may be
 * NULL) until it is freed. Errors: MHA_ERR_IO, MHA_ERR_FORMAT (malformed, or reading it would take more than 240 MiB of
 * memory), MHA_ERR_UNSUPPORTED (another kind of tokenizer), MHA_ERR_MEMORY. */
MHA_API mha_status mha_tokenizer_open(mha_ctx *ctx, const char *folder, mha_tokenizer **out, mha_error *err);
/* Everything encoded or decoded with it must have been freed before. */
MHA_API void mha_tokenizer_free(mha_tokenizer *tokenizer);

typedef struct mha_encode_options {
    size_t size;
    int no_special;     /* 1 = leave out the template's special tokens ([CLS], [SEP]) */
    int64_t max_tokens; /* longest result, specials included, before padding; 0 = no limit. What is cut: see below */
    int stored_limits;  /* 1 = also apply the truncation and padding stored in tokenizer.json */
} mha_encode_options;

/* Tokens of one text. Arrays have `count` entries. begin/end are byte offsets into the text that the token came from
 * (for a pair, the second text where sequence is 1): the characters that it was made of, before they were
 * normalized. Both are 0 for special tokens of the template and padding. Tokens that overlap there are normal: one
 * character may become several, and a token that is some bytes of a character covers the character. */
typedef struct mha_encoding {
    int64_t count;
    int32_t *ids;
    int32_t *type_ids;
    int64_t *begin, *end;
    int8_t *sequence;  /* 0 first text, 1 second text, -1 special token of the template or padding */
    int64_t truncated; /* tokens that were cut off, of both texts together */
} mha_encoding;

/* Beyond max_tokens the end of the text is cut off; of a pair, the end of the longer text until both are equally long,
 * then of both. Padding is added after that.
 *
 * Encodes `text` (`bytes` bytes of UTF-8; NUL is data), or a pair when `pair` is not NULL. `options` may be NULL. An
 * empty text still gets its special tokens. Special tokens written out in the text ("[SEP]") become those tokens, as
 * in the reference. Errors: MHA_ERR_ARG for invalid UTF-8 (naming the byte offset), and for a max_tokens that leaves
 * no room for the special tokens; MHA_ERR_MEMORY; MHA_ERR_UNSUPPORTED for a text that is too long, or becomes so. */
MHA_API mha_status mha_tokenizer_encode(const mha_tokenizer *tokenizer, const char *text, size_t bytes,
                                        const char *pair, size_t pair_bytes, const mha_encode_options *options,
                                        mha_encoding **out, mha_error *err);
MHA_API void mha_encoding_free(mha_encoding *encoding);

/* Text of the ids, joined as the file's decoder says, without special tokens if skip_special. *out is terminated and
 * freed with mha_tokenizer_text_free; *bytes (may be NULL) gets its length. The text is UTF-8: bytes that make up no
 * character become U+FFFD. An id that has no token is MHA_ERR_ARG; a text of more than 16 times the tokens and 4096
 * bytes for each, which the decoder of a hostile file could ask for, MHA_ERR_UNSUPPORTED. */
MHA_API mha_status mha_tokenizer_decode(const mha_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                                        int skip_special, char **out, size_t *bytes, mha_error *err);
MHA_API void mha_tokenizer_text_free(const mha_tokenizer *tokenizer, char *text);

/* The same for ids that come one after the other, as a model generates them. */
typedef struct mha_text_stream mha_text_stream;

/* `skip_special` as above. The tokenizer must outlive the stream. Errors: MHA_ERR_ARG, MHA_ERR_MEMORY. */
MHA_API mha_status mha_text_stream_create(const mha_tokenizer *tokenizer, int skip_special, mha_text_stream **out,
                                          mha_error *err);
MHA_API void mha_text_stream_free(mha_text_stream *stream);

/* Takes the next id. *text and *bytes get the text that is certain now, which may be none: whole characters only, not
 * terminated, valid until the next call. What is kept back (bytes of an unfinished character, white space that the
 * decoder may strip) comes with a later id, or at the end. All of it together is the text of mha_tokenizer_decode, with
 * one exception: of "<0xE3>" tokens that are not well-formed together that one gives U+FFFD for each, a stream only for
 * those after the last whole character. Memory does not grow with the text. Errors: MHA_ERR_ARG for an id that
 * has no token, after which the stream goes on; MHA_ERR_MEMORY, MHA_ERR_UNSUPPORTED as above, after which it may only
 * be freed. */
MHA_API mha_status mha_text_stream_put(mha_text_stream *stream, int32_t id, const char **text, size_t *bytes,
                                       mha_error *err);
/* After the last id: what was kept back. Nothing may be put into the stream afterwards. */
MHA_API mha_status mha_text_stream_end(mha_text_stream *stream, const char **text, size_t *bytes, mha_error *err);

/* Number of ids: one more than the largest id in use. */
MHA_API int64_t mha_tokenizer_size(const mha_tokenizer *tokenizer);
/* The token of an id, as the file spells it (an added token that is searched for in normalized text: in its
 * normalized form); NULL for an id that has none. Lives as long as the tokenizer. It is the file's text: escape it
 * before it reaches a terminal. */
MHA_API const char *mha_tokenizer_token(const mha_tokenizer *tokenizer, int32_t id);
/* The id of a token as the file spells it; -1 if there is none. */
MHA_API int32_t mha_tokenizer_id(const mha_tokenizer *tokenizer, const char *token);
/* 1 for special tokens ([CLS], [SEP], [MASK] ...), as the file marks them. */
MHA_API int mha_tokenizer_is_special(const mha_tokenizer *tokenizer, int32_t id);

#ifdef __cplusplus
}
#endif
#endif
