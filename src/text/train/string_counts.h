/* string_counts.h - distinct byte strings, numbered from 0 in the order in which they come, each with a sum: the words
 * of a text and how often they stand there, the tokens of a vocabulary that grows.
 *
 * Open addressing, at most half full, growing. What comes from outside may be made to collide: adding stops with a
 * refusal when it has looked at more than 16 slots per string, as in vocab.h.
 */
#ifndef MHA_TEXT_TRAIN_STRING_COUNTS_H
#define MHA_TEXT_TRAIN_STRING_COUNTS_H

#include "base/error.h"
#include "mha/ctx.h"

typedef struct mha__string {
    size_t begin; /* in `bytes` */
    int64_t sum;
    uint32_t length, hash;
} mha__string;

typedef struct mha__strings {
    mha_ctx *ctx;
    char *bytes; /* of all, each followed by a NUL */
    size_t used, bytes_room;
    mha__string *items;
    size_t count, room;
    uint32_t *slots; /* 1 + number; 0 = free */
    size_t mask;     /* number of slots, less 1 */
    size_t looks;    /* slots looked at while adding */
} mha__strings;

/* A zeroed table with a context is empty: it may be added to and freed. */
void mha__strings_free(mha__strings *strings);

/* Adds `more` to the sum of a string, which joins with the sum 0 if it is new. *number (may be NULL) gets its number.
 * `p` does not lie in the table. */
mha_status mha__strings_add(mha__strings *strings, const char *p, size_t n, int64_t more, uint32_t *number,
                            mha_error *err);

/* The bytes of a string, until the next one is added. */
static inline const char *mha__strings_at(const mha__strings *strings, size_t number)
{
    return strings->bytes + strings->items[number].begin;
}

#endif
