/* json_write.h - JSON to be written: a text that grows in memory of the context.
 *
 * A failed allocation is remembered: everything after it does nothing, and mha__json_written reports it. What is
 * written is the same in every locale. A byte of a string that is not UTF-8 is written as U+FFFD.
 */
#ifndef MHA_IO_JSON_JSON_WRITE_H
#define MHA_IO_JSON_JSON_WRITE_H

#include "io/json/json.h"

enum { MHA__JSON_COMPACT = 0 }; /* for `indent`: no blanks at all; else the blanks per level */

typedef struct mha__json_writer {
    mha_ctx *ctx;
    char *text;
    size_t n, room;
    int indent, depth;
    bool filled; /* the open container holds something */
    bool keyed;  /* a key waits for its value */
    bool failed;
} mha__json_writer;

/* A zeroed writer with a context and an indent is ready. */
void mha__json_open(mha__json_writer *w, char bracket); /* '{' or '[' */
void mha__json_close(mha__json_writer *w, char bracket);
void mha__json_key(mha__json_writer *w, const char *key);
void mha__json_put_bool(mha__json_writer *w, bool value);
void mha__json_put_int(mha__json_writer *w, int64_t value);
void mha__json_put_real(mha__json_writer *w, double value); /* finite */
void mha__json_put_text(mha__json_writer *w, const char *value);
void mha__json_put_bytes(mha__json_writer *w, const char *value, size_t n);
/* A value of a tree; NULL counts as a failed allocation. */
void mha__json_put(mha__json_writer *w, const mha__json *value);
/* An object that is JSON text already; `file` is named in refusals. */
mha_status mha__json_put_json(mha__json_writer *w, const char *file, const char *json, mha_error *err);

/* Ends the writing: *text gets the text, with a NUL that *n (may be NULL) does not count; freed with mha__free. With
 * NULL for `text`, or on failure, it is freed. `what` is named if there was no memory. */
mha_status mha__json_written(mha__json_writer *w, const char *what, char **text, size_t *n, mha_error *err);

/* The object `json` with changes: `changes` holds an object, whose members take the places of those with the same key,
 * and come last otherwise. Keys of `removed` (NULL ends them, and may stand for none) are taken out before. Ends
 * `changes`; `file` is named in refusals. */
mha_status mha__json_changed(const char *file, const char *json, const char *const *removed, mha__json_writer *changes,
                             int indent, char **changed, mha_error *err);

#endif
