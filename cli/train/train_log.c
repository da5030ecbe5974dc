/* train_log.c - records as lines, and back. */
#include "train/train_log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "input/input.h"
#include "input/text_reader.h"
#include "memory.h"
#include "output.h"
#include "session.h"

enum { DIGITS = 9 };
enum { LONGEST = 16 << 20 }; /* bytes of a line, as in other texts */

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

/* NULL where memory is short; freed by the caller. */
static char *json_line(const train_record *r)
{
    json_t *line = json_object();
    bool whole = true; /* what is put into an object that is not there fails */
    for (int n = 0; n < COLUMNS; n++) {
        const double real = columns[n].whole ? 0 : *(double *)at(r, n);
        if (isnan(real)) continue;
        json_t *value = columns[n].whole ? json_integer(*(int64_t *)at(r, n)) : cli_real(real);
        whole = json_object_set_new(line, columns[n].key, value) == 0 && whole;
    }
    if (r->samples) whole = json_object_set(line, "samples", r->samples) == 0 && whole;
    char *text = whole ? json_dumps(line, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(DIGITS)) : NULL;
    json_decref(line);
    return text;
}

static void put_title(FILE *out)
{
    for (int n = 0; n < COLUMNS; n++)
        fprintf(out, "%s%s", n ? "," : "", columns[n].key);
    fputc('\n', out);
}

/* Records from `from` on. *text is freed by the caller. */
static void format_csv(const train_log *log, int64_t from, bool title, char **text, size_t *bytes)
{
    FILE *out = cli_memory_open(text, bytes);
    if (title) put_title(out);
    for (int64_t n = from; n < log->count; n++)
        put_csv(out, &log->record[n]);
    fclose(out);
}

/* ---- memory ---- */

static bool make_room(train_log *log, size_t bytes)
{
    if (log->count == log->room) {
        const int64_t room = 2 * log->room + 256;
        train_record *grown = realloc(log->record, (size_t)room * sizeof *grown);
        if (!grown) return false;
        log->record = grown;
        log->room = room;
    }
    if (log->bytes + bytes > log->text_room) {
        const size_t room = 2 * (log->bytes + bytes) + 4096;
        char *grown = realloc(log->text, room);
        if (!grown) return false;
        log->text = grown;
        log->text_room = room;
    }
    return true;
}

/* Takes a record and its line, which NULL stands for where there was no memory for it. */
static int push(const cli_session *s, train_log *log, const train_record *record, const char *line, size_t bytes)
{
    if (!line || !make_room(log, bytes + 1)) {
        json_decref(record->samples);
        return no_memory(s);
    }
    log->record[log->count++] = *record;
    memcpy(log->text + log->bytes, line, bytes);
    log->bytes += bytes;
    if (line[bytes - 1] != '\n') log->text[log->bytes++] = '\n';
    return CLI_DONE;
}

/* ---- files ---- */

static bool write_all(int fd, const char *text, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = write(fd, text + done, bytes - done);
        if (n > 0) done += (size_t)n;
        if (n < 0 && errno != EINTR) return false;
    }
    return true;
}

static int append(const cli_session *s, int fd, const char *text, size_t bytes, const char *name)
{
    if (fd < 0 || write_all(fd, text, bytes)) return CLI_DONE;
    return cli_error(s, CLI_FAILED, "%s: cannot write the log: %s", cli_shown(name), strerror(errno));
}

static int append_csv(const cli_session *s, const train_log *log)
{
    char *text;
    size_t bytes;
    format_csv(log, log->count - 1, false, &text, &bytes);
    const int code = append(s, log->file, text, bytes, log->path);
    free(text);
    return code;
}

int train_log_add(const cli_session *s, train_log *log, const train_record *record)
{
    const size_t before = log->bytes;
    char *line = json_line(record);
    int code = push(s, log, record, line, line ? strlen(line) : 0);
    free(line);
    if (code != CLI_DONE) return code;
    const char *text = log->text + before;
    const size_t bytes = log->bytes - before;
    code = append(s, log->folder, text, bytes, s->options.out);
    if (code != CLI_DONE || log->file < 0) return code;
    return log->csv ? append_csv(s, log) : append(s, log->file, text, bytes, log->path);
}

enum { TO_END = O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW };

int train_log_follow(const cli_session *s, train_log *log, const char *path)
{
    if (log->folder >= 0) close(log->folder);
    log->folder = cli_open_at(AT_FDCWD, path, TO_END, 0);
    return log->folder >= 0 ? CLI_DONE : cli_error(s, CLI_FAILED, "%s: %s", cli_shown(path), strerror(errno));
}

/* Leaves in the file what was read from it; a last newline may be missing there. */
static bool cut(const train_log *log, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return false;
    const size_t kept = (size_t)st.st_size < log->bytes ? (size_t)st.st_size : log->bytes;
    return ftruncate(fd, (off_t)kept) == 0 && write_all(fd, log->text + kept, log->bytes - kept);
}

void train_log_go_on(const cli_session *s, train_log *log, const char *path)
{
    log->folder = cli_open_at(AT_FDCWD, path, TO_END, 0);
    if ((log->folder < 0 && errno == ENOENT) || (log->folder >= 0 && cut(log, log->folder))) return;
    cli_say(s, "%s: %s: steps are logged again from the next checkpoint", cli_shown(path), strerror(errno));
    if (log->folder >= 0) close(log->folder);
    log->folder = -1;
}

