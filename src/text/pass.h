/* pass.h - one text on its way from bytes to tokens: what the stages hand to each other, and the memory they share.
 *
 *   text --added tokens--> slice --normalizer--> slice --added tokens--> slice --pre-tokenizer--> words
 *        --model--> tokens
 *
 * A slice is a stretch of (perhaps normalized) UTF-8 in which every byte knows the character of the original text
 * that it came from. That is all a token needs to say where it stands, however often the text was rewritten on the way.
 */
#ifndef MHA_TEXT_PASS_H
#define MHA_TEXT_PASS_H

#include "base/error.h"
#include "mha/ctx.h"
#include <stdbool.h>

typedef struct mha__slice {
    const char *bytes;
    size_t n;
    const uint32_t *from; /* offset in the original text of the character behind each byte; NULL = base + index */
    uint32_t base;
} mha__slice;

/* Text being written by a normalizer. */
typedef struct mha__aligned {
    char *bytes;
    uint32_t *from;
    size_t n, bytes_room, from_room;
    size_t limit; /* n stays within it */
} mha__aligned;

typedef struct mha__word {
    size_t begin, end; /* in the slice that was split */
} mha__word;

typedef struct mha__token {
    int32_t id;
    uint32_t begin, end; /* in the original text */
} mha__token;

typedef struct mha__token_list {
    mha__token *items;
    size_t count, room;
} mha__token_list;

/* A character waiting for its place in canonical order. */
typedef struct mha__pending {
    uint32_t code;
    uint32_t from;
    uint8_t order; /* combining class */
    bool inserted; /* not the first character of a decomposition */
} mha__pending;

typedef struct mha__pass {
    mha_ctx *ctx;
    mha_error *err;
    const char *text; /* the original, well-formed UTF-8, below 4 GiB */
    size_t text_bytes;
    mha__aligned normal;  /* the piece at work, normalized */
    mha__pending *run;    /* the normalizer's characters between two starters, */
    mha__pending *sorted; /* and the same in order */
    size_t run_count, run_room, sorted_room;
    mha__word *words; /* of the slice at work */
    size_t word_count, word_room;
    mha__token_list tokens; /* the result */
} mha__pass;

void mha__pass_free(mha__pass *pass); /* everything but `tokens` */
void mha__token_list_free(mha_ctx *ctx, mha__token_list *list);

/* Makes room for `want` items of `size` bytes, keeping what is there; at least doubles. */
mha_status mha__pass_grow(mha__pass *pass, void *items, size_t *room, size_t want, size_t size);

mha_status mha__pass_word(mha__pass *pass, size_t begin, size_t end); /* an empty word is no word */
/* A token that covers bytes [begin, end) of `slice`, begin < end. */
mha_status mha__pass_token(mha__pass *pass, const mha__slice *slice, int32_t id, size_t begin, size_t end);

/* Appends a character that came from offset `from` of the original. MHA_ERR_UNSUPPORTED past the limit. */
mha_status mha__aligned_put(mha__pass *pass, mha__aligned *to, uint32_t code, uint32_t from);
mha__slice mha__aligned_slice(const mha__aligned *text);

mha__slice mha__slice_cut(const mha__slice *slice, size_t begin, size_t end);
uint32_t mha__slice_from(const mha__slice *slice, size_t at);
/* The character at `at`, or the one that ends there; both lie inside. */
uint32_t mha__slice_next(const mha__slice *slice, size_t at, size_t *length);
uint32_t mha__slice_last(const mha__slice *slice, size_t at, size_t *length);

#endif
