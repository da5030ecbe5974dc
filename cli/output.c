/* output.c - writes error messages, JSON, CSV and colors, and the results to stdout. Escaping is in escape.c. */
#include "output.h"

#include "session.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- failures ---- */

static void begin_line(const cli_session *session)
{
    cli_progress_clear();
    fputs(session->ranks ? "mha-mpi" : "mha", stderr);
    if (session->command) fprintf(stderr, " %s", session->command->name);
    fputs(": ", stderr);
}

bool cli_writes(const cli_session *session)
{
    return !session->ranks || session->ranks->rank == 0;
}

static void say(const cli_session *session, const char *format, va_list args)
{
    if (!cli_writes(session)) return;
    begin_line(session);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

/* The error message of this rank, which is also sent to the other ranks. */
static mha_error failure;

static void put_failure(const cli_session *session, const char *message)
{
    begin_line(session);
    /* Messages of the library's cluster functions already begin with a rank. */
    fprintf(stderr, "%s%s\n", strncmp(message, "rank ", 5) == 0 ? "" : session->ranks->label, message);
}

static void say_failure(const cli_session *session, const char *format, va_list args)
{
    if (!session->ranks) {
        say(session, format, args);
        return;
    }
    vsnprintf(failure.message, sizeof failure.message, format, args);
    if (cli_writes(session)) put_failure(session, failure.message);
}

int cli_finish(const cli_session *session, bool everywhere, int code)
{
    mha_error first = failure;
    if (!session->ranks) return code;
    code = session->ranks->finish(session->ranks->user, everywhere, code, &first);
    if (cli_writes(session) && code != CLI_DONE && !failure.message[0] && first.message[0])
        put_failure(session, first.message);
    return code;
}

int cli_usage(const cli_session *session, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_failure(session, format, args);
    va_end(args);
    const char *name = session->command ? session->command->name : NULL;
    if (cli_writes(session)) fprintf(stderr, "Try: mha %s%s--help\n", name ? name : "", name ? " " : "");
    return CLI_USAGE;
}

int cli_error(const cli_session *session, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_failure(session, format, args);
    va_end(args);
    return code;
}

int cli_finite(const cli_session *session, const char *where, const char *what, double value)
{
    if (isfinite(value)) return CLI_DONE;
    return cli_error(session, CLI_REFUSED, "%s%s must be finite (got %g)", where, what,
                     isnan(value) ? (double)NAN : value);
}

void cli_say(const cli_session *session, const char *format, ...)
{
    if (session->options.quiet) return;
    va_list args;
    va_start(args, format);
    say(session, format, args);
    va_end(args);
}

static cli_rewrite *rewriter;

void cli_message_rewrite(cli_rewrite *rewrite)
{
    rewriter = rewrite;
}

static const cli_word *words;

void cli_message_words(const cli_word *list)
{
    words = list;
}

/* Functions and structs of the library whose messages are about a model, a text or an option. */
static const cli_word names[] = {{"mha_generate_options: ", ""},
                                 {"mha_head_data: ", ""},
                                 {"mha_heads_options: ", ""},
                                 {"mha_importance_options: ", ""},
                                 {"mha_model_distill: ", ""},
                                 {"mha_model_input: ", ""},
                                 {"mha_prompt_pair_create: ", ""},
                                 {"mha_prune_options: ", ""},
                                 {"mha_regroup_options: ", ""},
                                 {"mha_trainer_create: ", ""},
                                 {NULL, NULL}};

/* Returns the message with another start if it begins with a word of the list. */
static const char *replace_start(const cli_word *list, const char *message, char text[CLI_MESSAGE])
{
    for (const cli_word *w = list; w && w->field; w++) {
        const size_t n = strlen(w->field);
        if (strncmp(message, w->field, n) != 0) continue;
        snprintf(text, CLI_MESSAGE, "%s%s", w->option, message + n);
        return text;
    }
    return message;
}

const char *cli_message(const char *message, char text[CLI_MESSAGE])
{
    const char *changed = rewriter ? rewriter(message, text) : message;
    if (changed == message) changed = replace_start(words, message, text);
    return changed == message ? replace_start(names, message, text) : changed;
}

static const char *sentence(const mha_error *error)
{
    static char text[CLI_MESSAGE];
    return error->message[0] ? cli_message(error->message, text) : mha_status_text(error->status);
}

/* Returns true if a signal stopped the work. No message is needed then, because the user sent the signal. */
static bool stopped(const mha_error *error)
{
    return error->status == MHA_ERR_CANCELED && cli_signal();
}

int cli_refuse(const cli_session *session, const mha_error *error)
{
    if (stopped(error)) return 128 + cli_signal();
    bool ours = error->status == MHA_ERR_MEMORY || error->status == MHA_ERR_CANCELED;
    return cli_error(session, ours ? CLI_FAILED : CLI_REFUSED, "%s", sentence(error));
}

int cli_fail(const cli_session *session, const mha_error *error)
{
    if (stopped(error)) return 128 + cli_signal();
    int code = error->status == MHA_ERR_ARG ? CLI_USAGE : error->status == MHA_ERR_FORMAT ? CLI_REFUSED : CLI_FAILED;
    return cli_error(session, code, "%s", sentence(error));
}

int cli_reject(const cli_session *session, const mha_error *error)
{
    return error->status == MHA_ERR_ARG ? cli_fail(session, error) : cli_refuse(session, error);
}

/* ---- JSON and CSV ---- */

json_t *cli_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

int cli_put_json(cli_session *session, json_t *value, bool indent)
{
    size_t flags = JSON_REAL_PRECISION(9) | JSON_ENSURE_ASCII | JSON_ENCODE_ANY | (indent ? JSON_INDENT(1) : 0);
    char *text = value ? json_dumps(value, flags) : NULL;
    json_decref(value);
    if (!text) return cli_error(session, CLI_FAILED, "out of memory for the JSON result");
    /* jansson escapes every control character except DEL, which can only occur inside a string. */
    for (const char *p = text; *p; p++) {
        if (*p == 0x7f)
            fputs("\\u007f", session->out);
        else
            fputc(*p, session->out);
    }
    fputc('\n', session->out);
    free(text);
    return CLI_DONE;
}

void cli_put_csv(FILE *out, const char *text)
{
    const char *guard = *text && strchr("=+-@", *text) ? "'" : "";
    if (!strpbrk(text, ",\"\r\n")) {
        fprintf(out, "%s%s", guard, text);
        return;
    }
    fprintf(out, "\"%s", guard);
    for (; *text; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

void cli_next_csv_number(FILE *out, double value)
{
    fputc(',', out);
    if (!isnan(value)) fprintf(out, "%.9g", value);
}

/* ---- color and width ---- */

bool cli_may_color(int fd)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fd) && !(no_color && *no_color) && term && strcmp(term, "dumb") != 0;
}

const char *cli_bold(const cli_session *session)
{
    return session->show_color ? "\033[1m" : "";
}

const char *cli_dim(const cli_session *session)
{
    return session->show_color ? "\033[2m" : "";
}

const char *cli_plain(const cli_session *session)
{
    return session->show_color ? "\033[0m" : "";
}

int cli_columns(int fd)
{
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    const char *columns = getenv("COLUMNS");
    long n = columns ? strtol(columns, NULL, 10) : 0;
    return n >= 20 && n <= 10000 ? (int)n : 80;
}

/* ---- output to stdout ---- */

static bool stdout_closed;

bool cli_stdout_closed(void)
{
    return stdout_closed;
}

int cli_flush(const cli_session *session, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(STDOUT_FILENO, text, bytes);
        stdout_closed |= n < 0 && errno != EINTR;
        if (n < 0 && errno == EPIPE) return CLI_DONE; /* mha ... | head: a closed pipe is not a failure */
        if (n < 0 && errno == EINTR && !cli_signal()) continue;
        if (n < 0 && cli_signal()) return 128 + cli_signal();
        if (n < 0) return cli_error(session, CLI_FAILED, "cannot write the result: %s", strerror(errno));
        text += n;
        bytes -= (size_t)n;
    }
    return CLI_DONE;
}

bool cli_out_is_stdout(const cli_session *session)
{
    return session->options.out && strcmp(session->options.out, "-") == 0;
}

const char *cli_out_name(const cli_session *session)
{
    return cli_out_is_stdout(session) ? "stdout" : cli_shown(session->options.out);
}

bool cli_ends(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

bool cli_out_ends(const cli_session *session, const char *end)
{
    return session->options.out && cli_ends(session->options.out, end);
}
