/* cmd_bench.c - `mha bench attention`: measures the speed of the operator as a rate and as a fraction of the machine's
 * limit. */
#include "bench/bench.h"
#include "commands.h"
#include "options.h"
#include "output.h"
#include "session.h"
#include <stdlib.h>
#include <string.h>

static struct {
    const char *rows, *dtype, *seconds_text;
    double seconds;
} given = {.seconds = 1};

static const struct poptOption options[] = {
    {"rows", 0, POPT_ARG_STRING, &given.rows, 0, "run only these rows, separated by commas", "NAMES"},
    {"dtype", 0, POPT_ARG_STRING, &given.dtype, 0, "type of the tensors: f32 (default), bf16, f16, or all", "TYPE"},
    {"seconds", 0, POPT_ARG_STRING, &given.seconds_text, 0, "seconds per row (default: 1)", "S"},
    POPT_TABLEEND};

static const mha_dtype types[] = {MHA_F32, MHA_BF16, MHA_F16};
enum { TYPES = sizeof types / sizeof *types };

/* ---- selection of rows ---- */

/* Returns true if `name` is one of the comma-separated words of `list`. */
static bool is_listed(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *word = list; word; word = strchr(word, ',') ? strchr(word, ',') + 1 : NULL)
        if (strncmp(word, name, length) == 0 && (word[length] == ',' || word[length] == '\0')) return true;
    return false;
}

static bool is_row(const char *word, size_t length)
{
    for (const bench_row *row = bench_rows; row->name; row++)
        if (strlen(row->name) == length && strncmp(row->name, word, length) == 0) return true;
    return false;
}

static int check_rows(const cli_session *s)
{
    for (const char *word = given.rows; word; word = strchr(word, ',') ? strchr(word, ',') + 1 : NULL)
        if (!is_row(word, strcspn(word, ",")))
            return cli_usage(s, "--rows must be a list of row names (got \"%s\"); mha bench --help lists them",
                             cli_shown(word));
    return CLI_DONE;
}

static bool is_wanted_type(mha_dtype dtype)
{
    const char *want = given.dtype ? given.dtype : "f32";
    return strcmp(want, "all") == 0 || strcmp(want, mha_dtype_name(dtype)) == 0;
}

static int check_given(const cli_session *s)
{
    if (s->arg_count != 1 || strcmp(s->args[0], "attention") != 0)
        return cli_usage(s, "the argument must be \"attention\" (got \"%s\")",
                         s->arg_count ? cli_shown(s->args[s->arg_count - 1]) : "");
    char *end = NULL;
    if (given.seconds_text) given.seconds = cli_decimal(given.seconds_text, &end);
    if ((end && (end == given.seconds_text || *end)) || !(given.seconds > 0 && given.seconds <= 3600))
        return cli_usage(s, "--seconds must be a number above 0 and at most 3600 (got \"%s\")",
                         cli_shown(given.seconds_text));
    bool known = false;
    for (int i = 0; i < TYPES; i++)
        known = known || is_wanted_type(types[i]);
    if (!known) return cli_usage(s, "--dtype must be one of f32, bf16, f16, all (got \"%s\")", cli_shown(given.dtype));
    return check_rows(s);
}

/* ---- measurement ---- */

static int count_wanted(void)
{
    int count = 0;
    for (const bench_row *row = bench_rows; row->name; row++)
        for (int i = 0; i < TYPES; i++)
            count += (!given.rows || is_listed(given.rows, row->name)) && is_wanted_type(types[i]);
    return count;
}

static int measure_all(cli_session *s, bench_result *results, int count)
{
    int done = 0;
    for (const bench_row *row = bench_rows; row->name; row++)
        for (int i = 0; i < TYPES; i++) {
            if ((given.rows && !is_listed(given.rows, row->name)) || !is_wanted_type(types[i])) continue;
            cli_progress("rows", done, count);
            const int code = bench_attention(s, row, types[i], given.seconds, &results[done++]);
            if (code != CLI_DONE) return code;
        }
    cli_progress("rows", count, count);
    return CLI_DONE;
}

static int run(cli_session *s)
{
    int code = check_given(s);
    if (code != CLI_DONE) return code;
    const int count = count_wanted();
    bench_result *results = calloc((size_t)count, sizeof *results);
    if (!results) return cli_error(s, CLI_FAILED, "out of memory");
    code = measure_all(s, results, count);
    if (code == CLI_DONE) code = bench_print(s, results, count);
    free(results);
    return code;
}

static const char *const words[] = {"attention", NULL};

const cli_command cli_bench = {
    .name = "bench",
    .summary = "compare the attention operator with the limits of this machine",
    .usage = "attention",
    .details =
        "Rows: prefill, prefill-causal, bert-batch, grouped-causal, long, long-causal, small, decode-grouped, decode, "
        "decode-batch, decode-long, training, training-causal (forward and backward pass). The result lists the shape "
        "of each row. The last column is the fraction of the machine's limit, which is measured with each row: the "
        "rate of f32 multiply-adds or, for a single query, the bandwidth for reading K and V. If bf16 values are "
        "multiplied in pairs (amx, avx512bf16), this limit does not apply, and no fraction is printed.",
    .words = words,
    .shared = CLI_JSON | CLI_CSV,
    .options = options,
    .examples = "mha bench attention --rows decode,small --seconds 0.1\n",
    .run = run,
};
