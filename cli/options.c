/* options.c - the table of shared options, and the parser. Flags select the shared options of a command (command.h). */
#include "options.h"

#include "memory.h"
#include "output.h"
#include "suggest.h"
#include "word_wrap.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static cli_options given;                    /* values set by popt, copied into the session after parsing */
static const char **model_names;             /* all -m values, terminated by NULL; NULL if not given */
static const char *threads_text, *seed_text; /* strings, because cli_whole parses them and names the option in errors */

/* One row per shared option; `need` 0 = accepted by every command. */
static const struct shared_option {
    unsigned need;
    struct poptOption option;
} shared[] = {
    {CLI_MODEL,
     {"model", 'm', POPT_ARG_ARGV, &model_names, 0, "checkpoint folder, minilm, or builtin (default)", "MODEL"}},
    {CLI_MODEL,
     {"no-map", 0, POPT_ARG_NONE, &given.no_map, 0, "copy weights into memory, so that their file may change", NULL}},
    {CLI_FILE, {"file", 'f', POPT_ARG_STRING, &given.file, 0, "read texts from FILE; - is standard input", "FILE"}},
    {CLI_FILE,
     {"documents", 0, POPT_ARG_STRING, &given.documents, 0, "each text is a line (default), paragraph, or whole file",
      "DOCUMENTS"}},
    {CLI_IDS, {"ids", 0, POPT_ARG_NONE, &given.ids, 0, "texts are token ids, such as 1,2,3 (no tokenizer)", NULL}},
    {CLI_OUT, {"output", 'o', POPT_ARG_STRING, &given.out, CLI_OUTPUT, "write the result to OUT", "OUT"}},
    {CLI_OUT, {"force", 0, POPT_ARG_NONE, &given.force, 0, "replace OUT if it exists", NULL}},
    {CLI_JSON, {"json", 0, POPT_ARG_NONE, &given.json, 0, "print JSON", NULL}},
    {CLI_CSV, {"csv", 0, POPT_ARG_NONE, &given.csv, 0, "print CSV", NULL}},
    {CLI_SEED, {"seed", 's', POPT_ARG_STRING, &seed_text, 0, "random seed, at least 0", "SEED"}},
    {CLI_DTYPE,
     {"dtype", 0, POPT_ARG_STRING, &given.dtype, 0,
      "type of weights and arithmetic: f32, bf16, f16, or int8 (dense layers)", "TYPE"}},
    {0, {"threads", 't', POPT_ARG_STRING, &threads_text, 0, "threads, 1 to 1024 (default: all CPUs)", "N"}},
    {0, {"isa", 0, POPT_ARG_STRING, &given.isa, 0, "newest instruction set to use (see mha version)", "NAME"}},
    {0, {"quiet", 'q', POPT_ARG_NONE, &given.quiet, 0, "print only errors, no log", NULL}},
    {0, {"verbose", 'v', POPT_ARG_NONE, &given.verbose, 0, "print a more detailed log", NULL}},
    {0, {"no-progress", 0, POPT_ARG_NONE, &given.no_progress, 0, "do not show a progress line", NULL}},
    {0, {"help", 'h', POPT_ARG_NONE, NULL, 'h', "show this help", NULL}},
};

/* ---- tables ---- */

static int add_options(struct poptOption *table, int n, const struct poptOption *options)
{
    for (const struct poptOption *o = options; o && (o->longName || o->shortName); o++)
        if (n < CLI_MAX_OPTIONS - 1) table[n++] = *o;
    return n;
}

/* Adds shared options of a command: with `common` the options that every command accepts, otherwise the options that
 * the flags of the command select. */
static int add_shared(struct poptOption *table, int n, const cli_command *command, bool common)
{
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        const unsigned need = shared[i].need;
        const bool has = common ? need == 0 : (need & command->shared) != 0;
        if (has && n < CLI_MAX_OPTIONS - 1) table[n++] = shared[i].option;
    }
    return n;
}

void cli_option_table(const cli_command *command, struct poptOption table[CLI_MAX_OPTIONS])
{
    int n = add_options(table, 0, command->options);
    n = add_shared(table, n, command, false);
    for (const cli_option_group *g = command->groups; g && g->title; g++)
        n = add_options(table, n, g->options);
    n = add_shared(table, n, command, true);
    table[n] = (struct poptOption)POPT_TABLEEND;
}

enum { GROUPS_MAX = 12 };
static const struct poptOption table_end = POPT_TABLEEND;

/* Tables that popt refers to, one per heading of the help. popt returns FIRST_ROW + n each time row n, which
 * takes one value, is given. */
