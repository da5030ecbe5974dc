/* text_train.h - trains a tokenizer on text: byte-level BPE in the form of GPT-2, WordPiece in the form of BERT.
 *
 *     mha_tokenizer_train_options options = {.size = sizeof options, .type = MHA_TOKENIZER_BPE, .vocab_size = 8000};
 *     MHA_CHECK(mha_tokenizer_trainer_create(ctx, &options, &trainer, &err));
 *     while (...) MHA_CHECK(mha_tokenizer_trainer_put(trainer, bytes, n, &err));
 *     MHA_CHECK(mha_tokenizer_trainer_end(trainer, &err));
 *     MHA_CHECK(mha_tokenizer_trainer_run(trainer, NULL, &err));
 *     MHA_CHECK(mha_tokenizer_trainer_save(trainer, "folder", 0, &err));
 *
 * Both types use byte pair encoding (Sennrich, Haddow and Birch 2016). Words start as characters. The most frequent
 * pair of adjacent tokens over all words is merged into a new token, repeatedly, until the vocabulary is full. The
 * types differ in the definition of a word and a character:
 *
 *   BPE        Radford et al. 2019. Words are the matches of GPT-2's pattern, each with the space before it; the 256
 *              bytes are the first tokens, so every text can be encoded. Special token: <|endoftext|>.
 *   WordPiece  Schuster and Nakajima 2012, in the form of Devlin et al. 2019. Text is cleaned, Chinese characters are
 *              separated, and with `lowercase` it is lower-cased and stripped of accents; words are split at white
 *              space and punctuation. A character inside a word has the prefix ##. As in the `tokenizers` library,
 *              pairs are chosen by frequency, not by likelihood. Special tokens: [PAD] [UNK] [CLS] [SEP] [MASK].
 *
 * Given the same lines, the vocabulary and the merges are identical to those of BpeTrainer and WordPieceTrainer of the
 * `tokenizers` library (0.23). Ids are assigned to special tokens first, then to characters by code point, then to
 * merged tokens in merge order. The pair with the highest count is merged first; ties go to the pair with the lowest
 * ids. That library assigns the ids of ## characters at random, so its result for ties differs from run to run; here,
 * they are ordered by code point. The result does not depend on the number of threads or on how the text is divided
 * among calls of mha_tokenizer_trainer_put.
 *
 * Cost: reading takes about 0.08 s per MB and thread. Training then takes O(n log n), where n is the number of
 * characters in the distinct words, even for a single very long word. 10 MB of documentation and 30,000 tokens: 1.1 to
 * 1.3 s on one core of a 2023 server, in 45 to 65 MB (docs/benchmarks.md). Memory grows with the number of distinct
 * words, not with the text. While reading, each distinct word takes its length plus about 60 bytes, once per thread;
 * then, 50 to 150 bytes per character. In addition, 18 MB are fixed, and the input buffers take up to 16 MiB plus 20
 * times the longest part of a line without a space. */
#ifndef MHA_TEXT_TRAIN_H
#define MHA_TEXT_TRAIN_H

#include "mha/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mha_tokenizer_type { MHA_TOKENIZER_BPE = 0, MHA_TOKENIZER_WORDPIECE } mha_tokenizer_type;

typedef struct mha_tokenizer_train_options {
    size_t size;
    mha_tokenizer_type type;
    int64_t vocab_size;    /* maximum number of tokens, including special ones, 1..1048576; fewer if pairs are rare */
    int64_t min_frequency; /* minimum count of a pair that is merged; 0 = 2 */
    /* Special tokens in addition to those of the type: [special_count] NUL-terminated UTF-8 strings of 1 to 1024 bytes.
     * Encoding never splits them; in the training text, they are treated as ordinary text. */
    const char *const *special;
    int64_t special_count;
    int lowercase;    /* WordPiece: 1 = convert to lower case and strip accents */
    int64_t alphabet; /* WordPiece: maximum alphabet size; 0 = unlimited. The most frequent characters are kept (on
                         ties, the lower code point); other characters become [UNK]. Set a limit for scripts with
                         thousands of characters; published BERT vocabularies use 1000 */
} mha_tokenizer_train_options;

typedef struct mha_tokenizer_trainer mha_tokenizer_trainer;

/* Creates a trainer. Uses ctx (which may be NULL) until the trainer is freed. Errors: MHA_ERR_ARG (naming the field),
 * MHA_ERR_MEMORY. */
MHA_API mha_status mha_tokenizer_trainer_create(mha_ctx *ctx, const mha_tokenizer_train_options *options,
                                                mha_tokenizer_trainer **out, mha_error *err);
MHA_API void mha_tokenizer_trainer_free(mha_tokenizer_trainer *trainer);

/* Appends the next bytes of the text; they may end anywhere, even inside a character. Each line is a separate text: no
 * word crosses a newline, which belongs to the line that it ends. NUL is data. Errors, after which the trainer can
 * only be freed: MHA_ERR_ARG for invalid UTF-8, naming line and byte; MHA_ERR_UNSUPPORTED for more than 16 MiB without
 * a newline or a space to split at, and for words crafted to collide in the hash table; MHA_ERR_MEMORY. */
MHA_API mha_status mha_tokenizer_trainer_put(mha_tokenizer_trainer *trainer, const char *bytes, size_t n,
                                             mha_error *err);
/* Ends a text or file: the next byte starts a new line, and line numbers restart at 1. Errors: those of
 * mha_tokenizer_trainer_put. */
MHA_API mha_status mha_tokenizer_trainer_end(mha_tokenizer_trainer *trainer, mha_error *err);

/* Trains the tokenizer. Call it once, after the last mha_tokenizer_trainer_end. *tokenizer receives the trained
 * tokenizer, which the caller owns; `tokenizer` may be NULL. Errors: MHA_ERR_ARG for text without a word, and for a
 * vocab_size smaller than the number of characters and special tokens; MHA_ERR_UNSUPPORTED for tokens of more than 8
 * MiB in total, and for distinct words of more than 4 billion characters in total; MHA_ERR_MEMORY; MHA_ERR_CANCELED.
 * Progress: "merge", in tokens. */
MHA_API mha_status mha_tokenizer_trainer_run(mha_tokenizer_trainer *trainer, mha_tokenizer **tokenizer, mha_error *err);

/* Statistics of the text read so far, and of the trained tokenizer. */
typedef struct mha_tokenizer_trained {
    int64_t bytes, lines;    /* bytes and lines of the text read so far */
    int64_t words, distinct; /* number of words, and of distinct words */
    int64_t characters;      /* single-character tokens; a character inside a word counts separately */
    int64_t tokens, merges;
    int64_t rarest; /* number of occurrences of the last merged pair in the text; 0 without merges */
} mha_tokenizer_trained;
MHA_API void mha_tokenizer_trainer_trained(const mha_tokenizer_trainer *trainer, mha_tokenizer_trained *trained);

/* Writes, after mha_tokenizer_trainer_run, the folder that mha_tokenizer_open, transformers and `tokenizers` read:
 * tokenizer.json, tokenizer_config.json, special_tokens_map.json, and vocab.json with merges.txt, or vocab.txt. The
 * folder is replaced atomically, as by mha_model_save. With `overwrite`, an existing folder of that name is replaced if
 * it contains only such files. Errors: MHA_ERR_IO, MHA_ERR_ARG, MHA_ERR_MEMORY. */
MHA_API mha_status mha_tokenizer_trainer_save(const mha_tokenizer_trainer *trainer, const char *folder, int overwrite,
                                              mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
