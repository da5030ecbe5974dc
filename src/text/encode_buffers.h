/* encode_buffers.h - one text on its way from bytes to tokens: what the stages hand to each other, and the memory they
 * share.
 *
 *   text --added tokens--> slice --normalizer--> slice --added tokens--> slice --pre-tokenizer--> words
 *        --model--> tokens
 *
 * A slice is a stretch of (perhaps rewritten) UTF-8 in which every byte knows the character of the original text
 * that it came from. That is all a token needs to say where it stands, however often the text was rewritten on the way.
 */
#ifndef MHA_TEXT_ENCODE_BUFFERS_H
#define MHA_TEXT_ENCODE_BUFFERS_H

#include "base/error.h"
#include "mha/ctx.h"
#include <stdbool.h>

typedef struct mha__slice {
    const char *bytes;
    size_t n;
    const uint32_t *from; /* offset in the original text of the character behind each byte; NULL = base + index */
    uint32_t base;
} mha__slice;

/* Text being written by an edit. */
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
    uint32_t begin, end;  /* in the original text */
    uint32_t lead, trail; /* white space at its ends, in characters; counted where it matters, see trim_offsets.h */
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

/* Memory for the work of one file on one word; only that file knows what is inside. */
typedef struct mha__work {
    void *items;
    size_t room; /* in bytes */
} mha__work;

typedef struct mha__pass {
    mha_ctx *ctx;
    mha_error *err;
    const char *text; /* the original, well-formed UTF-8, below 4 GiB */
    size_t text_bytes;
    mha__aligned normal[2];    /* the piece at work, normalized; edits write from one into the other */
    mha__aligned rewritten[2]; /* the same for the pre-tokenizer */
    mha__aligned *to;          /* where the edit at work writes */
    mha__pending *run;         /* characters whose order is not settled, */
    mha__pending *sorted;      /* and the same in order */
    size_t run_count, run_room, sorted_room;
    mha__word *words; /* of the slice at work */
    mha__word *uncut; /* those that the edit at work cuts */
    size_t word_count, word_room, uncut_room;
    void *matches; /* of the regular expression at work, see split_pattern.c */
    mha__work work, queue;
    mha__token_list tokens; /* the result */
} mha__pass;

void mha__pass_free(mha__pass *pass); /* everything but `tokens` */
void mha__token_list_free(mha_ctx *ctx, mha__token_list *list);

/* Makes room for `want` items of `size` bytes in *items, the address of a pointer, keeping what is there; at least
 * doubles. */
mha_status mha__items_grow(mha_ctx *ctx, void *items, size_t *room, size_t want, size_t size, mha_error *err);
mha_status mha__pass_grow(mha__pass *pass, void *items, size_t *room, size_t want, size_t size);

/* The same for work. */
mha_status mha__work_grow(mha__pass *pass, mha__work *work, size_t want, size_t size);

mha_status mha__pass_word(mha__pass *pass, size_t begin, size_t end); /* an empty word is no word */
/* A token that covers bytes [begin, end) of `slice`, begin < end; both may lie inside of a character. */
mha_status mha__pass_token(mha__pass *pass, const mha__slice *slice, int32_t id, size_t begin, size_t end);

/* Where in the original the character begins that byte `at` came from. */
uint32_t mha__pass_origin(const mha__pass *pass, const mha__slice *slice, size_t at);

/* Append to pass->to: a character that came from offset `from` of the original; bytes that all did; bytes of a slice.
 * MHA_ERR_UNSUPPORTED past the limit. */
mha_status mha__pass_put(mha__pass *pass, uint32_t code, uint32_t from);
mha_status mha__pass_put_bytes(mha__pass *pass, const char *bytes, size_t n, uint32_t from);
mha_status mha__pass_copy(mha__pass *pass, const mha__slice *slice, size_t begin, size_t end);

mha__slice mha__aligned_slice(const mha__aligned *text);

mha__slice mha__slice_cut(const mha__slice *slice, size_t begin, size_t end);
/* What `from` says of a byte; inside of a character its own place where the slice is the original text. */
uint32_t mha__slice_from(const mha__slice *slice, size_t at);
/* The character at `at`, or the one that ends there; both lie inside. */
uint32_t mha__slice_next(const mha__slice *slice, size_t at, size_t *length);
uint32_t mha__slice_last(const mha__slice *slice, size_t at, size_t *length);

#endif
