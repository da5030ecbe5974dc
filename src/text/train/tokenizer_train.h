/* tokenizer_train.h - internals of a trainer: the data that its source files share.
 *
 *   text --train_read--> distinct words with counts --train_words--> symbols --train_merge--> tokens and merges
 *        --train_file--> tokenizer.json; before training, `json` has only the special tokens
 *
 * A tokenizer opened from this initial file splits the text into words, so training and encoding use the same words. */
#ifndef MHA_TEXT_TRAIN_TOKENIZER_TRAIN_H
#define MHA_TEXT_TRAIN_TOKENIZER_TRAIN_H

#include "mha/text_train.h"
#include "text/tokenizer.h"
#include "text/train/string_counts.h"

enum {
    MHA__TRAIN_VOCAB = 1 << 20,      /* maximum vocab_size, so that reading the result fits in MHA__TOKENIZER_MEMORY */
    MHA__TRAIN_TOKEN_BYTES = 1 << 23 /* maximum size of all tokens together, for the same reason [bytes] */
};

/* The word counts of one thread. */
typedef struct mha__counter {
    mha__pass pass;
    mha__strings words; /* the distinct words; the sum of a string is the count of the word */
    mha_status status;
    mha_error error;
} mha__counter;

typedef enum mha__train_state {
    MHA__TRAIN_READING = 0,
    MHA__TRAIN_FAILED,
    MHA__TRAIN_DONE,
} mha__train_state;

/* A character that occurs in words. */
typedef struct mha__character {
    int64_t count;
    uint32_t first, inner; /* ids of the character at the beginning of a word and inside a word */
    bool kept, inside;     /* true if it is in the alphabet; true if it occurs inside a word */
} mha__character;

#define MHA__TRAIN_NONE UINT32_MAX

/* A token in a word: a node of the linked list of its tokens. */
typedef struct mha__symbol {
    uint32_t id;         /* MHA__TRAIN_NONE = merged into the previous symbol */
    uint32_t prev, next; /* MHA__TRAIN_NONE at the ends */
    uint32_t word;
} mha__symbol;

struct mha_tokenizer_trainer {
    mha_ctx *ctx;
    mha_tokenizer_train_options o;
    mha__train_state state;
    mha_tokenizer_trained trained;
    char *json;           /* tokenizer.json, as compact text */
    mha_tokenizer *start; /* tokenizer that is opened from the initial json */

    char *text; /* text that was read but not yet counted */
    size_t text_bytes, text_room;
    int64_t line, line_bytes; /* complete lines of the current file; counted bytes of the next line */
    mha__counter *counters;   /* [threads] word counts of each thread */
    int threads;

    uint32_t codes;       /* highest code point of the distinct words, plus 1 */
    mha__strings vocab;   /* the number of a string is its id */
    mha__symbol *symbols; /* symbols of all words with at least two symbols, concatenated */
    size_t symbol_count;
    int64_t *word_counts; /* by symbol->word: count of the word in the text */
    size_t word_count;

    struct mha__merge {
        uint32_t left, right; /* ids */
    } *merges;
    size_t merges_count, merges_room;
};

/* Returns the prefix of characters inside a word: "##" for WordPiece, otherwise "". */
static inline const char *mha__train_prefix(const mha_tokenizer_trainer *t)
{
    return t->o.type == MHA_TOKENIZER_WORDPIECE ? "##" : "";
}

/* Adds the words of all counters to the table of the first counter. */
mha_status mha__train_join(mha_tokenizer_trainer *t, mha_error *err);
void mha__train_free_counters(mha_tokenizer_trainer *t);

/* Stores special tokens and characters in vocab, and creates the symbols. */
mha_status mha__train_words(mha_tokenizer_trainer *t, mha_error *err);
/* Merges pairs; appends the new tokens to vocab and the merges to `merges`. */
mha_status mha__train_merge(mha_tokenizer_trainer *t, mha_error *err);

/* Write t->json: mha__train_file_begin with only the special tokens (the first entries of t->vocab),
 * mha__train_file_finish the complete file. */
mha_status mha__train_file_begin(mha_tokenizer_trainer *t, mha_error *err);
mha_status mha__train_file_finish(mha_tokenizer_trainer *t, mha_error *err);

#endif
