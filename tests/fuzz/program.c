/* program.c - implements program.h. While the program reads the input, stderr is a memory stream. */
#include "program.h"

#include "fuzz.h"
#include "output_is_input.h"
#include <stdlib.h>
#include <string.h>

static cli_session session;
static const char *expected = "";
static FILE *real_stderr, *collected;
static char *text;
static size_t bytes;

/* Replaces the function of the program, since the targets never read from standard input. */
int cli_stdin_check(const cli_session *s, bool piped)
{
    (void)s, (void)piped;
    return CLI_DONE;
}

const cli_session *fuzz_session(const char *name)
{
    if (!session.ctx) {
        session.ctx = fuzz_ctx();
        session.options.quiet = 1; /* prints only errors */
        real_stderr = stderr;
        collected = open_memstream(&text, &bytes);
        fuzz_check(collected != NULL, "out of memory");
    }
    expected = name;
    rewind(collected);
    stderr = collected;
    return &session;
}

/* Checks that stderr contains one line, "mha: MESSAGE ". */
static void check_sentence(void)
{
    fuzz_check(strncmp(text, "mha: ", 5) == 0 && text[bytes - 1] == '\n', "an error message must be one line");
    fuzz_check(strstr(text, expected) != NULL, "an error message must name the file");
    for (size_t i = 0; i + 1 < bytes; i++)
        fuzz_check((unsigned char)text[i] >= 32 && text[i] != 127,
                   "an error message must not contain control characters");
}

void fuzz_code(int code)
{
    fflush(collected);
    stderr = real_stderr;
    fuzz_check(code == CLI_DONE || code == CLI_REFUSED, "exit code must be CLI_DONE or CLI_REFUSED");
    fuzz_check((bytes > 0) == (code != CLI_DONE), "an error message must be printed only on failure");
    if (bytes > 0) check_sentence();
}
