/* train_log_struct.h - the records of a log in memory, and the files that they are appended to. */
#ifndef MHA_TRAIN_LOG_TRAIN_LOG_STRUCT_H
#define MHA_TRAIN_LOG_TRAIN_LOG_STRUCT_H

#include "base/error.h"
#include "io/json/json.h"
#include "mha/train_log.h"
#include <limits.h>
#include <stdbool.h>

enum { MHA__LOG_LINE = 8 << 20, MHA__LOG_FILES = 2 }; /* maximum bytes per line, and files per log */

/* A growing text. Free `text` with mha__free. */
typedef struct mha__log_text {
    char *text;
    int64_t bytes, room;
} mha__log_text;

typedef struct mha__log_file {
    int fd; /* -1 = not open */
    bool csv;
    bool created, filled; /* the log created the file; the file has a record */
    int64_t size;         /* bytes of the header and the complete records */
    char path[PATH_MAX];
} mha__log_file;

struct mha_train_log {
    mha_ctx *ctx;
    mha_train_record *record; /* [count]; each record owns its samples */
    int64_t count, room;
    mha__log_text lines; /* all records as JSON lines */
    mha__log_file file[MHA__LOG_FILES];
};

/* Appends a record and its line, and copies its samples. A missing newline is added. Errors: MHA_ERR_MEMORY; the log is
 * then unchanged. */
mha_status mha__log_push(mha_train_log *log, const mha_train_record *record, const char *line, size_t bytes,
                         mha_error *err);

/* ---- lines (train_log_lines.c) ---- */

/* Checks a record from a caller; its step must be above `last`. */
mha_status mha__log_check(const mha_train_record *record, int64_t last, mha_error *err);
/* mha__log_json appends a record as a JSON line. mha__log_csv appends the records `from` .. count - 1 as CSV lines,
 * after a header line if `title` is set. */
mha_status mha__log_json(mha_ctx *ctx, const mha_train_record *record, mha__log_text *to, mha_error *err);
mha_status mha__log_csv(const mha_train_log *log, int64_t from, bool title, mha__log_text *to, mha_error *err);

/* A parsed line of a log file. `tree` owns the texts of its samples. */
typedef struct mha__log_parsed {
    mha_train_record record;
    mha_train_sample *samples;
    const mha__json *tree;
} mha__log_parsed;

/* Parses line[0 .. bytes) as the record of a step in `first` .. `last`. The line must be followed by a NUL. Error
 * messages begin with `where`. The result must be freed even after a failure; its tree is NULL if the line is not
 * JSON. */
mha_status mha__log_parse(mha_ctx *ctx, const char *where, const char *line, size_t bytes, int64_t first, int64_t last,
                          mha__log_parsed *parsed, mha_error *err);
void mha__log_parsed_free(mha_ctx *ctx, mha__log_parsed *parsed);

/* ---- files (train_log_files.c) ---- */

/* Appends the last record, whose JSON line begins at `from`, to all files. */
mha_status mha__log_append(mha_train_log *log, int64_t from, mha_error *err);
/* Closes a file, and removes it if the log created it and it has no record. Does nothing if it is not open. */
void mha__log_close(mha__log_file *file);

#endif