/* Opens the file in place: a temporary file that a killed run has left would be in the way of the next run. */
static int open_copy(const char *path)
{
    struct stat st;
    const int fd = cli_open_at(AT_FDCWD, path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0) return -1;
    errno = EINVAL; /* what is not a regular file gives no reason */
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) return fd;
    const int reason = errno;
    close(fd);
    errno = reason;
    return -1;
}

/* Does the file begin with the text? A shorter file, such as that of a run that was killed early, is a part of it. */
static bool begins_with(int fd, const char *text, size_t bytes)
{
    char part[4096];
    for (size_t done = 0; done < bytes;) {
        const size_t most = bytes - done < sizeof part ? bytes - done : sizeof part;
        const ssize_t n = read(fd, part, most);
        if (n == 0) return true;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 || memcmp(part, text + done, (size_t)n) != 0) return false;
        done += (size_t)n;
    }
    return true;
}

/* training.json may be a stranger's: that it names a file does not show that the file is a log of this run. */
static int replace_copy(const cli_session *s, const train_log *log, const char *text, size_t bytes)
{
    if (!s->options.force && !begins_with(log->file, text, bytes))
        return cli_usage(s, "--log %s is not a log of this run; --force replaces it", cli_shown(log->path));
    if (ftruncate(log->file, 0) == 0) return append(s, log->file, text, bytes, log->path);
    return cli_error(s, CLI_FAILED, "%s: cannot be the log: %s", cli_shown(log->path), strerror(errno));
}

int train_log_copy(const cli_session *s, train_log *log, const char *path)
{
    char *text = NULL;
    size_t bytes;
    log->path = path;
    log->csv = cli_ends(path, ".csv");
    log->file = open_copy(path);
    if (log->file < 0) return cli_error(s, CLI_FAILED, "%s: cannot be the log: %s", cli_shown(path), strerror(errno));
    if (log->csv) format_csv(log, 0, true, &text, &bytes);
    const int code = replace_copy(s, log, text ? text : log->text, text ? bytes : log->bytes);
    free(text);
    return code;
}

/* ---- going on ---- */

/* False if the line is no record. What adds to its whole numbers can not overflow. */
static bool parse(const char *line, size_t bytes, train_record *r)
{
    const json_int_t most = (json_int_t)1 << 62;
    *r = (train_record){0};
    json_t *json = cli_json_fits(line, bytes) ? json_loadb(line, bytes, JSON_REJECT_DUPLICATES, NULL) : NULL;
    bool fits = json_is_object(json);
    for (int n = 0; fits && n < COLUMNS; n++) {
        const json_t *value = json_object_get(json, columns[n].key);
        if (columns[n].whole) {
            fits = json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) <= most;
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
#define MEND "; repair it or move it away: the run then continues with a log from step %lld"

static int take_line(const cli_session *s, const char *path, const char *line, size_t bytes, int64_t step,
                     train_log *log)
{
    train_record r;
    const int64_t last = log->count ? log->record[log->count - 1].step : -1;
    if (parse(line, bytes, &r) && r.step > last && r.step <= step) return push(s, log, &r, line, bytes);
    json_decref(r.samples);
    return cli_error(s, CLI_REFUSED, "%s: line %lld is not the record of a step" MEND, cli_shown(path),
                     (long long)log->count + 1, (long long)step);
}

/* Returns the next line with its newline, only the first LONGEST bytes of a longer one; NULL at the end of the file or
 * without memory (errno). getline would allocate memory for a line of any length. */
static char *next_line(FILE *file, char **line, size_t *room, size_t *bytes)
{
    int c = 0;
    for (*bytes = 0; c != '\n' && *bytes < LONGEST; (*line)[(*bytes)++] = (char)c) {
        if (*bytes + 1 >= *room) {
            char *grown = realloc(*line, 2 * *room + 4096);
            if (!grown) return NULL;
            *line = grown;
            *room = 2 * *room + 4096;
        }
        c = getc_unlocked(file);
        if (c == EOF) break;
    }
    return *bytes ? *line : NULL;
}

/* Lines up to that of `step`; what stands behind it may be anything. */
static int read_lines(const cli_session *s, const char *path, FILE *file, int64_t step, train_log *log)
{
    char *line = NULL;
    size_t room = 0, bytes;
    int code = CLI_DONE;
    bool missing = true;
    while (code == CLI_DONE && missing && next_line(file, &line, &room, &bytes)) {
        code = take_line(s, path, line, bytes, step, log);
        missing = code != CLI_DONE || log->record[log->count - 1].step < step;
    }
    free(line);
    if (code != CLI_DONE || !missing) return code;
    if (!feof(file))
        return cli_error(s, errno == ENOMEM ? CLI_FAILED : CLI_REFUSED, "%s: %s", cli_shown(path), strerror(errno));
    return cli_error(s, CLI_REFUSED, "%s: the steps up to %lld are missing" MEND, cli_shown(path), (long long)step,
                     (long long)step);
}

int train_log_read(const cli_session *s, const char *path, int64_t step, train_log *log)
{
    int fd;
    const int code = text_reader_open(s, path, &fd);
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
    free(log->text);
}
