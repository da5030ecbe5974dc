/* decode.h - from tokens back to text: a chain of steps, each of which hands on what the one before handed to it.
 *
 * A step sees one token after the other and keeps back what it cannot settle yet: bytes of an unfinished character,
 * white space that may be the last. So the same steps decode a list of ids at once and a stream of them as they come.
 * After a step that fuses (Fuse, ByteLevel) all tokens are one, which comes in parts.
 */
#ifndef MHA_TEXT_DECODE_DECODE_H
#define MHA_TEXT_DECODE_DECODE_H

#include "text/encode_buffers.h"
#include "text/pretokenize/split_pattern.h"

enum { MHA__DECODE_STEPS = 16 };
enum { MHA__PART_BEGIN = 1, MHA__PART_END = 2, MHA__PART_WHOLE = 3 }; /* of a token */

typedef struct mha__decoding mha__decoding;

typedef struct mha__decode_step {
    /* Takes a part of a token. */
    mha_status (*feed)(mha__decoding *d, int step, const char *bytes, size_t n, unsigned part);
    /* After the last token: hands on what was kept back. May be NULL. */
    mha_status (*finish)(mha__decoding *d, int step);
    bool fuses;
    bool whole; /* takes whole tokens only, so nothing before it may fuse */
    union {
        struct {
            const char *prefix;
            size_t n;
            bool cleanup;
        } wordpiece;
        struct {
            mha__pattern pattern;
            const char *with;
            size_t n;
        } replace;
        struct {
            const char *mark;
            size_t n;
            bool drop_first;
        } metaspace;
        struct {
            const char *text; /* one character */
            size_t n;
            int64_t start, stop; /* how many at most */
        } strip;
    };
} mha__decode_step;

typedef struct mha__decode_list {
    mha__decode_step items[MHA__DECODE_STEPS];
    int count;
} mha__decode_list;

/* What a step knows between two calls. */
typedef struct mha__decode_state {
    int64_t tokens; /* that began */
    int64_t cut;    /* strip: how many were cut at the start of this token; -1 = it has begun */
    int64_t kept;   /* strip: how many are kept back */
    char *bytes;    /* kept back, or being written */
    size_t n, room;
} mha__decode_state;

struct mha__decoding {
    mha__pass pass; /* memory, errors, matches */
    const mha__decode_list *list;
    bool eager; /* a stream: whole characters are handed on as soon as they are there */
    size_t limit;
    mha__decode_state state[MHA__DECODE_STEPS + 1]; /* the last one's bytes are the text */
};

void mha__decoding_free(mha__decoding *d);
mha_status mha__decoding_feed(mha__decoding *d, const char *token);
mha_status mha__decoding_finish(mha__decoding *d);

/* For steps: hands a part to the next step, the last of which writes the text. */
mha_status mha__decode_emit(mha__decoding *d, int step, const char *bytes, size_t n, unsigned part);
/* Appends to what step `step` keeps. */
mha_status mha__decode_keep(mha__decoding *d, int step, const char *bytes, size_t n);

/* The steps, each with the settings of the same name. */
extern const mha__decode_step mha__decode_plain, mha__decode_wordpiece, mha__decode_bytes, mha__decode_fallback,
    mha__decode_fuse, mha__decode_replace, mha__decode_metaspace, mha__decode_strip;

#endif
