/* bpe.h - the data of the BPE model, which merges pairs of adjacent tokens. */
#ifndef MHA_TEXT_VOCABULARY_BPE_H
#define MHA_TEXT_VOCABULARY_BPE_H

#include "text/byte_level.h"
#include "text/vocabulary/pair_table.h"
#include <stdbool.h>

enum { MHA__BPE_SUFFIX = 32 }; /* most bytes of a suffix; a longer one is rejected */

typedef struct mha__bpe {
    mha__pair_table merges;         /* ids of two adjacent tokens -> rank */
    int32_t *made;                  /* by rank: the id of the merged token */
    int32_t chars[MHA__BYTE_CHARS]; /* ids of the characters below MHA__BYTE_CHARS, by code point; -1 = no token */
    int32_t bytes[256];             /* ids of "<0x00>" and so on; -1 = no token */
    int32_t unk;                    /* id of the unknown token; -1 = unknown characters are dropped */
    bool fuse_unk;                  /* adjacent unknown characters become one token */
    bool byte_fallback;             /* an unknown character becomes its bytes, if all of them have tokens */
    char suffix[MHA__BPE_SUFFIX];   /* [suffix_bytes] appended to the last character of each word */
    size_t suffix_bytes;
    bool ignore_merges; /* a word that is in the vocabulary becomes that token, regardless of merges */
} mha__bpe;

#endif
