/* text_train.h - a tokenizer learned from text: byte-level BPE in the form of GPT-2, WordPiece in the form of BERT.
 *
 *     mha_tokenizer_train_options options = {.size = sizeof options, .type = MHA_TOKENIZER_BPE, .vocab_size = 8000};
 *     MHA_CHECK(mha_tokenizer_trainer_create(ctx, &options, &trainer, &err));
 *     while (...) MHA_CHECK(mha_tokenizer_trainer_put(trainer, bytes, n, &err));
 *     MHA_CHECK(mha_tokenizer_trainer_end(trainer, &err));
 *     MHA_CHECK(mha_tokenizer_trainer_run(trainer, NULL, &err));
 *     MHA_CHECK(mha_tokenizer_trainer_save(trainer, "folder", 0, &err));
 *
 * Both are byte pair encoding (Sennrich, Haddow and Birch 2016): words begin as characters, and the pair of neighbours
 * that is most frequent in all words together becomes a token, again and again, until the vocabulary is full. The types
 * differ in what a word and a character are:
 *
 *   BPE        Radford et al. 2019. Words are the pieces that GPT-2's pattern cuts, with the space before them; the 256
 *              bytes are the first tokens, so every text has tokens. Special token: <|endoftext|>.
 *   WordPiece  Schuster and Nakajima 2012, in the form of Devlin et al. 2019. Text is cleaned, Chinese characters are
 *              set apart, and with `lowercase` it is lower-cased and loses its accents; words are cut at white space
 *              and punctuation. A character inside of a word begins with ##. As the library below does it, pairs are
 *              chosen by frequency, not by likelihood. Special tokens: [PAD] [UNK] [CLS] [SEP] [MASK].
 *
 * The vocabulary and the merges are those of BpeTrainer and WordPieceTrainer of the `tokenizers` library (0.23), given
 * the same lines: ids are those of special tokens, then characters by code point, then merged tokens in the order in
 * which they were made; the pair of highest count wins, of equal ones the pair of lowest ids. That library numbers the
 * ## characters at random, and what it then makes of equal counts differs from run to run; here they are in the order
 * of their code points. The same for any number of threads, and for any cut of the text into puts.
 *
 * Cost: reading takes about 0.08 s for each MB and thread; learning then n log n in the n characters of the distinct
 * words, also of a word without end. 10 MB of documentation and 30,000 tokens: 1.1 to 1.3 s on one core of a 2023
 * server, in 45 to 65 MB (docs/benchmarks.md). Memory does not grow with the text but with its distinct words: about 60
 * bytes each and their length, once per thread, while reading; then 50 to 150 bytes for each of their characters.
 * Beside that 18 MB, and up to 16 MiB and 20 times the longest line for what is being read, a line counting as far as
 * there is no space in it.
 */
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
    int64_t vocab_size;    /* tokens, special ones included: 1 to 1048576. Fewer if no pair is frequent enough */
    int64_t min_frequency; /* a pair that is rarer makes no token; 0 = 2 */
    /* Special tokens after those of the type: [special_count] texts of 1 to 1024 bytes, terminated UTF-8. Encoding
     * never cuts them; in the text that is learned from they are text like any other. */
    const char *const *special;
    int64_t special_count;
    int lowercase;    /* WordPiece: lower case, without accents */
    int64_t alphabet; /* WordPiece: at most so many characters, the most frequent; of equal ones the lower code point.
                       * Others become [UNK]. 0 = all. For text with thousands of them: published BERTs have 1000 */
} mha_tokenizer_train_options;

typedef struct mha_tokenizer_trainer mha_tokenizer_trainer;

/* Errors: MHA_ERR_ARG (naming the field), MHA_ERR_MEMORY. Uses ctx (which may be NULL) until it is freed. */
MHA_API mha_status mha_tokenizer_trainer_create(mha_ctx *ctx, const mha_tokenizer_train_options *options,
                                                mha_tokenizer_trainer **out, mha_error *err);
MHA_API void mha_tokenizer_trainer_free(mha_tokenizer_trainer *trainer);

/* The next bytes of the text, cut anywhere. Lines are texts of their own: no word crosses a newline, which belongs to
 * the line that it ends. NUL is data. Errors, after which the trainer may only be freed: MHA_ERR_ARG for invalid UTF-8,
 * naming line and byte; MHA_ERR_UNSUPPORTED for more than 16 MiB without a newline or a space to cut at, and for
 * words made to collide; MHA_ERR_MEMORY. */
MHA_API mha_status mha_tokenizer_trainer_put(mha_tokenizer_trainer *trainer, const char *bytes, size_t n,
                                             mha_error *err);
/* Ends a text or file: what comes next begins a line, and lines are counted from 1 again. Errors as above. */
MHA_API mha_status mha_tokenizer_trainer_end(mha_tokenizer_trainer *trainer, mha_error *err);

/* Learns the tokens, once, after the last end. *tokenizer (tokenizer may be NULL) becomes the result, of which the
 * caller is the owner. Errors: MHA_ERR_ARG for text without a word, and for a vocab_size below the number of characters
 * and special tokens; MHA_ERR_UNSUPPORTED for tokens of more than 8 MiB altogether, and for distinct words of more
 * than 4 billion characters; MHA_ERR_MEMORY; MHA_ERR_CANCELLED.
 * Progress: "merge", in tokens. */
MHA_API mha_status mha_tokenizer_trainer_run(mha_tokenizer_trainer *trainer, mha_tokenizer **tokenizer, mha_error *err);

/* What has been read and learned so far. */
typedef struct mha_tokenizer_trained {
    int64_t bytes, lines;    /* of the text */
    int64_t words, distinct; /* words, and how many there are if each counts once */
    int64_t characters;      /* tokens of one character, those inside of words counted apart */
    int64_t tokens, merges;
    int64_t rarest; /* how often the pair of the last merge stood in the text; 0 without merges */
} mha_tokenizer_trained;
MHA_API void mha_tokenizer_trainer_trained(const mha_tokenizer_trainer *trainer, mha_tokenizer_trained *trained);

/* After run: writes the folder that mha_tokenizer_open, transformers and `tokenizers` read: tokenizer.json,
 * tokenizer_config.json, special_tokens_map.json, and vocab.json with merges.txt, or vocab.txt. Whole or not at all, as
 * mha_model_save does it; with `overwrite` a folder of that name that holds such files and nothing else is replaced.
 * Errors: MHA_ERR_IO, MHA_ERR_ARG, MHA_ERR_MEMORY. */
MHA_API mha_status mha_tokenizer_trainer_save(const mha_tokenizer_trainer *trainer, const char *folder, int overwrite,
                                              mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
