/* train_log_read.c - reads a log line by line. The file may be damaged, or may not be a log. */
#include "base/ctx.h"
#include "base/size.h"
#include "io/files/input_file.h"
#include "train/data/grow_array.h"
#include "train/log/train_log_struct.h"
#include <stdio.h>
#include <string.h>

/* The state of reading a file line by line. The part of the file in memory is text[0 .. end); the lines before `begin`
 * have been processed. */
typedef struct line_reader {
    mha_ctx *ctx;
    mha__source source;
    size_t at; /* offset of the next byte to read */
    char *text;
    int64_t begin, end, room;
    int64_t number; /* number of the last line read */
} line_reader;

/* Discards the lines that have been processed, and reads the next part of the file. */
static mha_status read_more(line_reader *r, mha_error *err)
{
    const size_t left = r->source.size - r->at, more = left < 65536 ? left : 65536;
    r->end -= r->begin;
    if (r->end) memmove(r->text, r->text + r->begin, (size_t)r->end);
    r->begin = 0;
    MHA__TRY(mha__grow_array(r->ctx, &r->text, r->end, (int64_t)more + 1, 1, &r->room, "a line of the log", err));
    MHA__TRY(mha__source_read(&r->source, r->at, r->text + r->end, more, err));
    r->at += more;
    r->end += (int64_t)more;
    return MHA_OK;
}

/* Returns the next line, including its newline; sets *bytes to 0 at the end of the file. A line of more than
 * MHA__LOG_LINE bytes is divided into parts, so that parsing fails. */
static mha_status next_line(line_reader *r, char **line, size_t *bytes, mha_error *err)
{
    const char *newline = NULL;
    for (int64_t searched = 0;;) {
        const int64_t n = r->end - r->begin;
        if (n > searched) newline = memchr(r->text + r->begin + searched, '\n', (size_t)(n - searched));
        if (newline || n >= MHA__LOG_LINE || r->at == r->source.size) break;
        searched = n;
        MHA__TRY(read_more(r, err));
    }
    *line = r->text ? r->text + r->begin : NULL;
    const int64_t n = newline ? newline + 1 - *line : r->end - r->begin;
    *bytes = (size_t)mha__min64(n, MHA__LOG_LINE);
    r->begin += (int64_t)*bytes;
    r->number++;
    return MHA_OK;
}

/* Parses a line in place: a NUL temporarily replaces the byte after the line. */
static mha_status parse(line_reader *r, char *line, size_t bytes, int64_t first, int64_t last, mha__log_parsed *parsed,
                        mha_error *err)
{
    char where[32];
    mha_error why = {0};
    mha__quoted q;
    const char after = line[bytes];
    snprintf(where, sizeof where, "line %lld", (long long)r->number);
    line[bytes] = '\0';
    const mha_status status = mha__log_parse(r->ctx, where, line, bytes, first, last, parsed, &why);
    line[bytes] = after;
    if (status == MHA_OK) return MHA_OK;
    mha__quote(&q, r->source.name, strlen(r->source.name));
    if (status != MHA_ERR_FORMAT || parsed->tree) return mha__fail(err, status, "%s: %s", q.text, why.message);
    return mha__fail(err, status, "%s: %s must be the record of a step", q.text, where);
}

static mha_status push_line(mha_train_log *log, line_reader *r, char *line, size_t bytes, int64_t last, mha_error *err)
{
    mha__log_parsed parsed;
    const int64_t first = log->count ? log->record[log->count - 1].step + 1 : 0;
    mha_status status = parse(r, line, bytes, first, last, &parsed, err);
    if (status == MHA_OK) status = mha__log_push(log, &parsed.record, line, bytes, err);
    mha__log_parsed_free(r->ctx, &parsed);
    return status;
}

/* Reads the lines up to the record of `step`. The content of the file after that record is ignored. */
static mha_status read_lines(mha_train_log *log, line_reader *r, int64_t step, mha_error *err)
{
    const int64_t last = step < 0 ? INT64_C(1) << 62 : step;
    char *line;
    size_t bytes;
    mha__quoted q;
    do {
        MHA__TRY(next_line(r, &line, &bytes, err));
        if (bytes) MHA__TRY(push_line(log, r, line, bytes, last, err));
    } while (bytes && log->record[log->count - 1].step < last);
    if (bytes || step < 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: must contain the records up to step %lld (the log ends earlier)",
                     mha__quote(&q, r->source.name, strlen(r->source.name)), (long long)step);
}

static mha_status read_file(mha_train_log *log, const char *path, int64_t step, mha_error *err)
{
    line_reader r = {.ctx = log->ctx};
    MHA__TRY(mha__source_open(&r.source, NULL, path, err));
    const mha_status status = read_lines(log, &r, step, err);
    mha__free(log->ctx, r.text);
    mha__source_close(&r.source);
    return status;
}

mha_status mha_train_log_read(mha_ctx *ctx, const char *path, int64_t step, mha_train_log **out, mha_error *err)
{
    if (out) *out = NULL;
    if (!out || !path)
        return mha__fail(err, MHA_ERR_ARG, "mha_train_log_read: %s must not be NULL", path ? "out" : "path");
    if (step < -1)
        return mha__fail(err, MHA_ERR_ARG, "mha_train_log_read: step must be at least -1 (got %lld)", (long long)step);
    mha_train_log *log;
    MHA__TRY(mha_train_log_create(ctx, &log, err));
    const mha_status status = read_file(log, path, step, err);
    if (status == MHA_OK)
        *out = log;
    else
        mha_train_log_free(log);
    return status;
}
