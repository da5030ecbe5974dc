/* session.h - what lies around a command: signals, the context, talk and progress. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include <sys/types.h>

#include "command.h"

/* Ignores SIGPIPE and SIGXFSZ (EPIPE and EFBIG are ordinary errors then) and notes SIGINT, SIGTERM and SIGHUP. A mapped
 * file that becomes shorter ends the program with a sentence (CLI_REFUSED). Makes sure that descriptors 0 to 2 are
 * open, so that no file of ours ever becomes stdout. */
void cli_signals_install(void);
/* What the sentence of a mapped file that became shorter is to name: the model or file that is being read. */
void cli_signals_reading(const char *name);
/* The signal that asked us to stop; 0 if none did. A second one ends the program at once. */
int cli_signal(void);
/* From now on a first signal stops no call of the library, and no call shows its progress: for work that ends in order,
 * and asks cli_stopped where it may end. */
void cli_signals_hold(void);
/* For loops between library calls: 0 to go on, else the exit code. */
int cli_stopped(void);

/* openat that goes on after a signal which does not end the program. */
int cli_open_at(int dir, const char *path, int flags, mode_t mode);

/* A stream to read a file from, opened in the same way; NULL, with errno, if it cannot be opened. */
FILE *cli_open_stream(const char *path);

/* Makes session->ctx of -t and --isa, with the log (with -v) and the progress line (on a terminal). Returns an exit
 * code. */
int cli_session_open(cli_session *session);
void cli_session_close(cli_session *session);

/* The progress line of long work outside the library: `done` of `total` steps of `what`. */
void cli_progress(const char *what, int64_t done, int64_t total);
/* The same for work that says itself how far it is: `line` is fit for a terminal. */
void cli_progress_line(const char *line);
/* "45 s", "12 min", "3.5 h", in `text`. */
enum { CLI_DURATION = 24 };
const char *cli_duration(double seconds, char text[CLI_DURATION]);
/* Takes the progress line off the terminal, before anything else is written there. */
void cli_progress_clear(void);
/* No progress line from now on: the result itself comes to the terminal bit by bit. */
void cli_progress_off(void);

/* Seconds since some moment, for times of work. */
double cli_seconds(void);

#endif
