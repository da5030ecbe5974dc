/* train_log_lines.c - writes a record as a line of JSON or CSV, and parses a line of JSON. */
#include "base/ctx.h"
#include "base/size.h"
#include "io/json/json_number.h"
#include "io/json/json_write.h"
#include "train/data/grow_array.h"
#include "train/log/train_log_struct.h"
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { DIGITS = 9 };                         /* significant digits of real numbers */
static const int64_t MAX = INT64_C(1) << 62; /* maximum of an integer field, so that a sum of two cannot overflow */

/* The numeric fields of a record, in the order of a line. */
static const struct column {
    const char *key;
    size_t field;
    mha__need need;
    bool whole;
    double min; /* smallest valid value of a real-valued column */
} columns[] = {
    {"step", offsetof(mha_train_record, step), MHA__REQUIRED, true, 0},
    {"loss", offsetof(mha_train_record, loss), MHA__OPTIONAL, false, -DBL_MAX},
    {"rate", offsetof(mha_train_record, rate), MHA__OPTIONAL, false, -DBL_MAX},
    {"norm", offsetof(mha_train_record, norm), MHA__OPTIONAL, false, -DBL_MAX},
    {"tokens", offsetof(mha_train_record, tokens), MHA__REQUIRED, true, 0},
    {"seconds", offsetof(mha_train_record, seconds), MHA__REQUIRED, false, 0},
    {"eval_loss", offsetof(mha_train_record, eval_loss), MHA__OPTIONAL, false, -DBL_MAX},
    {"open_heads", offsetof(mha_train_record, open_heads), MHA__OPTIONAL, false, -DBL_MAX},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static int64_t whole_of(const mha_train_record *r, int n)
{
    return *(const int64_t *)((const char *)r + columns[n].field);
}

static double real_of(const mha_train_record *r, int n)
{
    return *(const double *)((const char *)r + columns[n].field);
}

/* ---- checks of a record ---- */

#define ADD "mha_train_log_add: "

static mha_status check_whole(const mha_train_record *r, int n, int64_t first, mha_error *err)
{
    const int64_t value = whole_of(r, n);
    if (value >= first && value <= MAX) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, ADD "%s must be an integer from %lld to %lld (got %lld)", columns[n].key,
                     (long long)first, (long long)MAX, (long long)value);
}

static mha_status check_real(const mha_train_record *r, int n, mha_error *err)
{
    const struct column *c = &columns[n];
    const double value = real_of(r, n);
    const bool absent = isnan(value) && c->need == MHA__OPTIONAL;
    if (absent || (isfinite(value) && value >= c->min)) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, ADD "%s must be %s (got %g)", c->key,
                     c->need ? "a finite number of at least 0" : "finite or NaN", value);
}

static mha_status check_samples(const mha_train_record *r, mha_error *err)
{
    if (r->sample_count < 0 || (r->sample_count && !r->samples))
        return mha__fail(err, MHA_ERR_ARG, ADD "samples must be an array of sample_count elements (got %s, %lld)",
                         r->samples ? "an array" : "NULL", (long long)r->sample_count);
    for (int64_t n = 0; n < r->sample_count; n++)
        if (!r->samples[n].prompt || !r->samples[n].text)
            return mha__fail(err, MHA_ERR_ARG, ADD "samples[%lld].%s must not be NULL", (long long)n,
                             r->samples[n].prompt ? "text" : "prompt");
    return MHA_OK;
}

mha_status mha__log_check(const mha_train_record *record, int64_t last, mha_error *err)
{
    for (int n = 0; n < COLUMNS; n++)
        MHA__TRY(columns[n].whole ? check_whole(record, n, n == 0 ? last + 1 : 0, err) : check_real(record, n, err));
    return check_samples(record, err);
}

/* ---- writing ---- */

static mha_status put(mha_ctx *ctx, mha__log_text *to, const char *text, size_t bytes, mha_error *err)
{
    MHA__TRY(mha__grow_array(ctx, &to->text, to->bytes, (int64_t)bytes, 1, &to->room, "the log", err));
    memcpy(to->text + to->bytes, text, bytes);
    to->bytes += (int64_t)bytes;
    return MHA_OK;
}

static void put_text(mha__json_writer *w, const char *key, const char *text, size_t bytes)
{
    mha__json_key(w, key);
    mha__json_put_bytes(w, text, bytes ? bytes : strlen(text));
}

static void put_samples(mha__json_writer *w, const mha_train_record *r)
{
    mha__json_key(w, "samples");
    mha__json_open(w, '[');
    for (int64_t n = 0; n < r->sample_count; n++) {
        const mha_train_sample *sample = &r->samples[n];
        mha__json_open(w, '{');
        put_text(w, "prompt", sample->prompt, sample->prompt_bytes);
        put_text(w, "text", sample->text, sample->text_bytes);
        mha__json_close(w, '}');
    }
    mha__json_close(w, ']');
}

