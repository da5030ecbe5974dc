/* options.c - the shared options, one table. Which of them a command takes is a set of flags (command.h). */
#include "options.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "output.h"
#include "wrap.h"

static cli_options given;                                 /* where popt stores; copied into the session after parsing */
static const char **model_names;                          /* each -m, ended by NULL; NULL without */
static const char *threads_text, *seed_text, *heads_text; /* read by cli_whole: one rule, and the option is named */

/* One row for each shared option; `need` 0 = every command has it. */
static const struct shared_option {
    unsigned need;
    struct poptOption option;
} shared[] = {
    {CLI_MODEL,
     {"model", 'm', POPT_ARG_ARGV, &model_names, 0, "folder of a checkpoint, minilm, or builtin (default)", "MODEL"}},
    {CLI_MODEL,
     {"no-map", 0, POPT_ARG_NONE, &given.no_map, 0, "copy the weights into memory: their file may change", NULL}},
    {CLI_FILE, {"file", 'f', POPT_ARG_STRING, &given.file, 0, "read texts from FILE, one a line; - is stdin", "FILE"}},
    {CLI_IDS, {"ids", 0, POPT_ARG_NONE, &given.ids, 0, "texts are token ids: 1,2,3; needs no tokenizer", NULL}},
    {CLI_OUT, {"output", 'o', POPT_ARG_STRING, &given.out, 0, "write the result to OUT", "OUT"}},
    {CLI_OUT, {"force", 0, POPT_ARG_NONE, &given.force, 0, "replace OUT if it exists", NULL}},
    {CLI_JSON, {"json", 0, POPT_ARG_NONE, &given.json, 0, "print JSON", NULL}},
    {CLI_CSV, {"csv", 0, POPT_ARG_NONE, &given.csv, 0, "print CSV", NULL}},
    {CLI_SEED, {"seed", 's', POPT_ARG_STRING, &seed_text, 0, "seed of everything random, 0 or more", "SEED"}},
    {CLI_DTYPE,
     {"dtype", 0, POPT_ARG_STRING, &given.dtype, 0, "weights and arithmetic: f32, bf16, f16, int8 weights", "TYPE"}},
    {CLI_ROUTE,
     {"heads-per-sequence", 0, POPT_ARG_STRING, &heads_text, 0, "compute K heads of each layer, as a router says",
      "K"}},
    {CLI_ROUTE,
     {"router", 0, POPT_ARG_STRING, &given.router, 0, "of mha route (default: the model's router.safetensors)",
      "FILE"}},
    {0, {"threads", 't', POPT_ARG_STRING, &threads_text, 0, "threads, 1 to 1024 (default: all CPUs)", "N"}},
    {0, {"isa", 0, POPT_ARG_STRING, &given.isa, 0, "newest instruction set to use (see mha --version)", "NAME"}},
    {0, {"quiet", 'q', POPT_ARG_NONE, &given.quiet, 0, "say nothing but errors", NULL}},
    {0, {"verbose", 'v', POPT_ARG_NONE, &given.verbose, 0, "say more", NULL}},
    {0, {"no-progress", 0, POPT_ARG_NONE, &given.no_progress, 0, "no progress line", NULL}},
    {0, {"help", 'h', POPT_ARG_NONE, NULL, 'h', "show this help", NULL}},
};

void cli_option_table(const cli_command *command, struct poptOption table[CLI_MAX_OPTIONS])
{
    int n = 0;
    for (const struct poptOption *o = command->options; o && (o->longName || o->shortName); o++)
        if (n < CLI_MAX_OPTIONS - 1) table[n++] = *o;
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if ((shared[i].need == 0 || (command->shared & shared[i].need)) && n < CLI_MAX_OPTIONS - 1)
            table[n++] = shared[i].option;
    table[n] = (struct poptOption)POPT_TABLEEND;
}

static void print_help(const cli_command *command, poptContext parser)
{
    poptPrintHelp(parser, stdout, 0);
    const int columns = cli_columns(STDOUT_FILENO);
    if (command->details) {
        putchar('\n');
        cli_put_wrapped(stdout, columns, 0, 0, command->details);
    }
    if (command->lists) command->lists(stdout, columns);
}

int cli_whole(const cli_session *session, const char *option, const char *text, long long min, long long max,
              long long *value)
{
    if (!text) return CLI_DONE;
    errno = 0;
    const bool digits = *text && text[strspn(text, "0123456789")] == '\0';
    const long long number = digits ? strtoll(text, NULL, 10) : 0;
    if (!digits || errno || number < min || number > max)
        return max == LLONG_MAX
                   ? cli_usage(session, "%s \"%s\": want a whole number, %lld or more", option, cli_shown(text), min)
                   : cli_usage(session, "%s \"%s\": want a whole number from %lld to %lld", option, cli_shown(text),
                               min, max);
    *value = number;
    return CLI_DONE;
}

