/* word_wrap.h - wraps prose to the width of the terminal. */
#ifndef CLI_WORD_WRAP_H
#define CLI_WORD_WRAP_H

#include "command.h"

/* Writes `text` and a newline, broken between words so that no line exceeds `columns`. The first line already has
 * `used` columns; each later line begins with `indent` spaces. Newlines in the text are kept. A word wider than a line
 * is not split. */
void cli_put_wrapped(FILE *out, int columns, int used, int indent, const char *text);

/* Formats a text like printf and writes it wrapped to session->out; untrusted text must be escaped with cli_shown. */
void cli_put_prose(const cli_session *session, int used, int indent, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