mha_status mha__log_json(mha_ctx *ctx, const mha_train_record *r, mha__log_text *to, mha_error *err)
{
    mha__json_writer w = {.ctx = ctx, .digits = DIGITS};
    char *line;
    size_t bytes;
    mha__json_open(&w, '{');
    for (int n = 0; n < COLUMNS; n++) {
        if (!columns[n].whole && isnan(real_of(r, n))) continue;
        mha__json_key(&w, columns[n].key);
        if (columns[n].whole)
            mha__json_put_int(&w, whole_of(r, n));
        else
            mha__json_put_real(&w, real_of(r, n));
    }
    if (r->sample_count) put_samples(&w, r);
    mha__json_close(&w, '}');
    MHA__TRY(mha__json_written(&w, "a line of the log", &line, &bytes, err));
    line[bytes] = '\n'; /* replaces the NUL */
    const mha_status status = put(ctx, to, line, bytes + 1, err);
    mha__free(ctx, line);
    return status;
}

static mha_status put_title(const mha_train_log *log, mha__log_text *to, mha_error *err)
{
    for (int n = 0; n < COLUMNS; n++) {
        MHA__TRY(put(log->ctx, to, columns[n].key, strlen(columns[n].key), err));
        MHA__TRY(put(log->ctx, to, n + 1 < COLUMNS ? "," : "\n", 1, err));
    }
    return MHA_OK;
}

mha_status mha__log_csv(const mha_train_log *log, int64_t from, bool title, mha__log_text *to, mha_error *err)
{
    if (title) MHA__TRY(put_title(log, to, err));
    for (int64_t i = from; i < log->count; i++)
        for (int n = 0; n < COLUMNS; n++) {
            const mha_train_record *r = &log->record[i];
            char value[MHA__JSON_REAL_BYTES] = "";
            if (columns[n].whole)
                snprintf(value, sizeof value, "%lld", (long long)whole_of(r, n));
            else if (!isnan(real_of(r, n)))
                mha__json_real_text(real_of(r, n), DIGITS, value);
            MHA__TRY(put(log->ctx, to, value, strlen(value), err));
            MHA__TRY(put(log->ctx, to, n + 1 < COLUMNS ? "," : "\n", 1, err));
        }
    return MHA_OK;
}

/* ---- parsing ---- */

static mha_status take_numbers(const mha__json_obj *line, int64_t first, int64_t last, mha_train_record *r,
                               mha_error *err)
{
    for (int n = 0; n < COLUMNS; n++) {
        const struct column *c = &columns[n];
        void *to = (char *)r + c->field;
        double real = NAN;
        if (c->whole)
            MHA__TRY(mha__json_int(line, c->key, c->need, n ? 0 : first, n ? MAX : last, to, err));
        else
            MHA__TRY(mha__json_number(line, c->key, c->need, c->min, DBL_MAX, &real, err));
        if (!c->whole) memcpy(to, &real, sizeof real);
    }
    return MHA_OK;
}

static mha_status take_sample(const mha__json_obj *line, const mha__json_step *at, mha_train_sample *sample,
                              mha_error *err)
{
    const mha__json *prompt = mha__json_get(at->value, "prompt"), *text = mha__json_get(at->value, "text");
    *sample = (mha_train_sample){.prompt = mha__json_as_text(prompt),
                                 .text = mha__json_as_text(text),
                                 .prompt_bytes = mha__json_bytes(prompt),
                                 .text_bytes = mha__json_bytes(text)};
    if (sample->prompt && sample->text) return MHA_OK;
    return mha__json_refuse_item(line, "samples", at->index, "{\"prompt\": string, \"text\": string}", err);
}

static mha_status take_samples(mha_ctx *ctx, const mha__json_obj *line, mha__log_parsed *parsed, mha_error *err)
{
    const mha__json *list = NULL;
    MHA__TRY(mha__json_array(line, "samples", MHA__OPTIONAL, &list, err));
    const size_t count = mha__json_size(list);
    if (!count) return MHA_OK;
    parsed->samples = mha__calloc(ctx, count, sizeof *parsed->samples);
    if (!parsed->samples) return mha__no_memory(err, count * sizeof *parsed->samples, "the samples of the log");
    for (mha__json_step i = {0}; mha__json_each(list, &i);)
        MHA__TRY(take_sample(line, &i, &parsed->samples[i.index], err));
    parsed->record.samples = parsed->samples;
    parsed->record.sample_count = (int64_t)count;
    return MHA_OK;
}

mha_status mha__log_parse(mha_ctx *ctx, const char *where, const char *line, size_t bytes, int64_t first, int64_t last,
                          mha__log_parsed *parsed, mha_error *err)
{
    *parsed = (mha__log_parsed){.record = {.size = sizeof parsed->record}};
    MHA__TRY(mha__json_parse(ctx, where, line, bytes, 0, &parsed->tree, err));
    const mha__json_obj object = {.json = parsed->tree, .file = where};
    MHA__TRY(take_numbers(&object, first, last, &parsed->record, err));
    return take_samples(ctx, &object, parsed, err);
}

void mha__log_parsed_free(mha_ctx *ctx, mha__log_parsed *parsed)
{
    mha__free(ctx, parsed->samples);
    mha__json_free(parsed->tree);
}