int cli_number(const cli_session *session, const char *option, const char *text, double min, double max, double *value)
{
    if (!text) return CLI_DONE;
    char *end;
    const double number = strtod(text, &end);
    if (end == text || *end != '\0' || !(number >= min && number <= max))
        return cli_usage(session, "%s \"%s\": want a number from %g to %g", option, cli_shown(text), min, max);
    *value = number;
    return CLI_DONE;
}

/* -m may be given as often as there are models; the last one counts where it is one. */
static int read_models(cli_session *session)
{
    const bool two = session->command->shared & CLI_MODELS;
    int count = 0;
    while (model_names && model_names[count])
        count++;
    if (two && count != 2) return cli_usage(session, "give two models: -m MODEL -m MODEL");
    if (count > 0) session->options.model = model_names[two ? 0 : count - 1];
    if (two) session->options.other_model = model_names[1];
    return CLI_DONE;
}

static int read_numbers(cli_session *session)
{
    long long threads = 0;
    int code = cli_whole(session, "-t", threads_text, 1, 1024, &threads);
    if (code == CLI_DONE) code = cli_whole(session, "-s", seed_text, 0, LLONG_MAX, &session->options.seed);
    if (code == CLI_DONE)
        code =
            cli_whole(session, "--heads-per-sequence", heads_text, 1, INT32_MAX, &session->options.heads_per_sequence);
    session->options.threads = (int)threads;
    return code;
}

const char *cli_head(const char *text, mha_model_head *head)
{
    enum { MOST = 9 }; /* digits */
    const size_t n = strspn(text, "0123456789");
    const char *second = text + n + (text[n] == '.');
    const size_t m = strspn(second, "0123456789");
    if (n == 0 || n > MOST || text[n] != '.' || m == 0 || m > MOST) return NULL;
    *head = (mha_model_head){(int32_t)strtol(text, NULL, 10), (int32_t)strtol(second, NULL, 10)};
    return second + m;
}

mha_dtype cli_dtype(const char *name)
{
    static const struct {
        const char *name;
        mha_dtype dtype;
    } types[] = {{"f32", MHA_F32}, {"bf16", MHA_BF16}, {"f16", MHA_F16}, {"int8", MHA_Q8_0}};
    if (!name) return MHA_F32;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(name, types[i].name) == 0) return types[i].dtype;
    return MHA_DTYPE_OTHER;
}

/* Rules on values that popt does not know. NULL, or what is wrong. */
static const char *check_values(const cli_session *session)
{
    const cli_options *o = &session->options;
    if (o->quiet && o->verbose) return "-q and -v contradict each other";
    if (o->json && o->csv) return "--json and --csv contradict each other";
    if (o->router && !o->heads_per_sequence) return "--router goes with --heads-per-sequence";
    if (o->dtype && cli_dtype(o->dtype) == MHA_DTYPE_OTHER) return "--dtype: f32, bf16, f16 or int8";
    return NULL;
}

int cli_options_parse(cli_session *session, int argc, const char **argv, poptContext *parser)
{
    static struct poptOption table[CLI_MAX_OPTIONS]; /* popt keeps a pointer to it */
    cli_option_table(session->command, table);
    given = (cli_options){0};
    threads_text = seed_text = heads_text = NULL;
    model_names = NULL;
    *parser = poptGetContext(NULL, argc, argv, table, 0);
    static char usage[128];
    snprintf(usage, sizeof usage, "[OPTION...] %s", session->command->usage);
    poptSetOtherOptionHelp(*parser, usage);
    int code;
    while ((code = poptGetNextOpt(*parser)) > 0) {
        if (code == 'h') {
            print_help(session->command, *parser);
            return CLI_DONE;
        }
    }
    if (code < -1)
        return cli_usage(session, "%s: %s", cli_shown(poptBadOption(*parser, POPT_BADOPTION_NOALIAS)),
                         poptStrerror(code));
    session->options = given;
    code = read_models(session);
    if (code == CLI_DONE) code = read_numbers(session);
    if (code != CLI_DONE) return code;
    const char *wrong = check_values(session);
    if (wrong) return cli_usage(session, "%s", wrong);
    session->args = poptGetArgs(*parser);
    for (session->arg_count = 0; session->args && session->args[session->arg_count];)
        session->arg_count++;
    return -1;
}

void cli_options_free(poptContext parser)
{
    for (int n = 0; model_names && model_names[n]; n++)
        free((char *)model_names[n]); /* popt copies what it lists */
    free(model_names);
    model_names = NULL;
    if (parser) poptFreeContext(parser);
}
