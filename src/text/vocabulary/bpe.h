/* bpe.h - the BPE model: characters, joined by merges. */
#ifndef MHA_TEXT_VOCABULARY_BPE_H
#define MHA_TEXT_VOCABULARY_BPE_H

#include "text/pretokenize/byte_level.h"
#include "text/vocabulary/pair_table.h"
#include <stdbool.h>

typedef struct mha__bpe {
    mha__pairs merges;              /* ids of two neighbours -> rank */
    int32_t *made;                  /* by rank: the id of what they become */
    int32_t chars[MHA__BYTE_CHARS]; /* ids of the first characters of Unicode; -1 = no token */
    int32_t bytes[256];             /* ids of "<0x00>" and so on; -1 = no token */
    int32_t unk;                    /* -1 = unknown characters vanish */
    bool fuse_unk;                  /* unknown characters beside each other are one token */
    bool byte_fallback;             /* an unknown character is its bytes, if all have tokens */
    bool ignore_merges;             /* a word that is a token is that token, however merges would make it */
} mha__bpe;

#endif
