/* vocab.h - a table from bytes to a number: the words of a vocabulary, the patterns of added tokens.
 *
 * Filled once, then only read. Open addressing, at most half full, so a find costs little more than the hash of its
 * key. Keys come from outside and may be made to collide; filling stops with a refusal when it has looked at more than
 * 16 slots per key, which chance never does, so both filling and finding stay fast whatever the keys are.
 */
#ifndef MHA_TEXT_VOCABULARY_VOCAB_H
#define MHA_TEXT_VOCABULARY_VOCAB_H

#include "base/error.h"
#include "mha/ctx.h"

typedef struct mha__vocab_entry {
    uint32_t begin, length; /* in `bytes` */
    int32_t value;
} mha__vocab_entry;

typedef struct mha__vocab_slot {
    uint32_t hash;
    uint32_t entry; /* 1 + index; 0 = free */
} mha__vocab_slot;

typedef struct mha__vocab {
    mha_ctx *ctx;
    char *bytes; /* keys one after the other, each followed by a NUL */
    size_t used;
    mha__vocab_entry *entries;
    mha__vocab_slot *slots;
    size_t mask; /* number of slots, less 1 */
    size_t count;
    size_t looks;   /* slots looked at while filling */
    size_t longest; /* bytes of the longest key */
} mha__vocab;

/* Room for `keys` keys of together `bytes` bytes, taken from *room (memory_budget.h; NULL: no limit). A zeroed vocab
 * is empty: it may be searched and freed. */
mha_status mha__vocab_create(mha_ctx *ctx, size_t keys, size_t bytes, size_t *room, mha__vocab *vocab, mha_error *err);
void mha__vocab_free(mha__vocab *vocab);

/* Adds a key; one that is there already is left as it was. *stored (may be NULL) gets the table's entry, old or new.
 * There must be room. Errors: MHA_ERR_FORMAT if the keys collide too often. */
mha_status mha__vocab_add(mha__vocab *vocab, const char *key, size_t n, int32_t value, const mha__vocab_entry **stored,
                          mha_error *err);

/* The value of a key; -1 if it has none. */
int32_t mha__vocab_find(const mha__vocab *vocab, const char *key, size_t n);

/* The values of "<0x00>", "<0x01>" and so on: the tokens of bytes; -1 for those that have none. */
void mha__vocab_find_bytes(const mha__vocab *vocab, int32_t value[256]);

/* What stands before the searched bytes in every key that may match: "##" inside of a word. */
typedef struct mha__vocab_prefix {
    const char *bytes;
    size_t n;
    uint64_t hash;
} mha__vocab_prefix;

extern const mha__vocab_prefix mha__vocab_no_prefix;
mha__vocab_prefix mha__vocab_prefix_of(const char *bytes, size_t n);

/* The value of the longest key that is `prefix` followed by a start of p[0..n), where *length gets the length of
 * that start (at least 1); -1 if there is none. `n` bytes are well-formed UTF-8. Cost: min(n, longest key). */
int32_t mha__vocab_longest(const mha__vocab *vocab, const mha__vocab_prefix *prefix, const char *p, size_t n,
                           size_t *length);

#endif
