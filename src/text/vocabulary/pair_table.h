/* pair_table.h - a map from two integers to one, for the merges of BPE and the edges of a trie.
 *
 * The hash table uses open addressing, grows, and is at most half full. Keys in a hostile file may be crafted to
 * collide, so adding a key fails if the average exceeds 16 probes per key, as in vocab.h. */
#ifndef MHA_TEXT_VOCABULARY_PAIR_TABLE_H
#define MHA_TEXT_VOCABULARY_PAIR_TABLE_H

#include "base/error.h"
#include "mha/ctx.h"

typedef struct mha__pair_slot {
    uint32_t first, second;
    uint32_t value; /* 1 + the value; 0 = free */
} mha__pair_slot;

typedef struct mha__pair_table {
    mha_ctx *ctx;
    size_t *room; /* memory budget for slots; NULL = unlimited */
    mha__pair_slot *slots;
    size_t mask; /* number of slots minus 1 */
    size_t count, probes;
} mha__pair_table;

/* A zero-initialized table with a context is empty and ready for use. */
void mha__pairs_free(mha__pair_table *pairs);

/* Stores value (below UINT32_MAX) under the key, replacing an existing value. */
mha_status mha__pairs_put(mha__pair_table *pairs, uint32_t first, uint32_t second, uint32_t value, mha_error *err);

/* Returns the value of a key; -1 if the key is absent. */
int64_t mha__pairs_get(const mha__pair_table *pairs, uint32_t first, uint32_t second);

#endif
