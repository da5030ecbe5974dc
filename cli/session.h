/* session.h - services for commands: signals and the progress line. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "command.h"
#include <sys/types.h>

/* Ignores SIGPIPE and SIGXFSZ (EPIPE and EFBIG are then ordinary errors) and records SIGINT, SIGTERM and SIGHUP. If
 * a mapped file shrinks, the program ends with a message and CLI_REFUSED. Opens descriptors 0 to 2 if they are
 * closed, so no opened file becomes stdout. */
void cli_signals_install(void);
/* Sets the model or file named in the message about a mapped file that shrank. */
void cli_signals_reading(const char *name);
/* Returns the signal that requested a stop, or 0. A second signal ends the program immediately. */
int cli_signal(void);
/* After this call, the first signal does not cancel library calls, and library calls do not show progress. For commands
 * that call cli_stopped themselves and stop where their state is complete. */
void cli_signals_hold(void);
bool cli_signals_held(void);
/* For loops between library calls: returns 0 to continue, otherwise the exit code. */
int cli_stopped(void);

/* Calls openat, and repeats the call when a signal interrupts it, unless the signal ends the program: the call then
 * returns -1 with errno EINTR, and cli_stopped() is not 0. Opening a FIFO waits for its writer. */
int cli_open_at(int dir, const char *path, int flags, mode_t mode);
/* Returns "a directory", "a fifo" or "a special file" for the st_mode of a file that is not regular. */
const char *cli_file_kind(mode_t mode);

/* Shows the progress of an operation outside the library: `done` of `total` steps of `what`. */
void cli_progress(const char *what, int64_t done, int64_t total);
/* Shows a progress line that the caller formats; `line` must be escaped for a terminal. */
void cli_progress_line(const char *line);
/* Writes a duration such as "45 s", "12 min" or "3.5 h" to `text` and returns it. */
enum { CLI_DURATION = 24 };
const char *cli_duration(double seconds, char text[CLI_DURATION]);
/* Clears the progress line; must be called before other output is written to the terminal. */
void cli_progress_clear(void);
/* Turns the progress line on if stderr is a terminal. It is off when the program starts. */
void cli_progress_on(void);
/* Turns the progress line off, because the result is streamed to the terminal. */
void cli_progress_off(void);

/* Returns the seconds since an arbitrary moment, for measuring durations. */
double cli_seconds(void);

#endif
