/* cmd_circuit.c - `mha circuit`: measures heads from the weights alone: copying, number of directions, composition. */
#include "commands.h"
#include "input/input.h"
#include "lens/circuit_output.h"
#include "options.h"
#include "output.h"
#include "page/page_file.h"
#include <string.h>

static struct {
    const char *compose, *singular;
    int raw;
} given;

static const struct poptOption options[] = {
    {"compose", 0, POPT_ARG_STRING, &given.compose, 0, "composition to show: q, k (default) or v", "KIND"},
    {"singular", 0, POPT_ARG_STRING, &given.singular, 0, "also list the singular values of this head", "L.H"},
    {"raw", 0, POPT_ARG_NONE, &given.raw, 0, "use the weights as stored, without folding norms (required for BERT)",
     NULL},
    POPT_TABLEEND};

static int read_options(const cli_session *s, circuits *x)
{
    const char *const kinds = "qkv", *found = given.compose && *given.compose ? strchr(kinds, *given.compose) : NULL;
    if (given.compose && (!found || given.compose[1]))
        return cli_usage(s, "--compose must be q, k or v (got \"%s\")", cli_shown(given.compose));
    if (found) x->compose = (mha_circuit_kind)(MHA_CIRCUIT_COMPOSE_Q + (found - kinds));
    const char *end = given.singular ? cli_head(given.singular, &x->singular) : "";
    if (!end || *end)
        return cli_usage(s, "--singular must be a head such as 0.5 (got \"%s\")", cli_shown(given.singular));
    if (s->arg_count) return cli_usage(s, "no text is needed (got \"%s\")", cli_shown(s->args[0]));
    return page_file_check(s);
}

/* Converts the number of --singular in the unpruned model to a position. */
static int find_singular(const cli_session *s, circuits *x)
{
    if (x->singular.layer < 0) return CLI_DONE;
    const int64_t place =
        x->singular.layer < x->info->layers ? mha_head_place(x->model, x->singular.layer, x->singular.head) : -1;
    if (place < 0)
        return cli_usage(s, "--singular must be a head of the model (got %d.%d)", (int)x->singular.layer,
                         (int)x->singular.head);
    x->singular.head = (int32_t)place;
    return CLI_DONE;
}

static const cli_word words[] = {{"weight circuits: raw must be set", "--raw is required"}, {NULL, NULL}};

static int run(cli_session *s)
{
    circuits x = {.compose = MHA_CIRCUIT_COMPOSE_K, .singular = {.layer = -1}, .raw = given.raw != 0};
    const mha_weight_circuits_options o = {.size = sizeof o, .raw = given.raw};
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    mha_error error = {0};
    mha_model *model = NULL;
    cli_message_words(words);
    int code = read_options(s, &x);
    if (code == CLI_DONE) code = cli_model_open(s, &bare, &model);
    if (code != CLI_DONE) return code;
    x.model = model;
    x.info = mha_model_describe(model);
    code = find_singular(s, &x);
    if (code == CLI_DONE && mha_weight_circuits_measure(model, &o, &x.c, &error) != MHA_OK)
        code = cli_refuse(s, &error);
    if (code == CLI_DONE) code = circuits_put(s, &x);
    mha_weight_circuits_free(x.c);
    mha_model_free(model);
    return code;
}

const cli_command cli_circuit = {
    .name = "circuit",
    .summary = "measure heads from the weights: copying, composition",
    .usage = "",
    .details =
        "No text is needed. The table shows for every head the copying score (1: attending to a token increases its "
        "logit, -1: decreases it; the mean logit is subtracted), and of the QK and the OV circuit the largest "
        "singular value and the number of directions that carry the circuit. Below it are the pairs of heads that "
        "compose most strongly: how much of what the first head writes is read by the queries, keys or values of "
        "the second, compared with random heads.\n"
        "Norms are folded into the weights. Measures that are not defined for a family are listed with the reason; "
        "BERT and other post-norm models require --raw.\n"
        "-o FILE.html writes maps of copying and of all three compositions, and a name that ends in .png, .svg or .pdf "
        "a figure of them. --json prints {model, raw, heads, "
        "baseline, singular: {qk, qk_previous, ov: [layers][heads][values]}, composition: {compose_q, compose_k, "
        "compose_v: [senders][receivers]}, undefined: {measure: reason}, copying_centred, copying, trace: "
        "[layers][heads]}; --csv prints one line per head.",
    .shared = CLI_MODEL | CLI_OUT | CLI_JSON | CLI_CSV,
    .options = options,
    .examples = "mha circuit\n"
                "mha circuit --compose v --singular 0.5\n",
    .run = run,
};
