/* train_log.h - the log of a training: a record for each step, in memory and, as soon as it is taken, in files.
 *
 * The folder of a checkpoint holds the log up to its step, as JSON lines: {step, loss, rate, norm, tokens, seconds},
 * with gates open_heads, where it was measured eval_loss, and samples: [{prompt, text}].
 * Steps that come after the checkpoint are appended there; who goes on from it cuts them off.
 */
#ifndef CLI_TRAIN_TRAIN_LOG_H
#define CLI_TRAIN_TRAIN_LOG_H

#include <jansson.h>

#include "command.h"

typedef struct train_record {
    int64_t step, tokens;                   /* read since training began */
    double loss, rate, norm, seconds, eval; /* NaN: not measured */
    double open;                            /* heads expected to be open; NaN without gates */
    json_t *samples;                        /* [{prompt, text}]; NULL: none. The log's, once it is in it */
} train_record;

typedef struct train_log {
    train_record *record; /* [count] */
    int64_t count, room;
    char *text; /* the records as lines, as they stand in the folder; not terminated */
    size_t bytes, text_room;
    int folder, file; /* descriptors to append to; -1 = none */
    bool csv;         /* of `file` */
    const char *path; /* of `file`; its owner's */
} train_log;

void train_log_begin(train_log *log);
/* The log of a checkpoint, up to the record of `step`. Returns an exit code, as the others. */
int train_log_read(const cli_session *s, const char *path, int64_t step, train_log *log);
/* Takes a record, and appends it to the files. */
int train_log_add(const cli_session *s, train_log *log, const train_record *record);
/* Appends to `path` from now on, the file in the folder; one that is open is closed. */
int train_log_follow(const cli_session *s, train_log *log, const char *path);
/* The same for the file that the log was read from, which is cut off behind that. One that is not there or can not be
 * written stays so, until a checkpoint takes its place. */
void train_log_go_on(const cli_session *s, train_log *log, const char *path);
/* Another file, .jsonl or .csv: gets what is in the log now, and what comes. Without --force, a file that exists must
 * begin with the records of this log. `path` must stay. */
int train_log_copy(const cli_session *s, train_log *log, const char *path);
void train_log_free(train_log *log);

#endif