enum { FIRST_ROW = 1000 };
static struct grouped_table {
    struct poptOption group[GROUPS_MAX + 1];
    struct poptOption row[CLI_MAX_OPTIONS + GROUPS_MAX];
    int times[CLI_MAX_OPTIONS + GROUPS_MAX]; /* number of times that each row was given */
    int groups, rows;
} grouped;

/* Returns true if the option must not be repeated. -m is a list in the table, since some commands accept two models. */
static bool takes_one_value(const cli_command *command, const struct poptOption *row)
{
    return row->argInfo == POPT_ARG_STRING || (row->arg == &model_names && !(command->shared & CLI_MODELS));
}

/* Turns the rows from `first` into a group with a heading. */
static void end_group(const char *title, int first)
{
    if (grouped.rows == first || grouped.groups == GROUPS_MAX) return;
    grouped.row[grouped.rows++] = table_end;
    grouped.group[grouped.groups++] =
        (struct poptOption){NULL, 0, POPT_ARG_INCLUDE_TABLE, &grouped.row[first], 0, title, NULL};
}

static void group_options(const cli_command *command)
{
    grouped = (struct grouped_table){0};
    grouped.rows = add_shared(grouped.row, add_options(grouped.row, 0, command->options), command, false);
    end_group("Options:", 0);
    for (const cli_option_group *g = command->groups; g && g->title; g++) {
        const int first = grouped.rows;
        grouped.rows = add_options(grouped.row, first, g->options);
        end_group(g->title, first);
    }
    const int first = grouped.rows;
    grouped.rows = add_shared(grouped.row, first, command, true);
    end_group("Common options:", first);
    grouped.group[grouped.groups] = table_end;
    for (int n = 0; n < grouped.rows; n++)
        if (takes_one_value(command, &grouped.row[n])) grouped.row[n].val = FIRST_ROW + n;
}

/* ---- help and invalid options ---- */

static void print_help(const cli_command *command, poptContext parser)
{
    poptPrintHelp(parser, stdout, 0);
    const int columns = cli_columns(STDOUT_FILENO);
    if (command->details) {
        putchar('\n');
        cli_put_wrapped(stdout, columns, 0, 0, command->details);
    }
    if (command->lists) command->lists(stdout, columns);
    fputs("\nExamples:\n", stdout);
    for (const char *line = command->examples, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        printf("  %.*s\n", (int)(end - line), line);
    }
}

/* Reports an unknown option and suggests the most similar known option; other errors have popt's message. */
static int refuse_option(const cli_session *session, const char *option, int why)
{
    struct poptOption table[CLI_MAX_OPTIONS];
    char name[64], meant[SUGGEST_TEXT];
    if (why != POPT_ERROR_BADOPT) return cli_usage(session, "%s: %s", cli_shown(option), poptStrerror(why));
    snprintf(name, sizeof name, "%.*s", (int)strcspn(option, "="), option);
    suggestion like = suggest_for(name + strspn(name, "-"));
    cli_option_table(session->command, table);
    for (const struct poptOption *o = table; o->longName || o->shortName; o++)
        if (o->longName) suggest_offer(&like, o->longName);
    return cli_usage(session, "%s: unknown option%s", cli_shown(option), suggest_text(&like, "--", meant));
}

const char *cli_option_name(const struct poptOption *option, char name[CLI_OPTION_NAME])
{
    if (option->shortName)
        snprintf(name, CLI_OPTION_NAME, "-%c", option->shortName);
    else
        snprintf(name, CLI_OPTION_NAME, "--%s", option->longName);
    return name;
}

/* ---- checks of values ---- */

int cli_whole(const cli_session *session, const char *option, const char *text, long long min, long long max,
              long long *value)
{
    if (!text) return CLI_DONE;
    errno = 0;
    const bool digits = *text && text[strspn(text, "0123456789")] == '\0';
    const long long number = digits ? strtoll(text, NULL, 10) : 0;
    if (!digits || errno || number < min || number > max)
        return max == LLONG_MAX ? cli_usage(session, "%s must be a whole number of at least %lld (got \"%s\")", option,
                                            min, cli_shown(text))
                                : cli_usage(session, "%s must be a whole number from %lld to %lld (got \"%s\")", option,
                                            min, max, cli_shown(text));
    *value = number;
    return CLI_DONE;
}

double cli_decimal(const char *text, char **end)
{
    const char *digits = text + (*text == '-' || *text == '+');
    const bool hexadecimal = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X');
    *end = (char *)text;
    return *digits && strchr("0123456789.", *digits) && !hexadecimal ? strtod(text, end) : 0;
}

int cli_number(const cli_session *session, const char *option, const char *text, double min, double max, double *value)
{
    if (!text) return CLI_DONE;
    char *end;
    const double number = cli_decimal(text, &end);
    if (end == text || *end != '\0' || !(number >= min && number <= max))
        return cli_usage(session, "%s must be a number from %g to %g (got \"%s\")", option, min, max, cli_shown(text));
    *value = number;
    return CLI_DONE;
}

