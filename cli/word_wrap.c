/* word_wrap.c - see word_wrap.h. */
#include "word_wrap.h"

#include "output.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void new_line(FILE *out, int indent)
{
    fprintf(out, "\n%*s", indent, "");
}

void cli_put_wrapped(FILE *out, int columns, int used, int indent, const char *text)
{
    bool fresh = true; /* the line has no word yet */
    while (*text) {
        const size_t word = strcspn(text, " \n");
        const int width = cli_shown_columns(text, word);
        if (!fresh && used + 1 + width > columns) {
            new_line(out, indent);
            used = indent;
        } else if (!fresh) {
            fputc(' ', out);
            used++;
        }
        fwrite(text, 1, word, out);
        used += width;
        fresh = text[word] == '\n';
        if (fresh && text[word + 1]) {
            new_line(out, indent);
            used = indent;
        }
        text += word + (text[word] != '\0');
    }
    fputc('\n', out);
}

void cli_put_prose(const cli_session *session, int used, int indent, const char *format, ...)
{
    char text[4096]; /* more than the four results of cli_shown that one format may contain */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cli_put_wrapped(session->out, session->columns, used, indent, text);
}
