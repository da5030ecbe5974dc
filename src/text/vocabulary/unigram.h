/* unigram.h - the data of the Unigram model, which splits a word into the pieces with the highest sum of scores. */
#ifndef MHA_TEXT_VOCABULARY_UNIGRAM_H
#define MHA_TEXT_VOCABULARY_UNIGRAM_H

#include "text/vocabulary/pair_table.h"
#include <stdbool.h>

typedef struct mha__unigram {
    mha__pair_table trie; /* node and byte -> node; 0 is the root */
    int32_t *piece;       /* by node: the id of the piece that ends there; -1 = none */
    double *score;        /* by id: score of the piece */
    double unk_score;     /* score of a character that is not a piece */
    int32_t unk;
    bool byte_fallback; /* unknown characters become their bytes, if all of them have tokens */
    int32_t bytes[256]; /* ids of "<0x00>" and so on; -1 = no token */
} mha__unigram;

#endif
