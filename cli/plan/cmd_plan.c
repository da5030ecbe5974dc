/* cmd_plan.c - `mha plan`: lists the head layouts that a model's width allows, with the cost of each layout. */
#include "commands.h"
#include "options.h"
#include "output.h"
#include "plan/plan_hosts.h"
#include "plan/plan_print.h"
#include "plan/plan_train.h"
#include "session.h"
#include "word_wrap.h"
#include <stdlib.h>
#include <string.h>

static struct {
    const char *d_model, *heads, *layers, *vocab, *seq, *batch, *parameters, *prune, *experts, *top_k;
    const char *dtype, *seconds;
    int measure;
} given;

static const struct poptOption options[] = {
    {"d-model", 0, POPT_ARG_STRING, &given.d_model, 0, "width of the model", "N"},
    {"heads", 0, POPT_ARG_STRING, &given.heads, 0, "number of heads (default: head_dim 64 or 128)", "N"},
    {"layers", 0, POPT_ARG_STRING, &given.layers, 0, "number of layers (default: d_model / 128, at least 12)", "N"},
    {"vocab", 0, POPT_ARG_STRING, &given.vocab, 0, "size of the vocabulary (default: 32000)", "N"},
    {"seq", 0, POPT_ARG_STRING, &given.seq, 0, "tokens per sequence (default: 2048)", "N"},
    {"batch", 0, POPT_ARG_STRING, &given.batch, 0, "number of sequences (default: 1)", "N"},
    {"dtype", 0, POPT_ARG_STRING, &given.dtype, 0,
     "type of cached keys and values: f32, bf16, f16; default: f32, or bf16 with --weights bf16 or int8", "TYPE"},
    {"parameters", 0, POPT_ARG_STRING, &given.parameters, 0, "parameters of the whole model (default: estimated)", "N"},
    {"prune", 0, POPT_ARG_STRING, &given.prune, 0, "fraction of heads that pruning removes (default: 0.25)", "SHARE"},
    {"experts", 0, POPT_ARG_STRING, &given.experts, 0, "number of experts of moe (default: number of heads)", "N"},
    {"top-k", 0, POPT_ARG_STRING, &given.top_k, 0, "active experts per sequence (default: 2)", "N"},
    {"measure", 0, POPT_ARG_NONE, &given.measure, 0, "measure prefill and decode of each row on this machine", NULL},
    {"seconds", 0, POPT_ARG_STRING, &given.seconds, 0, "seconds per row with --measure (default: 0.2)", "S"},
    POPT_TABLEEND};

/* ---- options ---- */

static int read_wholes(const cli_session *s, mha_head_layout_options *model)
{
    const bool train = plan_train_given();
    const struct {
        const char *option, *text;
        int64_t *value;
        long long min, max;
    } wholes[] = {
        {"--d-model", given.d_model, &model->d_model, 1, 1LL << 20},
        {"--heads", given.heads, &model->heads, 1, 1LL << 20},
        {"--layers", given.layers, &model->layers, 1, train ? PLAN_TRAIN_LAYERS : 65536},
        {"--vocab", given.vocab, &model->vocab, 1, 1LL << 31},
        {"--seq", given.seq, &model->seq, train ? plan_train_min_seq() : 1, train ? PLAN_TRAIN_SEQ : 1LL << 32},
        {"--batch", given.batch, &model->batch, 1, 1LL << 20},
        {"--experts", given.experts, &model->experts, 1, 1LL << 20},
        {"--top-k", given.top_k, &model->top_k, 1, 1LL << 20},
        {"--parameters", given.parameters, &model->parameters, 1, 1000000000000000000},
    };
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        long long number = 0;
        const int code = cli_whole(s, wholes[i].option, wholes[i].text, wholes[i].min, wholes[i].max, &number);
        if (code != CLI_DONE) return code;
        *wholes[i].value = number;
    }
    return CLI_DONE;
}

/* Parses a number in the open interval between two bounds. */
static int read_real(const cli_session *s, const char *option, const char *text, double low, double high, double *value)
{
    if (!text) return CLI_DONE;
    char *end;
    *value = cli_decimal(text, &end);
    if (end != text && *end == '\0' && *value > low && *value < high) return CLI_DONE;
    return cli_usage(s, "%s must be a number above %g and below %g (got \"%s\")", option, low, high, cli_shown(text));
}

