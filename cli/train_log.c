/* train_log.c - records as lines, and back. */
#include "train_log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "input.h"
#include "output.h"

enum { DIGITS = 9 };

/* The numbers of a record, in the order of the lines. */
static const struct column {
    const char *key;
    size_t field;
    bool whole;
} columns[] = {
    {"step", offsetof(train_record, step), true},       {"loss", offsetof(train_record, loss), false},
    {"rate", offsetof(train_record, rate), false},      {"norm", offsetof(train_record, norm), false},
    {"tokens", offsetof(train_record, tokens), true},   {"seconds", offsetof(train_record, seconds), false},
    {"eval_loss", offsetof(train_record, eval), false}, {"open_heads", offsetof(train_record, open), false},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void *at(const train_record *r, int n)
{
    return (char *)r + columns[n].field;
}

static int no_memory(const cli_session *s)
{
    return cli_error(s, CLI_FAILED, "out of memory for the log");
}

/* ---- lines ---- */

static void put_csv(FILE *out, const train_record *r)
{
    for (int n = 0; n < COLUMNS; n++) {
        if (n) fputc(',', out);
        if (columns[n].whole)
            fprintf(out, "%lld", (long long)*(int64_t *)at(r, n));
        else if (!isnan(*(double *)at(r, n)))
            fprintf(out, "%.*g", DIGITS, *(double *)at(r, n));
    }
    fputc('\n', out);
}

static void put_json(FILE *out, const train_record *r)
{
    json_t *line = json_object();
    for (int n = 0; line && n < COLUMNS; n++) {
        const double real = columns[n].whole ? 0 : *(double *)at(r, n);
        if (isnan(real)) continue;
        json_object_set_new(line, columns[n].key,
                            columns[n].whole ? json_integer(*(int64_t *)at(r, n)) : cli_real(real));
    }
    if (line && r->samples) json_object_set(line, "samples", r->samples);
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(DIGITS)) : NULL;
    fprintf(out, "%s\n", text ? text : "");
    free(text);
    json_decref(line);
}

static void put_title(FILE *out)
{
    for (int n = 0; n < COLUMNS; n++)
        fprintf(out, "%s%s", n ? "," : "", columns[n].key);
    fputc('\n', out);
}

/* Records from `from` on as text; a whole file of CSV has a title. */
static int format(const cli_session *s, const train_log *log, int64_t from, bool csv, bool whole, char **text,
                  size_t *bytes)
{
    *text = NULL;
    FILE *out = open_memstream(text, bytes);
    if (!out) return no_memory(s);
    if (csv && whole) put_title(out);
    for (int64_t n = from; n < log->count; n++)
        (csv ? put_csv : put_json)(out, &log->record[n]);
    const bool good = !ferror(out);
    if (fclose(out) == 0 && good) return CLI_DONE;
    free(*text);
    *text = NULL;
    return no_memory(s);
}

int train_log_text(const cli_session *s, const train_log *log, bool csv, char **text, size_t *bytes)
{
    return format(s, log, 0, csv, true, text, bytes);
}

/* ---- files ---- */

static int append(const cli_session *s, const train_log *log, int fd, bool csv, const char *name)
{
    char *text;
    size_t bytes;
    int code = fd < 0 ? CLI_DONE : format(s, log, log->count - 1, csv, false, &text, &bytes);
    if (fd < 0 || code != CLI_DONE) return code;
    for (size_t done = 0; done < bytes && code == CLI_DONE;) {
        const ssize_t n = write(fd, text + done, bytes - done);
        if (n > 0) done += (size_t)n;
        if (n < 0 && errno != EINTR)
            code = cli_error(s, CLI_FAILED, "%s: cannot write the log: %s", cli_shown(name), strerror(errno));
    }
    free(text);
    return code;
}

static int push(const cli_session *s, train_log *log, const train_record *record)
{
    if (log->count == log->room) {
        const int64_t room = 2 * log->room + 256;
        train_record *grown = realloc(log->record, (size_t)room * sizeof *grown);
        if (!grown) {
            json_decref(record->samples);
            return no_memory(s);
        }
        log->record = grown;
        log->room = room;
    }
    log->record[log->count++] = *record;
    return CLI_DONE;
}

