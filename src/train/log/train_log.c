/* train_log.c - stores the records of a log in memory. */
#include "base/ctx.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "train/data/grow_array.h"
#include "train/log/train_log_struct.h"
#include <string.h>

/* ---- creation and release ---- */

mha_status mha_train_log_create(mha_ctx *ctx, mha_train_log **out, mha_error *err)
{
    if (!out) return mha__fail(err, MHA_ERR_ARG, "mha_train_log_create: out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__ctx_find(&ctx, err));
    mha_train_log *log = mha__calloc(ctx, 1, sizeof *log);
    if (!log) return mha__no_memory(err, sizeof *log, "the log");
    log->ctx = ctx;
    for (int n = 0; n < MHA__LOG_FILES; n++)
        log->file[n].fd = -1;
    *out = log;
    return MHA_OK;
}

void mha_train_log_free(mha_train_log *log)
{
    if (!log) return;
    for (int n = 0; n < MHA__LOG_FILES; n++)
        mha__log_close(&log->file[n]);
    for (int64_t n = 0; n < log->count; n++)
        mha__free(log->ctx, (void *)log->record[n].samples);
    mha__free(log->ctx, log->record);
    mha__free(log->ctx, log->lines.text);
    mha__free(log->ctx, log);
}

/* ---- accessors ---- */

int64_t mha_train_log_count(const mha_train_log *log)
{
    return log ? log->count : 0;
}

const mha_train_record *mha_train_log_record(const mha_train_log *log, int64_t n)
{
    return n >= 0 && n < mha_train_log_count(log) ? &log->record[n] : NULL;
}

const char *mha_train_log_lines(const mha_train_log *log, size_t *bytes)
{
    if (bytes) *bytes = log ? (size_t)log->lines.bytes : 0;
    return log && log->lines.text ? log->lines.text : "";
}

/* ---- adding records ---- */

static size_t length_of(const char *text, size_t bytes)
{
    return bytes ? bytes : strlen(text);
}

static bool count_bytes(const mha_train_record *r, size_t *bytes)
{
    bool fits = mha__bytes(&r->sample_count, 1, sizeof *r->samples, bytes);
    for (int64_t n = 0; n < r->sample_count && fits; n++) {
        const mha_train_sample *s = &r->samples[n];
        fits = mha__add(*bytes, length_of(s->prompt, s->prompt_bytes) + 1, bytes) &&
               mha__add(*bytes, length_of(s->text, s->text_bytes) + 1, bytes);
    }
    return fits;
}

/* Copies a text to *end, appends a NUL, and advances *end. */
static const char *copy_text(const char *text, size_t bytes, char **end)
{
    char *copy = *end;
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    *end += bytes + 1;
    return copy;
}

/* Replaces the samples of a record with a copy in one allocation: the array, then the texts. */
static mha_status copy_samples(mha_ctx *ctx, mha_train_record *r, mha_error *err)
{
    size_t bytes = SIZE_MAX;
    const mha_train_sample *from = r->samples;
    r->samples = NULL;
    if (!r->sample_count) return MHA_OK;
    mha_train_sample *to = count_bytes(&(mha_train_record){.samples = from, .sample_count = r->sample_count}, &bytes)
                               ? mha__alloc(ctx, bytes)
                               : NULL;
    if (!to) return mha__no_memory(err, bytes, "the samples of the log");
    char *end = (char *)(to + r->sample_count);
    for (int64_t n = 0; n < r->sample_count; n++) {
        to[n].prompt_bytes = length_of(from[n].prompt, from[n].prompt_bytes);
        to[n].text_bytes = length_of(from[n].text, from[n].text_bytes);
        to[n].prompt = copy_text(from[n].prompt, to[n].prompt_bytes, &end);
        to[n].text = copy_text(from[n].text, to[n].text_bytes, &end);
    }
    r->samples = to;
    return MHA_OK;
}

mha_status mha__log_push(mha_train_log *log, const mha_train_record *record, const char *line, size_t bytes,
                         mha_error *err)
{
    mha__log_text *lines = &log->lines;
    mha_train_record r = *record;
    const int64_t more = (int64_t)bytes + 1; /* includes the newline */
    MHA__TRY(mha__grow_array(log->ctx, &lines->text, lines->bytes, more, 1, &lines->room, "the log", err));
    MHA__TRY(mha__grow_array(log->ctx, &log->record, log->count, 1, sizeof *log->record, &log->room, "the log", err));
    MHA__TRY(copy_samples(log->ctx, &r, err));
    log->record[log->count++] = r;
    memcpy(lines->text + lines->bytes, line, bytes);
    lines->bytes += (int64_t)bytes;
    if (line[bytes - 1] != '\n') lines->text[lines->bytes++] = '\n';
    return MHA_OK;
}

static mha_status push_as_json(mha_train_log *log, const mha_train_record *record, mha_error *err)
{
    mha__log_text line = {0};
    mha_status status = mha__log_json(log->ctx, record, &line, err);
    if (status == MHA_OK && line.bytes > MHA__LOG_LINE)
        status =
            mha__fail(err, MHA_ERR_ARG, "mha_train_log_add: the line of a record must have at most %d bytes (got %lld)",
                      MHA__LOG_LINE, (long long)line.bytes);
    if (status == MHA_OK) status = mha__log_push(log, record, line.text, (size_t)line.bytes, err);
    mha__free(log->ctx, line.text);
    return status;
}

mha_status mha_train_log_add(mha_train_log *log, const mha_train_record *record, mha_error *err)
{
    mha_train_record r;
    if (!log) return mha__fail(err, MHA_ERR_ARG, "mha_train_log_add: log must not be NULL");
    MHA__TRY(mha__options_need(&r, sizeof r, record, "mha_train_record", err));
    MHA__TRY(mha__log_check(&r, log->count ? log->record[log->count - 1].step : -1, err));
    const int64_t from = log->lines.bytes;
    MHA__TRY(push_as_json(log, &r, err));
    return mha__log_append(log, from, err);
}
