/* json_scan.h - JSON as a stream of tokens: what is checked while reading, with no memory but the text itself.
 *
 * RFC 8259 in UTF-8, and stricter: no NaN or Infinity, no lone surrogate, no NUL in a key, at most MHA__JSON_DEPTH
 * levels, strings of at most MHA__STRING_BYTES, integers of 64 bits, reals within a double. Duplicate keys are left to
 * the reader of the tokens, who knows what it keeps.
 */
#ifndef MHA_IO_JSON_JSON_SCAN_H
#define MHA_IO_JSON_JSON_SCAN_H

#include "base/error.h"
#include <stdbool.h>

enum {
    MHA__JSON_BOM = 1 << 0,    /* a byte order mark at the start is skipped (config.json and its like) */
    MHA__JSON_HEADER = 1 << 1, /* safetensors header: the first byte is '{', and an integer -0 is refused */
    MHA__JSON_ANY = 1 << 2     /* the text is any value; without it, an object */
};

typedef enum mha__json_kind {
    MHA__JSON_ABSENT = 0,
    MHA__JSON_NULL,
    MHA__JSON_FALSE,
    MHA__JSON_TRUE,
    MHA__JSON_INTEGER,
    MHA__JSON_REAL,
    MHA__JSON_STRING,
    MHA__JSON_ARRAY,  /* it begins */
    MHA__JSON_OBJECT, /* it begins */
    MHA__JSON_KEY,    /* its value follows */
    MHA__JSON_END,    /* of the array or object that began last */
    MHA__JSON_DONE    /* the text is complete; only blanks followed */
} mha__json_kind;

typedef struct mha__json_token {
    mha__json_kind kind;
    bool escaped;     /* `text` holds escapes */
    size_t at;        /* offset of its first byte in the text */
    const char *text; /* string or key: what is between the quotes, as written */
    size_t n;         /* bytes of `text` */
    size_t bytes;     /* the same when decoded: n at most */
    int64_t integer;
    double real;
} mha__json_token;

typedef struct mha__json_scan {
    const char *file, *text;
    size_t n, at;
    unsigned flags;
    size_t line, line_begin; /* lines before `at`, offset of the current one: strings hold no line end */
    int depth;
    uint64_t objects; /* bit d: the container of level d is an object */
    int state;
    mha_error *err;
} mha__json_scan;

/* Begins at the start of text[0 .. n), which must be followed by a NUL; `file` is named in refusals. Refuses what is
 * not UTF-8, is empty, or is known to be another format. Errors of all functions: MHA_ERR_FORMAT, MHA_ERR_MEMORY. */
mha_status mha__json_scan_begin(mha__json_scan *s, const char *file, const char *text, size_t n, unsigned flags,
                                mha_error *err);
mha_status mha__json_next(mha__json_scan *s, mha__json_token *t);
/* Reads to the end of the value that `t` is or begins, or whose key it is. */
mha_status mha__json_skip(mha__json_scan *s, const mha__json_token *t);

/* Writes the decoded string or key to `to`, which may be the text itself: t->bytes, or those that fit into `room`. */
void mha__json_decode(const mha__json_token *t, char *to, size_t room);
/* True if the string or key is `name`. */
bool mha__json_token_is(const mha__json_token *t, const char *name);

/* "FILE: line 3, column 7: REASON", MHA_ERR_FORMAT; columns count bytes. */
mha_status mha__json_scan_fail(const mha__json_scan *s, size_t at, const char *reason, ...)
    __attribute__((format(printf, 3, 4)));

/* "a string", "an object" ... */
const char *mha__json_kind_name(mha__json_kind kind);

#endif
