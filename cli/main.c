/* main.c - the program mha: finds the command, parses its options, runs it, and writes its result.
 *
 * The result goes into memory first and to stdout in the end, so stdout holds a whole result or nothing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "options.h"
#include "output.h"
#include "session.h"
#include "wrap.h"

const cli_command *const cli_commands[] = {
#define CLI__X(name) &cli_##name,
    CLI_COMMAND_MAP(CLI__X)
#undef CLI__X
        NULL};

static const cli_command *find_command(const char *name)
{
    for (int i = 0; cli_commands[i]; i++)
        if (strcmp(cli_commands[i]->name, name) == 0) return cli_commands[i];
    return NULL;
}

static void print_help(FILE *out)
{
    enum { SUMMARY = 15 }; /* where it begins */
    const int columns = cli_columns(fileno(out));
    cli_put_wrapped(out, columns, 0, 0,
                    "Usage: mha COMMAND [OPTION...] [ARGUMENT...]\n\n"
                    "Multi-head attention in C: run transformer checkpoints and see what their heads do.\n\n"
                    "Commands:");
    for (int i = 0; cli_commands[i]; i++) {
        fprintf(out, "  %-12s ", cli_commands[i]->name);
        cli_put_wrapped(out, columns, SUMMARY, SUMMARY, cli_commands[i]->summary);
    }
    cli_put_wrapped(out, columns, 0, 0,
                    "\nmha COMMAND --help tells the options of a command; mha --version the version and the "
                    "instruction sets. Results go to stdout, everything else to stderr.\n"
                    "Exit status: 0 done, 1 failed, 2 wrong use, 3 input refused, 4 a check said no, 128+n ended by "
                    "signal n.");
}

static int print_version(void)
{
    mha_error error = {0};
    mha_ctx *ctx = NULL;
    if (mha_ctx_create(NULL, &ctx, &error) != MHA_OK) return cli_fail(&(cli_session){0}, &error);
    const char *isas[16];
    int count = mha_isa_list(isas, 16);
    printf("mha %s\nin use: %s, %d threads\nthis CPU has:", mha_version(), mha_ctx_isa(ctx), mha_ctx_threads(ctx));
    for (int i = 0; i < count; i++)
        printf(" %s", isas[i]);
    putchar('\n');
    mha_ctx_free(ctx);
    return CLI_DONE;
}

/* Ends what was printed straight to stdout (help and version). A reader that has gone away is no failure. */
static int close_stdout(int code)
{
    if (fflush(stdout) == 0 || errno == EPIPE) return code;
    perror("mha: cannot write to stdout");
    return CLI_FAILED;
}

static bool has_result(int code)
{
    return code == CLI_DONE || code == CLI_NO;
}

/* Runs a parsed command with `out` in memory, then writes what it made. */
static int run_command(cli_session *session)
{
    char *text = NULL;
    size_t bytes = 0;
    session->out = open_memstream(&text, &bytes);
    if (!session->out) return cli_error(session, CLI_FAILED, "out of memory");
    session->show_colour = cli_may_colour(STDOUT_FILENO);
    session->columns = cli_columns(STDOUT_FILENO);
    int code = cli_session_open(session);
    if (code == CLI_DONE) code = session->command->run(session);
    cli_session_close(session);
    bool whole = !ferror(session->out);
    whole = fclose(session->out) == 0 && whole;
    if (has_result(code) && !whole) code = cli_error(session, CLI_FAILED, "out of memory for the result");
    if (has_result(code) && cli_signal()) code = 128 + cli_signal();
    if (has_result(code)) {
        int written = cli_flush(session, text, bytes);
        if (written != CLI_DONE) code = written;
    }
    free(text);
    return code;
}

static int dispatch(int argc, char **argv)
{
    cli_session session = {0};
    session.command = find_command(argv[1]);
    if (!session.command) return cli_usage(&session, "there is no command \"%s\"", cli_shown(argv[1]));

    char name[64]; /* what --help shows as the program */
    snprintf(name, sizeof name, "mha %s", session.command->name);
    argv[1] = name;
    poptContext parser = NULL;
    int code = cli_options_parse(&session, argc - 1, (const char **)argv + 1, &parser);
    code = code >= 0 ? close_stdout(code) : run_command(&session);
    cli_options_free(parser);
    return code;
}

int main(int argc, char **argv)
{
    cli_signals_install();
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return close_stdout(CLI_DONE);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) return close_stdout(print_version());
    return dispatch(argc, argv);
}
