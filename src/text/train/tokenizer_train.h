/* tokenizer_train.h - the inside of a trainer: what its files hand to each other.
 *
 *   text --train_read--> distinct words with counts --train_words--> symbols --train_merge--> tokens and merges
 *        --train_file--> tokenizer.json, which from the beginning stands in `json` with the special tokens alone
 *
 * A tokenizer made from that first file cuts the text into words: what is learned from is what encoding will see.
 */
#ifndef MHA_TEXT_TRAIN_TOKENIZER_TRAIN_H
#define MHA_TEXT_TRAIN_TOKENIZER_TRAIN_H

#include "mha/text_train.h"
#include "text/tokenizer.h"
#include "text/train/string_counts.h"

enum {
    MHA__TRAIN_VOCAB = 1 << 20,      /* tokens at most: what is trained can be read, within MHA__TOKENIZER_MEMORY */
    MHA__TRAIN_TOKEN_BYTES = 1 << 23 /* of all tokens together, for the same reason */
};

/* One thread's share of the counting. */
typedef struct mha__counter {
    mha__pass pass;
    mha__strings words; /* sum = how often */
    mha_status status;
    mha_error error;
} mha__counter;

typedef enum mha__train_state {
    MHA__TRAIN_READING = 0,
    MHA__TRAIN_FAILED,
    MHA__TRAIN_DONE,
} mha__train_state;

/* A character that words begin with or hold. */
typedef struct mha__character {
    int64_t count;
    uint32_t first, inner; /* ids of the character at the beginning of a word and inside of one */
    bool kept, inside;     /* in the alphabet; stands inside of a word */
} mha__character;

#define MHA__TRAIN_NONE UINT32_MAX

/* A token in a word: a link of the chain that the word is. */
typedef struct mha__symbol {
    uint32_t id;         /* NONE = joined to the one before */
    uint32_t prev, next; /* NONE at the ends */
    uint32_t word;
} mha__symbol;

struct mha_tokenizer_trainer {
    mha_ctx *ctx;
    mha_tokenizer_train_options o;
    mha__train_state state;
    mha_tokenizer_trained trained;
    char *json;           /* tokenizer.json, as compact text */
    mha_tokenizer *start; /* made from it before anything was learned */

    char *text; /* read, but not counted yet */
    size_t text_bytes, text_room;
    int64_t line, line_bytes; /* ended lines of the file at hand; bytes of the next one that have been counted */
    mha__counter *counters;   /* [threads] */
    int threads;

    uint32_t codes;       /* one more than the highest code point of the distinct words */
    mha__strings vocab;   /* number = id */
    mha__symbol *symbols; /* of words that have at least two, one word behind the other */
    size_t symbol_count;
    int64_t *word_counts; /* how often the text has the word of a symbol */
    size_t word_count;

    struct mha__merge {
        uint32_t left, right; /* ids */
    } *merges;
    size_t merges_count, merges_room;
};

/* "##" or "" */
const char *mha__train_prefix(const mha_tokenizer_trainer *t);

/* Puts all words into the table of the first counter. */
mha_status mha__train_join(mha_tokenizer_trainer *t, mha_error *err);
void mha__train_free_counters(mha_tokenizer_trainer *t);

/* Fills vocab with special tokens and characters, and the symbols. */
mha_status mha__train_words(mha_tokenizer_trainer *t, mha_error *err);
/* Fills vocab and merges. */
mha_status mha__train_merge(mha_tokenizer_trainer *t, mha_error *err);

/* The file with the special tokens, t->json, which are the first of t->vocab; later the whole one. */
mha_status mha__train_file_begin(mha_tokenizer_trainer *t, mha_error *err);
mha_status mha__train_file_finish(mha_tokenizer_trainer *t, mha_error *err);

#endif
