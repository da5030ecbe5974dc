/* json_scan.h - reads JSON as a stream of validated tokens, without allocating memory.
 *
 * Accepts RFC 8259 in UTF-8, without NaN, Infinity, lone surrogates, or NUL in a key. Limits: MHA__JSON_DEPTH levels,
 * strings of MHA__STRING_BYTES, 64-bit integers, reals in the range of a double. Does not detect duplicate keys: the
 * caller must check the keys that it stores. */
#ifndef MHA_IO_JSON_JSON_SCAN_H
#define MHA_IO_JSON_JSON_SCAN_H

#include "base/error.h"
#include <stdbool.h>

enum {
    MHA__JSON_BOM = 1 << 0,    /* a leading byte order mark is skipped (config.json and similar files) */
    MHA__JSON_HEADER = 1 << 1, /* safetensors header: the first byte must be '{', and an integer -0 is rejected */
    MHA__JSON_ANY = 1 << 2     /* the root may be any value; without this flag, it must be an object */
};

typedef enum mha__json_kind {
    MHA__JSON_ABSENT = 0,
    MHA__JSON_NULL,
    MHA__JSON_FALSE,
    MHA__JSON_TRUE,
    MHA__JSON_INTEGER,
    MHA__JSON_REAL,
    MHA__JSON_STRING,
    MHA__JSON_ARRAY,  /* start of an array */
    MHA__JSON_OBJECT, /* start of an object */
    MHA__JSON_KEY,    /* the value of the key follows */
    MHA__JSON_END,    /* end of the innermost array or object */
    MHA__JSON_DONE    /* end of the text: only blanks follow the root */
} mha__json_kind;

typedef struct mha__json_token {
    mha__json_kind kind;
    bool escaped;     /* true if `text` contains escapes */
    size_t at;        /* offset of the token's first byte in the text */
    const char *text; /* for a string or key: the bytes between the quotes, undecoded */
    size_t n;         /* [bytes] length of `text` */
    size_t bytes;     /* [bytes] length of `text` after decoding, at most n */
    int64_t integer;
    double real;
} mha__json_token;

typedef struct mha__json_scan {
    const char *file, *text;
    size_t n, at;
    unsigned flags;
    size_t line, line_begin; /* number of lines before `at`; offset of the current line. Strings contain no line ends */
    int depth;
    uint64_t objects; /* bit d: the container at depth d is an object */
    int state;
    mha_error *err;
} mha__json_scan;

/* Begins scanning text[0 .. n). The text must be followed by a NUL. Error messages name `file`. Rejects text that is
 * empty, not UTF-8, or recognized as another format. Errors of all functions: MHA_ERR_FORMAT, MHA_ERR_MEMORY. */
mha_status mha__json_scan_begin(mha__json_scan *s, const char *file, const char *text, size_t n, unsigned flags,
                                mha_error *err);
mha_status mha__json_next(mha__json_scan *s, mha__json_token *t);
/* Skips a value; `t` is the value's token, the start of its container, or its key. */
mha_status mha__json_skip(mha__json_scan *s, const mha__json_token *t);

/* Reads the escape sequence at p; the NUL after the text ends an incomplete sequence. Returns its length [bytes]; 0 if
 * it is invalid. A lone surrogate is returned as its own code. */
size_t mha__json_read_escape(const char *p, uint32_t *code);
/* Writes the decoded string or key, at most `room` of its t->bytes bytes, to `to`, which may be the text itself. */
void mha__json_decode(const mha__json_token *t, char *to, size_t room);
/* Returns true if the string or key equals `name`. */
bool mha__json_token_is(const mha__json_token *t, const char *name);

/* Fails with "FILE: line 3, column 7: REASON", MHA_ERR_FORMAT; columns count bytes. */
mha_status mha__json_scan_fail(const mha__json_scan *s, size_t at, const char *reason, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns "a string", "an object" and so on. */
const char *mha__json_kind_name(mha__json_kind kind);

#endif
