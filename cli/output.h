/* output.h - everything that the program prints: results on stdout, log lines on stderr, untrusted text escaped. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "command.h"
#include <jansson.h>

/* ---- failures: each prints one line to stderr and returns the exit code ---- */

/* Prints "mha heads: MESSAGE" and where to find help; returns CLI_USAGE. `format` must escape untrusted text with
 * cli_shown. */
int cli_usage(const cli_session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Reports an input that cannot be used; returns CLI_REFUSED, 1 if memory ran out, or 128 + n after signal n. */
int cli_refuse(const cli_session *session, const mha_error *error);
/* Like cli_refuse, but returns CLI_USAGE for MHA_ERR_ARG: options that contradict each other or their inputs, such as
 * --state with the file of another run. */
int cli_reject(const cli_session *session, const mha_error *error);
/* Reports a failed operation; returns 2 for MHA_ERR_ARG (the library rejected a value from the user), 3 for
 * MHA_ERR_FORMAT, 128 + n after signal n, otherwise 1. */
int cli_fail(const cli_session *session, const mha_error *error);
/* Reports any other failure as "mha heads: MESSAGE"; returns `code`. */
int cli_error(const cli_session *session, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Checks a result of a model, such as "the loss": if `value` is not finite, prints a message and returns CLI_REFUSED.
 * `where` is the origin of the text as cli_texts_where returns it. */
int cli_finite(const cli_session *session, const char *where, const char *what, double value);
/* Ends a command that several ranks run (command.h): returns the exit code of the first rank that failed, whose message
 * rank 0 prints. `everywhere`: the command ran on all ranks. With one process, returns `code`. */
int cli_finish(const cli_session *session, bool everywhere, int code);
/* Prints a log line, unless -q is given. */
void cli_say(const cli_session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Words at the start of the library's messages, such as "mha_prune_rule: count must ", and what the user typed instead.
 * They must be too long for the name of a file, with which other messages begin. */
typedef struct cli_word {
    const char *field, *option; /* a list ends with `field` NULL */
} cli_word;
/* Replaces these words in all messages from now on. */
void cli_message_words(const cli_word *words);
/* Passes the library's messages through `rewrite`, which returns `message` or a replacement written to `text`. NULL
 * leaves messages unchanged. */
enum { CLI_MESSAGE = 2048 };
typedef const char *cli_rewrite(const char *message, char text[CLI_MESSAGE]);
void cli_message_rewrite(cli_rewrite *rewrite);
const char *cli_message(const char *message, char text[CLI_MESSAGE]);

/* ---- untrusted text ---- */

/* Returns `text` escaped for a terminal: C0, C1, DEL, bidi controls and invalid UTF-8 as \xNN or \uNNNN, truncated
 * to about 500 bytes. The result is in one of four static buffers, so one printf may use up to four results. */
const char *cli_shown(const char *text);
/* Returns the number of bytes at the start of `text` that are valid UTF-8. */
size_t cli_utf8_bytes(const char *text, size_t bytes);
/* Returns the start of `text`, escaped in the same way, in at most `columns` columns; "..." marks truncation. */
const char *cli_shown_start(const char *text, int columns);
/* Writes a whole string of any length, escaped in the same way, to `out`. */
void cli_put_shown(FILE *out, const char *text, size_t bytes);
/* Writes running text, escaped in the same way except for newlines, tabs, and the joiners inside words and emoji. */
void cli_put_running(FILE *out, const char *text, size_t bytes);
/* Returns the terminal columns that cli_put_shown needs (East Asian wide characters count 2). */
int cli_shown_columns(const char *text, size_t bytes);
/* Writes one CSV cell, quoted if needed; text that a spreadsheet would run as a formula (first character = + - @) is
 * prefixed with an apostrophe. */
void cli_put_csv(FILE *out, const char *text);
/* Writes a comma and a number with 9 digits, the next CSV cell; NaN, an undefined value, is an empty cell. */
void cli_next_csv_number(FILE *out, double value);

/* ---- JSON ---- */

/* Returns a JSON number, or null for NaN and infinity. */
json_t *cli_real(double value);
/* Writes `value` and a newline to session->out, with 9 digits and printable ASCII only; takes ownership of the
 * reference. Returns CLI_DONE, or CLI_FAILED with a message if memory ran out (also if `value` is NULL). */
int cli_put_json(cli_session *session, json_t *value, bool indent);

/* ---- color ---- */

/* Returns true if the stream may be colored: a terminal, NO_COLOR not set, TERM not "dumb". */
bool cli_may_color(int fd);
/* Return the escape sequences for bold, dim and plain text, or empty strings if color is off. */
const char *cli_bold(const cli_session *session);
const char *cli_dim(const cli_session *session);
const char *cli_plain(const cli_session *session);
/* Returns the width of the terminal at fd; without a terminal, COLUMNS or 80. */
int cli_columns(int fd);

/* Writes the finished result, or a part of a streamed result, to stdout. A closed pipe is not a failure (SIGPIPE is
 * ignored). */
int cli_flush(const cli_session *session, const char *text, size_t bytes);
/* Returns true if a write to stdout failed, for example because its reader closed it; the command may then stop. */
bool cli_stdout_closed(void);
/* Returns true if `name`, or the name of -o, ends with `end`. */
bool cli_ends(const char *name, const char *end);
bool cli_out_ends(const cli_session *session, const char *end);
/* Returns true if -o is "-". */
bool cli_out_is_stdout(const cli_session *session);
/* Returns the name of the output for messages. */
const char *cli_out_name(const cli_session *session);

/* ---- output file, option -o (result_file.c) ---- */
/* Returns true if this process writes files: mha, or rank 0 of mha-mpi. On other ranks, the following functions do
 * nothing. */
bool cli_writes(const cli_session *session);
/* Returns CLI_USAGE and prints a message if the file of -o exists without --force, has an empty name, or is stdout
 * ("-") together with --json; CLI_FAILED if the file cannot be written. Call it before long work.
 * cli_check_out_folder is the same check for the folder of a model or tokenizer. */
int cli_check_out(const cli_session *session);
int cli_check_out_folder(const cli_session *session);
/* Checks whether a model or tokenizer can be written to the folder `path`. */
int cli_check_folder(const cli_session *session, const char *path, bool overwrite);
/* Writes `bytes` to the file of -o atomically; replaces an existing file only with --force. Returns an exit code. */
int cli_write_file(const cli_session *session, const void *data, size_t bytes);

#endif
