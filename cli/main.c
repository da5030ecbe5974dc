/* main.c - the program mha, or a rank of mha-mpi: finds the command, parses its options, runs it and writes its result.
 *
 * The result is collected in memory and written to stdout at the end, so stdout receives a complete result or nothing.
 */
#include "commands.h"
#include "memory.h"
#include "option_values.h"
#include "options.h"
#include "output.h"
#include "output_is_input.h"
#include "session.h"
#include "suggest.h"
#include "word_wrap.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const cli_command *const cli_commands[] = {
#define CLI__X(name) &cli_##name,
    CLI_COMMAND_MAP(CLI__X)
#undef CLI__X
        NULL};

static const cli_ranks *ranks;
static bool finished; /* all ranks have agreed on the exit code */

static const cli_command *find_command(const char *name)
{
    for (int i = 0; cli_commands[i]; i++)
        if (strcmp(cli_commands[i]->name, name) == 0) return cli_commands[i];
    return NULL;
}

/* ---- context ---- */

static int on_progress(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user;
    if (cli_signals_held()) return 0; /* the command checks signals and shows progress itself */
    if (cli_signal() || cli_stdout_closed()) return 1;
    cli_progress(what, done, total);
    return 0;
}

static void on_log(void *user, int level, const char *message)
{
    const cli_session *session = user;
    char text[CLI_MESSAGE];
    if (level == 0 || session->options.verbose) cli_say(session, "%s", cli_message(message, text));
}

/* Creates the context; collectively if the command runs on all ranks. */
static mha_status create_context(cli_session *session, const mha_ctx_options *options, mha_error *error)
{
    const cli_ranks *all = session->work ? session->ranks : NULL;
    return all ? all->ctx_create(all->user, options, &session->ctx, error)
               : mha_ctx_create(options, &session->ctx, error);
}

static int open_context(cli_session *session)
{
    const cli_options *o = &session->options;
    if (!o->quiet && !o->no_progress) cli_progress_on();
    mha_ctx_options options = {.size = sizeof options,
                               .threads = o->threads,
                               .isa = o->isa,
                               .log = on_log,
                               .log_user = session,
                               .progress = on_progress};
    mha_error error = {0};
    if (create_context(session, &options, &error) != MHA_OK) return cli_fail(session, &error);
    if (o->verbose) cli_say(session, "%s, %d threads", mha_ctx_isa(session->ctx), mha_ctx_threads(session->ctx));
    return CLI_DONE;
}

static void close_context(cli_session *session)
{
    cli_progress_clear();
    mha_ctx_free(session->ctx);
    session->ctx = NULL;
}

/* ---- commands ---- */

static void print_help(FILE *out)
{
    enum { SUMMARY = 15 }; /* column of the summaries */
    const int columns = cli_columns(fileno(out));
    cli_put_wrapped(out, columns, 0, 0,
                    "Usage: mha COMMAND [OPTION...] [ARGUMENT...]\n\n"
                    "Multi-head attention in C: run transformer checkpoints and see what their heads do.\n\n"
                    "Commands:");
    for (int i = 0; cli_commands[i]; i++) {
        fprintf(out, "  %-12s ", cli_commands[i]->name);
        cli_put_wrapped(out, columns, SUMMARY, SUMMARY, cli_commands[i]->summary);
    }
    cli_put_wrapped(
        out, columns, 0, 0,
        "\nmha help COMMAND, or mha COMMAND --help, shows the options of a command, with examples; mha version shows "
        "the version and the instruction sets. Results go to stdout, everything else to stderr.\n"
        "Exit status: 0 done, 1 failed, 2 invalid usage, 3 invalid input, 4 a check failed, 128+n ended by "
        "signal n.");
}

static int print_version(void)
{
    mha_error error = {0};
    mha_ctx *ctx = NULL;
    if (mha_ctx_create(NULL, &ctx, &error) != MHA_OK) return cli_fail(&(cli_session){.ranks = ranks}, &error);
    const char *isas[16];
    int count = mha_isa_list(isas, 16);
    printf("mha %s\nin use: %s, %d threads\nthis CPU has:", mha_version(), mha_ctx_isa(ctx), mha_ctx_threads(ctx));
    for (int i = 0; i < count; i++)
        printf(" %s", isas[i]);
    putchar('\n');
    mha_ctx_free(ctx);
    return CLI_DONE;
}

/* Flushes text printed directly to stdout (help and version). A closed pipe is not a failure. */
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