static int read_type(const cli_session *s, mha_head_layout_options *model)
{
    static const mha_dtype types[] = {MHA_F32, MHA_BF16, MHA_F16};
    for (size_t i = 0; given.dtype && i < sizeof types / sizeof *types; i++)
        if (strcmp(given.dtype, mha_dtype_name(types[i])) == 0) model->dtype = types[i];
    if (!given.dtype || model->dtype != MHA_DTYPE_DEFAULT) return CLI_DONE;
    return cli_usage(s, "--dtype must be one of f32, bf16, f16 (got \"%s\")", cli_shown(given.dtype));
}

/* With --hosts, options of head layouts are rejected, and with -m also those of a planned model. */
static int check_hosts(const cli_session *s)
{
    const struct {
        const char *option, *text;
    } others[] = {{"--prune", given.prune},     {"--experts", given.experts}, {"--top-k", given.top_k},
                  {"--seconds", given.seconds}, {"--d-model", given.d_model}, {"--heads", given.heads},
                  {"--layers", given.layers},   {"--vocab", given.vocab},     {"--parameters", given.parameters}};
    if (!plan_hosts_given()) return plan_hosts_absent(s);
    if (given.measure) return cli_usage(s, "--measure must not be given with --hosts");
    for (size_t i = 0; i < (plan_hosts_of_model() ? sizeof others / sizeof *others : 4); i++)
        if (others[i].text)
            return cli_usage(s, "%s must not be given with %s (got \"%s\")", others[i].option, i < 4 ? "--hosts" : "-m",
                             cli_shown(others[i].text));
    if (given.d_model || plan_hosts_of_model()) return CLI_DONE;
    return cli_usage(s, "missing --d-model N or -m MODEL");
}

/* With --train, options of other results are rejected. */
static int check_train(const cli_session *s)
{
    const struct {
        const char *option, *text;
    } others[] = {{"--vocab", given.vocab},
                  {"--parameters", given.parameters},
                  {"--experts", given.experts},
                  {"--seconds", given.seconds}};
    if (!plan_train_given()) return plan_train_absent(s);
    if (plan_hosts_given()) return cli_usage(s, "--train must not be given with --hosts");
    if (!given.measure) return cli_usage(s, "--train requires --measure");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].text)
            return cli_usage(s, "%s must not be given with --train (got \"%s\")", others[i].option,
                             cli_shown(others[i].text));
    return CLI_DONE;
}

static int read_given(const cli_session *s, mha_head_layout_options *model, double *seconds)
{
    if (s->arg_count > 0)
        return cli_usage(s, "unexpected argument \"%s\": this command accepts only options", cli_shown(s->args[0]));
    int code = check_train(s);
    if (code == CLI_DONE) code = check_hosts(s);
    if (code != CLI_DONE) return code;
    if (!given.d_model && !plan_hosts_given() && !plan_train_given()) return cli_usage(s, "missing --d-model N");
    if (given.seconds && !given.measure)
        return cli_usage(s, "--seconds \"%s\" requires --measure", cli_shown(given.seconds));
    code = read_wholes(s, model);
    if (code == CLI_DONE) code = read_type(s, model);
    if (code == CLI_DONE) code = read_real(s, "--prune", given.prune, 0, 1, &model->prune);
    if (code == CLI_DONE) code = read_real(s, "--seconds", given.seconds, 0, 3600, seconds);
    return code;
}

/* ---- measurement ---- */

static int measure_row(cli_session *s, const mha_head_layout_options *model, mha_head_layout *row, double seconds)
{
    mha_error error = {0};
    if (row->left_out || row->refused) return CLI_DONE;
    if (mha_head_layout_measure(s->ctx, model, row, seconds, &error) != MHA_OK) return cli_fail(s, &error);
    return cli_stopped();
}

static int measure(cli_session *s, plan_result *r, double seconds)
{
    const int all = r->layout_count + MHA_HEAD_LAYOUT_VARIANTS;
    int code = CLI_DONE;
    for (int i = 0; i < all && code == CLI_DONE; i++) {
        cli_progress("rows", i, all);
        mha_head_layout *row = i < r->layout_count ? &r->layouts[i] : &r->variants[i - r->layout_count];
        code = measure_row(s, &r->model, row, seconds);
    }
    if (code == CLI_DONE) cli_progress("rows", all, all);
    return code;
}

