/* encode_buffers.h - the data that encoding stages pass to each other, and their shared memory.
 *
 *   text --added tokens--> slice --normalizer--> slice --added tokens--> slice --pre-tokenizer--> words
 *        --model--> tokens
 *
 * A slice is a range of (possibly rewritten) UTF-8. For every byte, it stores the character of the original text that
 * the byte comes from. Token offsets are computed only from these positions, no matter how often the text was
 * rewritten. */
#ifndef MHA_TEXT_ENCODE_BUFFERS_H
#define MHA_TEXT_ENCODE_BUFFERS_H

#include "base/error.h"
#include "base/utf8.h"
#include "mha/ctx.h"
#include <stdbool.h>

typedef struct mha__slice {
    const char *bytes;
    size_t n;
    const uint32_t *from; /* offset in the original text of each byte's source character; NULL = base + index */
    uint32_t base;
} mha__slice;

/* The output text of an edit. */
typedef struct mha__aligned {
    char *bytes;
    uint32_t *from;
    size_t n, bytes_room, from_room;
    size_t limit; /* maximum value of n */
} mha__aligned;

typedef struct mha__word {
    size_t begin, end; /* byte range in the slice that was split into words */
} mha__word;

typedef struct mha__token {
    int32_t id;
    uint32_t begin, end;  /* offsets in the original text */
    uint32_t lead, trail; /* white space at both ends [characters]; counted only if needed, see trim_offsets.h */
    bool counted;         /* true if lead and trail are set */
} mha__token;

typedef struct mha__token_list {
    mha__token *items;
    size_t count, room;
} mha__token_list;

/* A character that is not yet in canonical order. */
typedef struct mha__pending {
    uint32_t code;
    uint32_t from;
    uint8_t order; /* combining class */
    bool inserted; /* not the first character of a decomposition */
} mha__pending;

/* Scratch memory for one word, which only one source file uses. */
typedef struct mha__work {
    void *items;
    size_t room; /* allocated size [bytes] */
} mha__work;

typedef struct mha__pass {
    mha_ctx *ctx;
    mha_error *err;
    const char *text; /* the original text: well-formed UTF-8 of less than 4 GiB */
    size_t text_bytes;
    mha__aligned normal[2];    /* the current piece, normalized; edits alternate between the two buffers */
    mha__aligned rewritten[2]; /* output of the pre-tokenizer, also in two buffers */
    mha__aligned *to;          /* output of the current edit */
    mha__pending *run;         /* characters not yet in canonical order */
    mha__pending *sorted;      /* the same characters in canonical order */
    size_t run_count, run_room, sorted_room;
    mha__word *words; /* words of the current slice */
    mha__word *uncut; /* input words of the current splitting edit */
    size_t word_count, word_room, uncut_room;
    void *matches; /* PCRE2 match data of the current regular expression; see split_pattern.c */
    mha__work work, queue;
    mha__token_list tokens; /* the resulting tokens */
} mha__pass;

void mha__pass_free(mha__pass *pass);  /* Frees all buffers except `tokens`. */
void mha__matches_free(void *matches); /* Frees pass->matches; defined in split_pattern.c. */
void mha__token_list_free(mha_ctx *ctx, mha__token_list *list);

/* Grow the array *items to at least `want` items of `size` bytes and preserve its content. `items` is the address of
 * the array pointer. The capacity at least doubles. */
mha_status mha__items_grow(mha_ctx *ctx, void *items, size_t *room, size_t want, size_t size, mha_error *err);
mha_status mha__pass_grow(mha__pass *pass, void *items, size_t *room, size_t want, size_t size);

/* Grows scratch memory to at least `want` items of `size` bytes, like mha__items_grow. */
mha_status mha__work_grow(mha__pass *pass, mha__work *work, size_t want, size_t size);

mha_status mha__pass_word(mha__pass *pass, size_t begin, size_t end); /* Appends a word to pass->words, unless it is
                                                                       * empty. */
/* Appends a token that covers bytes [begin, end) of `slice`, begin < end. Both ends may be inside a character. */
mha_status mha__pass_token(mha__pass *pass, const mha__slice *slice, int32_t id, size_t begin, size_t end);

/* Returns the offset, in the original text, of the source character of byte `at`. */
uint32_t mha__pass_origin(const mha__pass *pass, const mha__slice *slice, size_t at);

/* Append to pass->to: a character with original offset `from`; bytes that all have the offset `from`; bytes of a slice
 * with their own offsets. Return MHA_ERR_UNSUPPORTED if the text would exceed its size limit. */
mha_status mha__pass_put(mha__pass *pass, uint32_t code, uint32_t from);
mha_status mha__pass_put_bytes(mha__pass *pass, const char *bytes, size_t n, uint32_t from);
mha_status mha__pass_copy(mha__pass *pass, const mha__slice *slice, size_t begin, size_t end);

mha__slice mha__aligned_slice(const mha__aligned *text);

mha__slice mha__slice_cut(const mha__slice *slice, size_t begin, size_t end);
/* Returns the original offset of a byte. If the slice is the original text, this is the offset of the byte itself, even
 * inside a character. */
uint32_t mha__slice_from(const mha__slice *slice, size_t at);
/* Return the character that begins at byte `at`, or the character that ends there, and its length. The character must
 * be inside the slice. */
static inline uint32_t mha__slice_next(const mha__slice *slice, size_t at, size_t *length)
{
    uint32_t code = 0;
    *length = (size_t)mha__utf8_read(slice->bytes + at, slice->n - at, &code);
    return code;
}

uint32_t mha__slice_last(const mha__slice *slice, size_t at, size_t *length);

#endif
