/* output.h - everything that the program shows: results on stdout, talk on stderr, foreign text made harmless. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <jansson.h>

#include "command.h"

/* ---- failures: each prints one line to stderr and returns the exit code ---- */

/* "mha heads: SENTENCE", and where to find help: exit 2. `format` must escape foreign text with cli_shown. */
int cli_usage(const cli_session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* An input could not be used: 3, or 1 when only memory was short, or 128 + n after a signal. */
int cli_refuse(const cli_session *session, const mha_error *error);
/* Work failed: 2 for MHA_ERR_ARG (the user's values reached the library), 3 for MHA_ERR_FORMAT, 128 + n, else 1. */
int cli_fail(const cli_session *session, const mha_error *error);
/* Any other failure: "mha heads: SENTENCE"; returns `code`. */
int cli_error(const cli_session *session, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Any other line of talk; not with -q. */
void cli_say(const cli_session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Library messages pass through `rewrite`, which returns `message` or a replacement in `text`. NULL: unchanged. */
enum { CLI_MESSAGE = 2048 };
typedef const char *cli_rewrite(const char *message, char text[CLI_MESSAGE]);
void cli_message_rewrite(cli_rewrite *rewrite);
const char *cli_message(const char *message, char text[CLI_MESSAGE]);

/* ---- foreign text ---- */

/* `text` fit for a terminal: C0, C1, DEL, bidi controls and invalid UTF-8 as \xNN or \uNNNN, cut at about 500 bytes.
 * The result lives in one of four static buffers, so up to four may be used in one printf. */
const char *cli_shown(const char *text);
/* How many bytes of `text`, from its start, are UTF-8: all of them, or those before the first that is not. */
size_t cli_utf8_bytes(const char *text, size_t bytes);
/* The beginning of `text`, made fit in the same way, that takes at most `columns` columns; "..." tells that there is
 * more. */
const char *cli_shown_start(const char *text, int columns);
/* The same for a whole string of any length, written to `out`. */
void cli_put_shown(FILE *out, const char *text, size_t bytes);
/* The same for running text, of which newlines, tabs and the joiners inside of words and emoji stay. */
void cli_put_running(FILE *out, const char *text, size_t bytes);
/* Terminal columns that cli_put_shown takes (East Asian wide characters count 2). */
int cli_shown_columns(const char *text, size_t bytes);
/* One CSV cell: quoted where needed; text that a spreadsheet would run as a formula (= + - @ first) gets an
 * apostrophe. */
void cli_put_csv(FILE *out, const char *text);

/* ---- JSON ---- */

/* A number, null for NaN and infinities. */
json_t *cli_real(double value);
/* Writes `value` (a reference that is taken over) and a newline to session->out: 9 digits, only printable ASCII.
 * Returns CLI_DONE, or CLI_FAILED with a message when memory is short (also when `value` is NULL). */
int cli_put_json(cli_session *session, json_t *value, bool indent);

/* ---- colour ---- */

/* May this stream be coloured? A terminal, NO_COLOR not set, TERM not "dumb". */
bool cli_may_colour(int fd);
/* Escape sequences that are empty strings when colour is off. */
const char *cli_bold(const cli_session *session);
const char *cli_dim(const cli_session *session);
const char *cli_plain(const cli_session *session);
/* Width of the terminal at fd; COLUMNS or 80 when there is none. */
int cli_columns(int fd);

/* Writes the finished result, or a piece of one that comes bit by bit, to stdout. A reader that has gone away is no
 * failure (SIGPIPE is ignored). */
int cli_flush(const cli_session *session, const char *text, size_t bytes);
/* Can nothing more be written, as the reader has gone away or writing failed? Then there is no use in going on. */
bool cli_stdout_closed(void);
/* Does a name end so? Does the one given with -o? */
bool cli_ends(const char *name, const char *end);
bool cli_out_ends(const cli_session *session, const char *end);
/* CLI_USAGE with a message if the file named with -o exists and --force was not given, if it is one of the inputs, if
 * its name is empty, or if it is stdout ("-") where --json is too: to be asked before long work. */
int cli_check_out(const cli_session *session);
/* The name to speak of it. */
const char *cli_out_name(const cli_session *session);
/* Writes `bytes` to the file named with -o, atomically; an existing one only with --force. Returns an exit code. */
int cli_write_file(const cli_session *session, const void *data, size_t bytes);

#endif