static int count(cli_session *s, const mha_head_layout_options *model, plan_result *r)
{
    mha_error error = {0};
    r->estimated = model->parameters == 0;
    if (mha_head_layout_resolve(model, &r->model, &error) != MHA_OK ||
        mha_head_layouts(model, r->layouts, &r->layout_count, &error) != MHA_OK ||
        mha_head_layout_variants(model, r->variants, &error) != MHA_OK ||
        mha_head_layout_advise(model, &r->advice, &error) != MHA_OK)
        return cli_fail(s, &error);
    return CLI_DONE;
}

static int run(cli_session *s)
{
    mha_head_layout_options model = {.size = sizeof model};
    double seconds = 0.2;
    int code = read_given(s, &model, &seconds);
    if (code != CLI_DONE) return code;
    if (plan_hosts_given()) return plan_hosts(s, &model);
    if (plan_train_given()) return plan_train(s, model);
    plan_result *result = calloc(1, sizeof *result);
    if (!result) return cli_error(s, CLI_FAILED, "out of memory");
    result->measured = given.measure;
    code = count(s, &model, result);
    if (code == CLI_DONE && given.measure) code = measure(s, result, seconds);
    if (code == CLI_DONE) code = plan_print(s, result);
    free(result);
    return code;
}

static void put_entry(FILE *out, int columns, const char *key, const char *text)
{
    enum { MARGIN = 12 };
    fprintf(out, "  %-*s", MARGIN - 2, key);
    cli_put_wrapped(out, columns, MARGIN, MARGIN, text);
}

static void print_lists(FILE *out, int columns)
{
    fputs("\nVariants:\n", out);
    for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++)
        put_entry(out, columns, mha_head_layout_variant_key((mha_head_layout_variant)v),
                  mha_head_layout_variant_help((mha_head_layout_variant)v));
    fputs("\nJobs:\n", out);
    for (int n = 0; n < MHA_HOST_JOBS; n++)
        put_entry(out, columns, mha_host_job_key((mha_host_job)n), mha_host_job_help((mha_host_job)n));
    fputs("\nNetworks:\n", out);
    for (int n = 0; n < MHA_HOST_NETWORKS; n++)
        put_entry(out, columns, mha_host_network_key(n), mha_host_network_help(n));
    put_entry(out, columns, "S:N", "latency of a message in seconds, and bytes per second, such as 50e-6:117e6");
}

static const cli_option_group groups[] = {
    {"Training:", plan_train_options}, {"Hosts:", plan_hosts_options}, {NULL, NULL}};

const cli_command cli_plan = {
    .name = "plan",
    .summary = "compare head layouts for a new model: parameters, cache, time",
    .usage = "--d-model N|-m MODEL|--measure --train",
    .details = "The layouts have 1 to 64 heads in groups that share keys and values; they are sorted by parameters. "
               "Parameters are counted for the attention of one layer, without biases unless stated; reduction is the "
               "fraction saved compared with full-width query, key, value and output projections. Operations, cache "
               "and times are totals over all layers.\n"
               "With --train, a small model of each variant is trained from random weights, with several seeds. All "
               "variants have the same batches and steps, and feed-forward widths with which their numbers of "
               "parameters agree within 1 %. The default is a decoder with --d-model 128 --heads 8 --layers 2 --seq 64 "
               "--batch 16. With -t 1, step times are CPU times. The --json result has config.json of each variant; "
               "from it, mha train computes the same losses.\n"
               "With --hosts, each row is a layout of an mha-mpi job over several hosts: the heads of each layer are "
               "divided among tp hosts (mha-mpi --tp), the tokens of a text among cp hosts, and the texts among dp "
               "hosts. Memory is per host. Time is the sum of compute, during which hidden messages are sent, and of "
               "exposed messages.\n"
               "--json prints {model, rows, variants, recommendation}, with --train {model, training, variants}, "
               "with --hosts {model, job, hosts, memory, speed, rows, smallest, fastest}.",
    .lists = print_lists,
    .shared = CLI_JSON | CLI_CSV,
    .options = options,
    .groups = groups,
    .examples = "mha plan --d-model 768\n"
                "mha plan --d-model 1024 --heads 16 --seq 8192 --dtype bf16 --csv\n"
                "mha plan --measure --train --d-model 32 --heads 4 --steps 10 --seeds 2\n"
                "mha plan -m minilm --job heads --hosts 8 --network 10gbe --batch 100000\n"
                "mha plan --d-model 8192 --hosts 8 --network 100gbe --job generate --memory 64G\n",
    .run = run,
};
