/* string_counts.h - distinct byte strings, numbered from 0 in insertion order, each with a sum: the words of a text
 * with their counts, or the tokens of a growing vocabulary.
 *
 * The hash table uses open addressing, grows, and is at most half full. Strings in a hostile text may be crafted to
 * collide, so adding a string fails if the average exceeds 16 probes per string, as in vocab.h. */
#ifndef MHA_TEXT_TRAIN_STRING_COUNTS_H
#define MHA_TEXT_TRAIN_STRING_COUNTS_H

#include "base/error.h"
#include "mha/ctx.h"

typedef struct mha__string {
    size_t begin; /* offset of the string in `bytes` */
    int64_t sum;
    uint32_t length, hash;
} mha__string;

typedef struct mha__strings {
    mha_ctx *ctx;
    char *bytes; /* all strings, each followed by a NUL */
    size_t used, bytes_room;
    mha__string *items;
    size_t count, room;
    uint32_t *slots; /* 1 + number of the string; 0 = free */
    size_t mask;     /* number of slots minus 1 */
    size_t probes;   /* number of probes while adding */
} mha__strings;

/* A zero-initialized table with a context is empty and ready for use. */
void mha__strings_free(mha__strings *strings);

/* Adds `more` to the sum of a string. A new string is inserted with the sum 0 first. Sets *number (may be NULL) to the
 * number of the string. `p` must not point into the table. */
mha_status mha__strings_add(mha__strings *strings, const char *p, size_t n, int64_t more, uint32_t *number,
                            mha_error *err);

/* Returns the bytes of a string, valid until another string is added. */
static inline const char *mha__strings_at(const mha__strings *strings, size_t number)
{
    return strings->bytes + strings->items[number].begin;
}

#endif