/* Rejects a repeated option that has one value, because popt would silently keep the last value. */
static int check_repeated(const cli_session *session)
{
    char name[CLI_OPTION_NAME];
    for (int n = 0; n < grouped.rows; n++)
        if (grouped.times[n] > 1)
            return cli_usage(session, "%s must be given at most once (got %d)", cli_option_name(&grouped.row[n], name),
                             grouped.times[n]);
    return CLI_DONE;
}

static int read_models(cli_session *session)
{
    const bool two = session->command->shared & CLI_MODELS;
    int count = 0;
    while (model_names && model_names[count])
        count++;
    if (two && count != 2) return cli_usage(session, "-m must be given twice: -m MODEL -m MODEL");
    if (count > 0) session->options.model = model_names[0];
    if (two) session->options.other_model = model_names[1];
    return CLI_DONE;
}

static int read_numbers(cli_session *session)
{
    long long threads = 0;
    int code = cli_whole(session, "-t", threads_text, 1, 1024, &threads);
    if (code == CLI_DONE) code = cli_whole(session, "-s", seed_text, 0, LLONG_MAX, &session->options.seed);
    session->options.threads = (int)threads;
    return code;
}

const char *cli_head(const char *text, mha_model_head *head)
{
    enum { MAX = 9 }; /* maximum number of digits */
    const size_t n = strspn(text, "0123456789");
    const char *second = text + n + (text[n] == '.');
    const size_t m = strspn(second, "0123456789");
    if (n == 0 || n > MAX || text[n] != '.' || m == 0 || m > MAX) return NULL;
    *head = (mha_model_head){(int32_t)strtol(text, NULL, 10), (int32_t)strtol(second, NULL, 10)};
    return second + m;
}

int cli_head_twice(const cli_session *session, const char *option, const char *part, mha_model_head head)
{
    return cli_usage(session, "%s must list each head once (got %s%s%d.%d twice)", option, part, *part ? "." : "",
                     (int)head.layer, (int)head.head);
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

mha_dtype cli_kv_dtype(const char *name)
{
    if (name && strcmp(name, "int4") == 0) return MHA_Q4_0;
    return name && strcmp(name, "e4m3") == 0 ? MHA_F8_E4M3 : cli_dtype(name);
}

/* Rejects options that are mutually exclusive. Returns NULL or the error message. */
static const char *check_values(const cli_session *session)
{
    const cli_options *o = &session->options;
    if (o->quiet && o->verbose) return "-q and -v are mutually exclusive";
    if (o->json && o->csv) return "--json and --csv are mutually exclusive";
    return NULL;
}

int cli_options_parse(cli_session *session, int argc, const char **argv, poptContext *parser)
{
    group_options(session->command);
    given = (cli_options){0};
    threads_text = seed_text = NULL;
    model_names = NULL;
    errno = 0;
    *parser = poptGetContext(NULL, argc, argv, grouped.group, 0);
    if (!*parser) cli_memory_end();
    static char usage[128];
    snprintf(usage, sizeof usage, "[OPTION...] %s", session->command->usage);
    poptSetOtherOptionHelp(*parser, usage);
    int code;
    while ((code = poptGetNextOpt(*parser)) > 0) {
        if (code == 'h') {
            print_help(session->command, *parser);
            return CLI_DONE;
        }
        if (code >= FIRST_ROW) grouped.times[code - FIRST_ROW]++;
    }
    if (errno == ENOMEM) cli_memory_end(); /* popt silently drops values that it cannot copy */
    if (code < -1) return refuse_option(session, poptBadOption(*parser, POPT_BADOPTION_NOALIAS), code);
    session->options = given;
    code = check_repeated(session);
    if (code == CLI_DONE) code = read_models(session);
    if (code == CLI_DONE) code = read_numbers(session);
    if (code != CLI_DONE) return code;
    const char *wrong = check_values(session), *dtype = session->options.dtype;
    if (wrong) return cli_usage(session, "%s", wrong);
    if (cli_dtype(dtype) == MHA_DTYPE_OTHER)
        return cli_usage(session, "--dtype must be one of f32, bf16, f16, int8 (got \"%s\")", cli_shown(dtype));
    session->args = poptGetArgs(*parser);
    for (session->arg_count = 0; session->args && session->args[session->arg_count];)
        session->arg_count++;
    return -1;
}

void cli_options_free(poptContext parser)
{
    for (int n = 0; model_names && model_names[n]; n++)
        free((char *)model_names[n]); /* popt allocates copies of list arguments */
    free(model_names);
    model_names = NULL;
    if (parser) poptFreeContext(parser);
}
