/* pair_table.h - a table from two numbers to a third: the merges of BPE, the edges of a trie.
 *
 * Open addressing, at most half full, growing as it is filled. The keys come from outside and may be made to collide:
 * filling stops with a refusal when it has looked at more than 16 slots per key, as in vocab.h.
 */
#ifndef MHA_TEXT_VOCABULARY_PAIR_TABLE_H
#define MHA_TEXT_VOCABULARY_PAIR_TABLE_H

#include "base/error.h"
#include "mha/ctx.h"

typedef struct mha__pair_slot {
    uint32_t first, second;
    uint32_t value; /* 1 + the value; 0 = free */
} mha__pair_slot;

typedef struct mha__pairs {
    mha_ctx *ctx;
    size_t *room; /* that slots are taken from; NULL: no limit */
    mha__pair_slot *slots;
    size_t mask; /* number of slots, less 1 */
    size_t count, looks;
} mha__pairs;

/* A zeroed table with a context is empty: it may be filled, searched and freed. */
void mha__pairs_free(mha__pairs *pairs);

/* Stores value (below UINT32_MAX) under the key, in place of the one that is there. */
mha_status mha__pairs_put(mha__pairs *pairs, uint32_t first, uint32_t second, uint32_t value, mha_error *err);

/* The value of a key; -1 if it has none. */
int64_t mha__pairs_get(const mha__pairs *pairs, uint32_t first, uint32_t second);

#endif