/* Runs a parsed command, collecting its result in memory, then writes the result to stdout. */
static int run_command(cli_session *session)
{
    char *text;
    size_t bytes;
    session->out = cli_memory_open(&text, &bytes);
    session->show_color = cli_may_color(STDOUT_FILENO);
    session->columns = cli_columns(STDOUT_FILENO);
    int code = open_context(session);
    if (code == CLI_DONE) code = cli_stdin_check(session, false);
    if (code == CLI_DONE) code = cli_outputs_check(session);
    if (code == CLI_DONE) code = session->command->run(session);
    close_context(session);
    fclose(session->out);
    if (has_result(code) && cli_signal()) code = 128 + cli_signal();
    code = cli_finish(session, session->work != NULL, code);
    finished = true;
    if (has_result(code)) {
        int written = cli_flush(session, text, bytes);
        if (written != CLI_DONE) code = written;
    }
    free(text);
    return code;
}

/* Reports an unknown command and suggests the most similar known command. */
static int refuse_command(const char *name)
{
    const cli_session none = {.ranks = ranks};
    char meant[SUGGEST_TEXT];
    suggestion like = suggest_for(name + strspn(name, "-"));
    for (int i = 0; cli_commands[i]; i++)
        suggest_offer(&like, cli_commands[i]->name);
    suggest_offer(&like, "help");
    suggest_offer(&like, "version");
    return cli_usage(&none, "unknown command \"%s\"%s", cli_shown(name), suggest_text(&like, "", meant));
}

/* Gives the session what ranks share if the command can divide its work or its texts. Returns -1 to continue, or
 * CLI_USAGE if the ranks have only parts of the model and the command needs all of it. */
static int divide(cli_session *session)
{
    const cli_command *command = session->command;
    if (!ranks) return -1;
    const char *why = command->unshared ? command->unshared(session) : NULL;
    if (command->divides && command->divides()) session->work = ranks->work;
    if (command->unshared && !why) {
        session->work = ranks->work;
        session->shared = ranks->texts;
    }
    if (!ranks->divides_models || session->shared) return -1;
    if (why) return cli_usage(session, "--tp must not be combined with %s", why);
    return cli_usage(session, "with --tp, the command must be score, embed, logits or generate (got %s)",
                     command->name);
}

static int dispatch(int argc, char **argv)
{
    cli_session session = {.ranks = ranks};
    session.command = find_command(argv[1]);
    cli_memory_install(&session);
    if (!session.command) return refuse_command(argv[1]);

    char name[64]; /* the program name that --help shows */
    snprintf(name, sizeof name, "mha %s", session.command->name);
    argv[1] = name;
    poptContext parser = NULL;
    int code = cli_options_parse(&session, argc - 1, (const char **)argv + 1, &parser);
    if (code < 0 && option_paths_check(&session) != CLI_DONE) code = CLI_USAGE;
    if (code < 0) code = divide(&session);
    const bool idle = ranks && ranks->rank > 0 && !session.work; /* the command runs only on rank 0 */
    if (code >= 0)
        code = close_stdout(code);
    else
        code = idle ? CLI_DONE : run_command(&session);
    cli_options_free(parser);
    return code;
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

static bool is_help(const char *word)
{
    return is_one_of(word, "help", "--help", "-h");
}

static bool is_version(const char *word)
{
    return is_one_of(word, "version", "--version", "-V");
}

static int help_version(void)
{
    puts("Usage: mha version\n\nPrints the version, the instruction set and the number of threads in use, and the\n"
         "instruction sets of this CPU.");
    return close_stdout(CLI_DONE);
}

/* Runs mha version. */
static int version(int argc, char **argv)
{
    if (argc > 2 && is_help(argv[2])) return help_version();
    if (argc > 2)
        return cli_usage(&(cli_session){.ranks = ranks}, "version accepts no argument (got \"%s\")",
                         cli_shown(argv[2]));
    return close_stdout(print_version());
}

/* Runs mha help [COMMAND]. */
static int help(int argc, char **argv)
{
    static char option[] = "--help";
    if (argc > 3) return cli_usage(&(cli_session){.ranks = ranks}, "help accepts only one command (got %d)", argc - 2);
    if (argc == 3 && is_version(argv[2])) return help_version();
    if (argc == 3 && !is_help(argv[2])) return dispatch(3, (char *[]){argv[0], argv[2], option, NULL});
    print_help(stdout);
    return close_stdout(CLI_DONE);
}

static int run_program(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (is_help(argv[1])) return help(argc, argv);
    if (is_version(argv[1])) return version(argc, argv);
    return dispatch(argc, argv);
}

int cli_main(int argc, char **argv, const cli_ranks *of)
{
    ranks = of;
    const cli_command *command = argc > 1 ? find_command(argv[1]) : NULL;
    const bool runs = !ranks || ranks->rank == 0 || (command && (command->divides || command->unshared));
    cli_signals_install();
    const int code = runs ? run_program(argc, argv) : CLI_DONE;
    return finished ? code : cli_finish(&(cli_session){.command = command, .ranks = ranks}, false, code);
}
