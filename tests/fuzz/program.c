/* program.c - see program.h. What the program would print on stderr is collected in memory while input is read. */
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

/* The targets have no command line that asks for standard input. */
int cli_stdin_check(const cli_session *s, bool piped)
{
    (void)s, (void)piped;
    return CLI_DONE;
}

const cli_session *fuzz_session(const char *name)
{
    if (!session.ctx) {
        session.ctx = fuzz_ctx();
        session.options.quiet = 1; /* of refusals alone */
        real_stderr = stderr;
        collected = open_memstream(&text, &bytes);
        fuzz_check(collected != NULL, "there is memory");
    }
    expected = name;
    rewind(collected);
    stderr = collected;
    return &session;
}

/* "mha: SENTENCE\n", and nothing else. */
static void check_sentence(void)
{
    fuzz_check(strncmp(text, "mha: ", 5) == 0 && text[bytes - 1] == '\n', "a refusal is one line");
    fuzz_check(strstr(text, expected) != NULL, "it names the file");
    for (size_t i = 0; i + 1 < bytes; i++)
        fuzz_check((unsigned char)text[i] >= 32 && text[i] != 127, "a sentence holds no control character");
}

void fuzz_code(int code)
{
    fflush(collected);
    stderr = real_stderr;
    fuzz_check(code == CLI_DONE || code == CLI_REFUSED, "input is taken or refused");
    fuzz_check((bytes > 0) == (code != CLI_DONE), "a refusal comes with a sentence, and only then");
    if (bytes > 0) check_sentence();
}
