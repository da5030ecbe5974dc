/* json_write.h - writes JSON to a growing buffer in context memory.
 *
 * A failed allocation is stored: all later calls do nothing, and mha__json_written returns the error. The output is the
 * same in every locale. Bytes of strings that are not UTF-8 are written as U+FFFD. */
#ifndef MHA_IO_JSON_JSON_WRITE_H
#define MHA_IO_JSON_JSON_WRITE_H

#include "io/json/json.h"

enum { MHA__JSON_COMPACT = 0 }; /* no indentation; any other value of `indent` is the number of blanks per level */

typedef struct mha__json_writer {
    mha_ctx *ctx;
    char *text;
    size_t n, room;
    int indent, depth;
    int digits;  /* significant digits of reals; 0 = MHA__JSON_EXACT */
    bool filled; /* true if the open container is not empty */
    bool keyed;  /* true after a key, before its value */
    bool failed;
} mha__json_writer;

/* A writer with `ctx` and `indent` set and all other members 0 is ready for use. */
void mha__json_open(mha__json_writer *w, char bracket); /* '{' or '[' */
void mha__json_close(mha__json_writer *w, char bracket);
void mha__json_key(mha__json_writer *w, const char *key);
void mha__json_key_bytes(mha__json_writer *w, const char *key, size_t n);
void mha__json_put_bool(mha__json_writer *w, bool value);
void mha__json_put_int(mha__json_writer *w, int64_t value);
void mha__json_put_real(mha__json_writer *w, double value); /* must be finite */
void mha__json_put_text(mha__json_writer *w, const char *value);
void mha__json_put_bytes(mha__json_writer *w, const char *value, size_t n);
/* Writes a value of a tree; NULL counts as a failed allocation. */
void mha__json_put(mha__json_writer *w, const mha__json *value);
/* Writes an object from JSON text; error messages name `file`. */
mha_status mha__json_put_json(mha__json_writer *w, const char *file, const char *json, mha_error *err);

/* Ends writing. *text receives the text, with a NUL that *n (may be NULL) does not count; free it with mha__free. If
 * `text` is NULL, or on failure, frees the text. The message of an allocation failure names `what`. */
mha_status mha__json_written(mha__json_writer *w, const char *what, char **text, size_t *n, mha_error *err);

/* Applies changes to the object `json`: removes the keys in `removed` (ends with NULL; may be NULL), then replaces or
 * appends the members of the object in `changes`. Ends `changes`; error messages name `file`. */
mha_status mha__json_changed(const char *file, const char *json, const char *const *removed, mha__json_writer *changes,
                             int indent, char **changed, mha_error *err);

#endif
