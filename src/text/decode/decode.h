/* decode.h - converts tokens to text by a chain of steps, each of which passes its output to the next.
 *
 * A step processes one token at a time and holds back output that is not final: the bytes of an incomplete character,
 * or trailing white space that may be removed. The same steps therefore decode a list of ids in one call and a stream
 * of ids incrementally. After a step that fuses tokens (Fuse, ByteLevel), later steps receive a single token in several
 * parts. */
#ifndef MHA_TEXT_DECODE_DECODE_H
#define MHA_TEXT_DECODE_DECODE_H

#include "text/encode_buffers.h"
#include "text/pretokenize/split_pattern.h"

enum { MHA__DECODE_STEPS = 16 };
enum { MHA__PART_BEGIN = 1, MHA__PART_END = 2, MHA__PART_WHOLE = 3 }; /* flags that describe a part of a token */

typedef struct mha__decoding mha__decoding;

typedef struct mha__decode_step {
    /* Processes a part of a token. */
    mha_status (*feed)(mha__decoding *d, int step, const char *bytes, size_t n, unsigned part);
    /* Passes the output that was held back to the next step, after the last token; may be NULL. */
    mha_status (*finish)(mha__decoding *d, int step);
    bool fuses;
    bool whole; /* processes whole tokens only, so no earlier step may fuse tokens */
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
            const char *text; /* the character to remove */
            size_t n;
            int64_t start, stop; /* maximum number of characters to remove at each end */
        } strip;
    };
} mha__decode_step;

typedef struct mha__decode_list {
    mha__decode_step items[MHA__DECODE_STEPS];
    int count;
} mha__decode_list;

/* The state of a step between two calls. */
typedef struct mha__decode_state {
    int64_t tokens; /* number of tokens received, including an incomplete one */
    int64_t cut;    /* strip: characters removed at the start of this token; -1 = past the start */
    int64_t kept;   /* strip: characters held back */
    char *bytes;    /* output that is held back; in the last entry, the decoded text */
    size_t n, room;
} mha__decode_state;

struct mha__decoding {
    mha__pass pass; /* shared by all steps: memory, the first error, and match data of regular expressions */
    const mha__decode_list *list;
    bool eager; /* true for a stream: passes on complete characters immediately */
    size_t limit;
    mha__decode_state state[MHA__DECODE_STEPS + 1]; /* the last entry contains the decoded text */
};

void mha__decoding_free(mha__decoding *d);
mha_status mha__decoding_feed(mha__decoding *d, const char *token);
mha_status mha__decoding_finish(mha__decoding *d);

/* Passes a part of a token to the next step; the last step's output is appended to the text. Called by steps. */
mha_status mha__decode_emit(mha__decoding *d, int step, const char *bytes, size_t n, unsigned part);
/* Appends bytes to the output that step `step` holds back. */
mha_status mha__decode_keep(mha__decoding *d, int step, const char *bytes, size_t n);

/* The decode steps. Each step reads the settings of the same name in mha__decode_step. */
extern const mha__decode_step mha__decode_plain, mha__decode_wordpiece, mha__decode_bytes, mha__decode_fallback,
    mha__decode_fuse, mha__decode_replace, mha__decode_metaspace, mha__decode_strip;

#endif