int train_log_add(const cli_session *s, train_log *log, const train_record *record)
{
    int code = push(s, log, record);
    if (code == CLI_DONE) code = append(s, log, log->folder, false, s->options.out);
    return code == CLI_DONE ? append(s, log, log->file, log->csv, log->path) : code;
}

static int open_end(const cli_session *s, const char *path, int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    return *fd >= 0 ? CLI_DONE : cli_error(s, CLI_FAILED, "%s: %s", cli_shown(path), strerror(errno));
}

int train_log_follow(const cli_session *s, train_log *log, const char *path)
{
    return open_end(s, path, &log->folder);
}

static int write_all(const cli_session *s, const train_log *log, const char *path, bool csv, bool overwrite, int *fd)
{
    char *text;
    size_t bytes;
    mha_error error = {0};
    int code = format(s, log, 0, csv, true, &text, &bytes);
    if (code != CLI_DONE) return code;
    if (mha_file_write(path, text, bytes, overwrite, &error) != MHA_OK) code = cli_fail(s, &error);
    free(text);
    return code == CLI_DONE ? open_end(s, path, fd) : code;
}

int train_log_renew(const cli_session *s, train_log *log, const char *path)
{
    return write_all(s, log, path, false, true, &log->folder);
}

int train_log_copy(const cli_session *s, train_log *log, const char *path, bool overwrite)
{
    const size_t n = strlen(path);
    log->path = path;
    log->csv = n > 4 && strcmp(path + n - 4, ".csv") == 0;
    return write_all(s, log, path, log->csv, overwrite, &log->file);
}

/* ---- going on ---- */

/* False if the line is no record. */
static bool parse(const char *line, train_record *r)
{
    *r = (train_record){0};
    json_t *json = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    bool fits = json_is_object(json);
    for (int n = 0; fits && n < COLUMNS; n++) {
        const json_t *value = json_object_get(json, columns[n].key);
        if (columns[n].whole) {
            fits = json_is_integer(value) && json_integer_value(value) >= 0;
            *(int64_t *)at(r, n) = json_integer_value(value);
        } else {
            fits = !value || json_is_number(value);
            *(double *)at(r, n) = value ? json_number_value(value) : NAN;
        }
    }
    fits = fits && r->seconds >= 0;
    if (fits && json_is_array(json_object_get(json, "samples")))
        r->samples = json_incref(json_object_get(json, "samples"));
    json_decref(json);
    return fits;
}

/* What computes is not in the log, so nothing but the curve is lost. */
#define MEND "; put it in order, or move it away: the training then goes on with a log from step %lld on"

/* Lines up to that of `step`; what stands behind it may be anything. */
static int read_lines(const cli_session *s, const char *path, FILE *file, int64_t step, train_log *log)
{
    char *line = NULL;
    size_t room = 0;
    int code = CLI_DONE;
    int64_t last = -1;
    while (code == CLI_DONE && last < step && getline(&line, &room, file) > 0) {
        train_record r;
        const bool fits = parse(line, &r) && r.step > last && r.step <= step;
        if (!fits) json_decref(r.samples);
        if (!fits)
            code = cli_error(s, CLI_REFUSED, "%s: line %lld is no record of a step" MEND, cli_shown(path),
                             (long long)log->count + 1, (long long)step);
        else
            code = push(s, log, &r);
        if (code == CLI_DONE) last = r.step;
    }
    free(line);
    if (code == CLI_DONE && last < step)
        code = cli_error(s, CLI_REFUSED, "%s: the steps to %lld are not in it" MEND, cli_shown(path), (long long)step,
                         (long long)step);
    return code;
}

int train_log_read(const cli_session *s, const char *path, int64_t step, train_log *log)
{
    int fd;
    const int code = cli_texts_open(s, path, &fd);
    FILE *file = code == CLI_DONE ? fdopen(fd, "r") : NULL;
    if (code != CLI_DONE) return code;
    if (!file) {
        close(fd);
        return no_memory(s);
    }
    const int read = read_lines(s, path, file, step, log);
    fclose(file);
    return read;
}

/* ---- life ---- */

void train_log_begin(train_log *log)
{
    *log = (train_log){.folder = -1, .file = -1};
}

void train_log_free(train_log *log)
{
    if (log->folder >= 0) close(log->folder);
    if (log->file >= 0) close(log->file);
    for (int64_t n = 0; n < log->count; n++)
        json_decref(log->record[n].samples);
    free(log->record);
}
