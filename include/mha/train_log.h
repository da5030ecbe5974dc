/* train_log.h - the log of a training run: one record per step, in memory and appended to files.
 *
 *     mha_train_log *log;
 *     mha_train_log_create(ctx, &log, &err);                                      new run; for a resumed run, instead:
 *     mha_train_log_read(ctx, "run/training.jsonl", steps_taken, &log, &err);
 *     mha_train_log_write_to(log, "loss.csv", 0, &err);
 *     ...
 *     const mha_train_record record = {.size = sizeof record, .step = report.step, .tokens = tokens,
 *                                      .seconds = seconds, .loss = report.loss, .rate = report.rate,
 *                                      .norm = report.norm, .eval_loss = NAN, .open_heads = NAN};
 *     mha_train_log_add(log, &record, &err);                                      after each step
 *     size_t bytes;
 *     const char *lines = mha_train_log_lines(log, &bytes);                       for mha_train_store_save
 *     mha_train_log_free(log);
 *
 * A file is written as JSON lines, one object per record, or, if its name ends in .csv, as CSV with a header line:
 *
 *     {"step":2,"loss":5.43,"rate":0.001,"norm":1.25,"tokens":128,"seconds":0.5,"eval_loss":5.6}
 *
 * Floating-point values are written with 9 significant digits. A value that was not measured is absent, or empty in
 * CSV. `mha train` uses these functions. Not thread-safe. */
#ifndef MHA_TRAIN_LOG_H
#define MHA_TRAIN_LOG_H

#include "mha/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A text that the model generated, in UTF-8; invalid bytes are written as U+FFFD. */
typedef struct mha_train_sample {
    const char *prompt, *text;
    size_t prompt_bytes, text_bytes; /* lengths of `prompt` and `text`; 0 = up to the NUL */
} mha_train_sample;

/* The record of a step. In floating-point fields, NaN means not measured. */
typedef struct mha_train_record {
    size_t size;
    int64_t step;                    /* optimizer steps taken, 0 .. 2^62; 0 = before the first step */
    int64_t tokens;                  /* tokens read since the run began, 0 .. 2^62 */
    double seconds;                  /* time since the run began, including the time before a resumption; >= 0 */
    double loss, rate, norm;         /* mean loss, learning rate and gradient norm, as in mha_train_report */
    double eval_loss;                /* mean loss on held-out data */
    double open_heads;               /* expected number of heads with an open gate */
    const mha_train_sample *samples; /* [sample_count]; JSON lines only */
    int64_t sample_count;
} mha_train_record;

typedef struct mha_train_log mha_train_log;

/* Creates an empty log. `ctx` must outlive it. Errors: MHA_ERR_ARG, MHA_ERR_MEMORY. */
MHA_API mha_status mha_train_log_create(mha_ctx *ctx, mha_train_log **out, mha_error *err);

/* Creates a log from a file of JSON lines. With `step` >= 0, reads up to and including the record of that step; later
 * lines, which a run wrote after its last checkpoint, may be damaged. With `step` -1, reads all lines. Unknown keys are
 * ignored. Only a regular file is opened, and memory grows with the bytes read; a line may be at most 8 MiB long.
 * Errors: MHA_ERR_FORMAT naming the line, and the key and value if one is out of range, for a line that is not a
 * record, steps that do not increase, and a file that ends before `step`; MHA_ERR_IO; MHA_ERR_ARG; MHA_ERR_MEMORY. */
MHA_API mha_status mha_train_log_read(mha_ctx *ctx, const char *path, int64_t step, mha_train_log **out,
                                      mha_error *err);

/* Closes the files and frees the log. */
MHA_API void mha_train_log_free(mha_train_log *log);

/* Returns the number of records; 0 for NULL. */
MHA_API int64_t mha_train_log_count(const mha_train_log *log);
/* Returns record n, 0 .. count - 1, in ascending order of steps; NULL if out of range. Valid until the next
 * mha_train_log_add. Texts of samples end with a NUL that their lengths do not count. */
MHA_API const mha_train_record *mha_train_log_record(const mha_train_log *log, int64_t n);
/* Returns all records as JSON lines, *bytes long and without a NUL at the end; "" if there are none, never NULL.
 * Lines that were read are unchanged. Valid until the next mha_train_log_add. */
MHA_API const char *mha_train_log_lines(const mha_train_log *log, size_t *bytes);

/* Appends a record in memory, then to the files of mha_train_log_write_to. Errors: MHA_ERR_ARG, naming the field, for a
 * value out of range, a step that is not greater than the last one, and samples of more than 8 MiB; MHA_ERR_MEMORY. In
 * these cases nothing is appended. MHA_ERR_IO if a file cannot be written; the record is then in memory, but not in
 * that file. */
MHA_API mha_status mha_train_log_add(mha_train_log *log, const mha_train_record *record, mha_error *err);

/* Writes the records to `path`, now and as they are added. The content of an existing file is kept if it is the
 * beginning of this log; later records, which an interrupted run leaves behind, are removed. Any other file is replaced
 * with `overwrite`, and is MHA_ERR_ARG without it. A log writes to at most two files. A path that it already writes to
 * is opened again. Call the function again after another file was renamed to this path (mha_train_store_save). Only
 * regular files are opened, never through a symbolic link at the last component. Errors: MHA_ERR_ARG; MHA_ERR_IO;
 * MHA_ERR_MEMORY. After an error the log no longer writes to `path`. A file that the log created is removed when it is
 * closed without a record. */
MHA_API mha_status mha_train_log_write_to(mha_train_log *log, const char *path, int overwrite, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
