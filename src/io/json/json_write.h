/* json_write.h - writes JSON to a growing buffer in memory of the context.
 *
 * A failed allocation is recorded: all later calls do nothing, and mha__json_written reports it. The output is the
 * same in every locale. A byte of a string that is not UTF-8 is written as U+FFFD. */
#ifndef MHA_IO_JSON_JSON_WRITE_H
#define MHA_IO_JSON_JSON_WRITE_H

#include "io/json/json.h"

enum { MHA__JSON_COMPACT = 0 }; /* for `indent`: no blanks; other values = blanks per level */

typedef struct mha__json_writer {
    mha_ctx *ctx;
    char *text;
    size_t n, room;
    int indent, depth;
    int digits;  /* significant digits of reals; 0 = MHA__JSON_EXACT */
    bool filled; /* the open container is not empty */
    bool keyed;  /* a key has been written, its value is next */
    bool failed;
} mha__json_writer;

/* A zero-initialized writer with a context and an indent is ready for use. */
void mha__json_open(mha__json_writer *w, char bracket); /* '{' or '[' */
void mha__json_close(mha__json_writer *w, char bracket);
void mha__json_key(mha__json_writer *w, const char *key);
void mha__json_put_bool(mha__json_writer *w, bool value);
void mha__json_put_int(mha__json_writer *w, int64_t value);
void mha__json_put_real(mha__json_writer *w, double value); /* finite */
void mha__json_put_text(mha__json_writer *w, const char *value);
void mha__json_put_bytes(mha__json_writer *w, const char *value, size_t n);
/* Writes a value of a tree; NULL counts as a failed allocation. */
void mha__json_put(mha__json_writer *w, const mha__json *value);
/* Writes an object given as JSON text; error messages name `file`. */
mha_status mha__json_put_json(mha__json_writer *w, const char *file, const char *json, mha_error *err);

/* Ends writing: *text gets the text, with a NUL that *n (may be NULL) does not count; free with mha__free. If `text`
 * is NULL or on failure, the text is freed. An allocation failure names `what`. */
mha_status mha__json_written(mha__json_writer *w, const char *what, char **text, size_t *n, mha_error *err);

/* Applies changes to the object `json`. `changes` contains an object whose members replace the members with the same
 * key, or are appended. Keys of `removed` (ends with NULL; may be NULL) are removed first. Ends `changes`; error
 * messages name `file`. */
mha_status mha__json_changed(const char *file, const char *json, const char *const *removed, mha__json_writer *changes,
                             int indent, char **changed, mha_error *err);

#endif
