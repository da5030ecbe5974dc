/* vocab.h - a map from byte strings to integers, for the words of a vocabulary and the patterns of added tokens.
 *
 * The map is filled once, then only read. The hash table uses open addressing and is at most half full, so a lookup
 * takes little longer than hashing the key. Keys in a hostile file may be crafted to collide. Adding a key fails if the
 * average exceeds 16 probes per key, which does not happen for random keys, so adding and lookup are fast for all
 * keys. */
#ifndef MHA_TEXT_VOCABULARY_VOCAB_H
#define MHA_TEXT_VOCABULARY_VOCAB_H

#include "base/error.h"
#include "mha/ctx.h"

typedef struct mha__vocab_entry {
    uint32_t begin, length; /* begin: offset in `bytes` */
    int32_t value;
} mha__vocab_entry;

typedef struct mha__vocab_slot {
    uint32_t hash;
    uint32_t entry; /* 1 + index; 0 = free */
} mha__vocab_slot;

typedef struct mha__vocab {
    mha_ctx *ctx;
    char *bytes; /* keys, concatenated, each followed by a NUL */
    size_t used;
    mha__vocab_entry *entries;
    mha__vocab_slot *slots;
    size_t mask; /* number of slots minus 1 */
    size_t count;
    size_t probes;  /* number of probes while adding keys */
    size_t longest; /* length of the longest key [bytes] */
} mha__vocab;

/* Allocates memory for `keys` keys of `bytes` bytes in total, and subtracts it from *room (memory_budget.h; NULL =
 * unlimited). A zero-initialized vocab is empty and can be searched and freed. */
mha_status mha__vocab_create(mha_ctx *ctx, size_t keys, size_t bytes, size_t *room, mha__vocab *vocab, mha_error *err);
void mha__vocab_free(mha__vocab *vocab);

/* Adds a key; an existing key is left unchanged. Sets *stored (may be NULL) to the existing or new entry. The table
 * must have space for the key. Errors: MHA_ERR_FORMAT if the keys collide too often. */
mha_status mha__vocab_add(mha__vocab *vocab, const char *key, size_t n, int32_t value, const mha__vocab_entry **stored,
                          mha_error *err);

/* Returns the value of a key; -1 if the key is absent. */
int32_t mha__vocab_find(const mha__vocab *vocab, const char *key, size_t n);

/* Sets value[b] to the id of the token of byte b ("<0x00>", "<0x01>" and so on); -1 if byte b has no token. */
void mha__vocab_find_bytes(const mha__vocab *vocab, int32_t value[256]);

/* A prefix of the keys to look up, for example "##" for pieces inside a word. */
typedef struct mha__vocab_prefix {
    const char *bytes;
    size_t n;
    uint64_t hash;
} mha__vocab_prefix;

extern const mha__vocab_prefix mha__vocab_no_prefix;
mha__vocab_prefix mha__vocab_prefix_of(const char *bytes, size_t n);

/* Returns the value of the longest key that is `prefix` followed by a prefix of p[0..n). Sets *length to the length of
 * that prefix of p (at least 1). Returns -1 if there is no such key. The `n` bytes must be well-formed UTF-8. Takes
 * O(min(n, longest key)) steps. */
int32_t mha__vocab_longest(const mha__vocab *vocab, const mha__vocab_prefix *prefix, const char *p, size_t n,
                           size_t *length);

#endif
