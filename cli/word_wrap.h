/* word_wrap.h - prose that keeps to the width of the terminal. */
#ifndef CLI_WORD_WRAP_H
#define CLI_WORD_WRAP_H

#include "command.h"

/* `text`, broken between words so that no line passes `columns`, and a newline. The first line has `used` columns
 * already; the others begin with `indent` spaces. A newline in the text stays one. A word wider than a line stays
 * whole. */
void cli_put_wrapped(FILE *out, int columns, int used, int indent, const char *text);

/* The same for the session's result, with printf's format; foreign text goes through cli_shown first. */
void cli_put_prose(const cli_session *session, int used, int indent, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
