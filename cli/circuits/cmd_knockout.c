/* cmd_knockout.c - `mha knockout`: what happens to the answer if tokens cannot attend to other tokens. */
#include "circuits/prompt_report.h"
#include "commands.h"
#include "input/input.h"
#include "options.h"
#include "output.h"
#include "page/page_file.h"
#include <stdlib.h>
#include <string.h>

static prompt_request request = {.alone = true};
static struct {
    const char *from, *to, *heads, *layers, *mode, *metric, *sweep, *top;
} given;

static const struct poptOption options[] = {
    {"answer", 0, POPT_ARG_STRING, &request.answer, 0, "right answer, one token with its leading space", "TEXT"},
    {"wrong", 0, POPT_ARG_STRING, &request.wrong, 0, "answer to compare with, one token", "TEXT"},
    {"position", 0, POPT_ARG_STRING, &request.position, 0, "token that predicts the answer (default: the last)",
     "TOKEN"},
    {"from", 0, POPT_ARG_STRING, &given.from, 0, "token that attends, or all (default: the position)", "TOKEN"},
    {"to", 0, POPT_ARG_STRING, &given.to, 0, "token that is hidden, or all", "TOKEN"},
    {"heads", 0, POPT_ARG_STRING, &given.heads, 0, "heads, as in 1.0,1.3-1.6 (default: all)", "L.H,..."},
    {"layers", 0, POPT_ARG_STRING, &given.layers, 0, "layers, as in 0-1 (default: all)", "A-B"},
    {"mode", 0, POPT_ARG_STRING, &given.mode, 0, "renorm or zero (default: renorm)", "MODE"},
    {"sweep", 0, POPT_ARG_STRING, &given.sweep, 0, "head, layer, all, column or row (default: head)", "PART"},
    {"metric", 0, POPT_ARG_STRING, &given.metric, 0,
     "logit-diff (default with --wrong), logprob (default without) or kl", "METRIC"},
    {"top", 0, POPT_ARG_STRING, &given.top, 0, "number of largest parts to list (default: 5)", "N"},
    POPT_TABLEEND};

static const char *const sweep_names[] = {"head", "layer", "all", "column", "row"};

/* ---- edges ---- */

typedef struct edges {
    mha_attention_edge *list;
    int64_t count;
} edges;

static int append(const cli_session *s, edges *e, mha_attention_edge edge)
{
    mha_attention_edge *list = realloc(e->list, (size_t)(e->count + 1) * sizeof *list);
    if (!list) return cli_error(s, CLI_FAILED, "out of memory for edges");
    e->list = list;
    list[e->count++] = edge;
    return CLI_DONE;
}

static int head_error(const cli_session *s, const char *text)
{
    return cli_usage(s, "--heads must be heads of the model, such as 1.0,1.3-1.6 (got \"%s\")",
                     cli_shown_start(text, 40));
}

/* Appends the heads of --heads: "1.0" or the range "1.3-1.6" in one layer. */
static int add_heads(const cli_session *s, const mha_model *model, int64_t query, int64_t key, edges *e)
{
    for (const char *text = given.heads, *end; text; text = *end ? end + 1 : NULL) {
        mha_model_head first, last;
        end = cli_head(text, &first);
        last = first;
        if (end && *end == '-') end = cli_head(end + 1, &last);
        if (!end || (*end && *end != ',') || first.layer != last.layer || first.head > last.head)
            return head_error(s, text);
        for (int32_t h = first.head; h <= last.head; h++) {
            const int64_t place = mha_head_place(model, first.layer, h);
            if (place < 0) return head_error(s, text);
            const int code = append(s, e, (mha_attention_edge){first.layer, place, query, key});
            if (code != CLI_DONE) return code;
        }
    }
    return CLI_DONE;
}

static int add_layers(const cli_session *s, const mha_model *model, int64_t query, int64_t key, edges *e)
{
    char *end = NULL;
    const int64_t layers = mha_model_describe(model)->layers;
    const long long first = strtoll(given.layers, &end, 10), last = *end == '-' ? strtoll(end + 1, &end, 10) : first;
    int code = CLI_DONE;
    if (*end || end == given.layers || first < 0 || last < first || last >= layers)
        return cli_usage(s, "--layers must be N or A-B with layers below %lld (got \"%s\")", (long long)layers,
                         cli_shown(given.layers));
    for (long long layer = first; code == CLI_DONE && layer <= last; layer++)
        code = append(s, e, (mha_attention_edge){layer, -1, query, key});
    return code;
}

/* Reads a token of an edge; "all" is -1. */
static int read_token(const cli_session *s, const mha_model *model, const prompt_case *one, const char *option,
                      const char *text, int64_t otherwise, int64_t *token)
{
    const bool all = text && strcmp(text, "all") == 0;
    *token = all ? -1 : otherwise;
    return text && !all ? prompt_position(s, model, one, option, text, token) : CLI_DONE;
}

static int read_edges(const cli_session *s, const mha_model *model, const prompt_case *one, edges *e)
{
    int64_t query = 0, key = 0;
    if (given.heads && given.layers) return cli_usage(s, "--heads and --layers are mutually exclusive");
    int code = read_token(s, model, one, "--from", given.from, one->position, &query);
    if (code == CLI_DONE) code = read_token(s, model, one, "--to", given.to, -1, &key);
    if (code != CLI_DONE) return code;
    return given.heads    ? add_heads(s, model, query, key, e)
           : given.layers ? add_layers(s, model, query, key, e)
                          : append(s, e, (mha_attention_edge){-1, -1, query, key});
}

/* ---- results ---- */

/* Removes the edges of the options together. */
static int knock_out(cli_session *s, const prompt_report *r, mha_knockout_mode mode, effect_grid *g)
{
    edges e = {0};
    double metrics[MHA_CIRCUIT_METRICS], clean[MHA_CIRCUIT_METRICS];
    mha_error error = {0};
    const int64_t one = 1;
    int code = read_edges(s, r->model, &r->cases->list[0], &e);
    if (code == CLI_DONE && mha_knockout(r->first, MHA_RUN_CLEAN, mode, e.list, e.count, metrics, &error) != MHA_OK)
        code = cli_refuse(s, &error);
    mha_prompt_pair_metrics(r->first, MHA_RUN_CLEAN, clean, NULL);
    g->by = "edges";
    g->axes[0] = "edges";
    snprintf(g->title, sizeof g->title, "knockout of the given edges, %s", g->site);
    if (code == CLI_DONE && !effect_grid_open(g, 1, &one)) code = cli_error(s, CLI_FAILED, "out of memory for results");
    if (code == CLI_DONE) effect_grid_add(g, &metrics[r->metric], clean[r->metric], clean[r->metric], clean[r->metric]);
    free(e.list);
    return code;
}

/* Removes the edges of every part of a sweep. */
static int sweep(cli_session *s, const prompt_report *r, mha_knockout_mode mode, mha_knockout_sweep which,
                 effect_grid *g)
{
    static const char *const axes[][3] = {
        {"layer", "head", "key"}, {"layer", "key"}, {"key"}, {"layer", "key"}, {"layer", "head"}};
    int64_t shape[3], count = 1;
    mha_error error = {0};
    double clean[MHA_CIRCUIT_METRICS];
    const int rank = mha_knockout_shape(r->first, which, shape);
    for (int n = 0; n < rank; n++)
        count *= shape[n];
    double *values = calloc((size_t)count * MHA_CIRCUIT_METRICS, sizeof *values);
    if (!values) return cli_error(s, CLI_FAILED, "out of memory for results");
    mha_prompt_pair_metrics(r->first, MHA_RUN_CLEAN, clean, NULL);
    g->by = sweep_names[which];
    memcpy(g->axes, axes[which], sizeof g->axes);
    snprintf(g->title, sizeof g->title, "knockout by %s, %s", g->by, g->site);
    int code = mha_knockout_each(r->first, mode, which, values, &error) == MHA_OK ? CLI_DONE : cli_refuse(s, &error);
    if (code == CLI_DONE && !effect_grid_open(g, rank, shape))
        code = cli_error(s, CLI_FAILED, "out of memory for results");
    if (code == CLI_DONE)
        effect_grid_add(g, values + (int)r->metric * count, clean[r->metric], clean[r->metric], clean[r->metric]);
    free(values);
    return code;
}

static int measure(cli_session *s, const mha_model *model, const prompt_cases *cases)
{
    long long top = 5;
    int mode = -1, which = -1;
    mha_prompt_pair *pair = NULL;
    mha_circuit_metric metric;
    int code = prompt_metric(s, given.metric, &request, &metric);
    if (code == CLI_DONE) code = cli_whole(s, "--top", given.top, 0, 1000, &top);
    for (int n = 0; n < 5; n++)
        if (strcmp(given.sweep ? given.sweep : "head", sweep_names[n]) == 0) which = n;
    mode = !given.mode || strcmp(given.mode, "renorm") == 0 ? 0 : strcmp(given.mode, "zero") == 0 ? 1 : -1;
    if (code == CLI_DONE && which < 0)
        code = cli_usage(s, "--sweep must be head, layer, all, column or row (got \"%s\")", cli_shown(given.sweep));
    if (code == CLI_DONE && mode < 0)
        code = cli_usage(s, "--mode must be renorm or zero (got \"%s\")", cli_shown(given.mode));
    const bool chosen = given.from || given.to || given.heads || given.layers;
    if (code == CLI_DONE && chosen && given.sweep)
        code = cli_usage(s, "--sweep must not be given with --from, --to, --heads or --layers");
    if (code == CLI_DONE) code = prompt_pair_open(s, model, &cases->list[0], &pair);
    if (code != CLI_DONE) return code;
    effect_grid grid = {.model = model,
                        .head_site = MHA_SITE_Z,
                        .site = mode ? "zero" : "renorm",
                        .metric = prompt_metric_name(metric)};
    prompt_report r = {model, cases, pair, metric, (int)top, &grid, 1};
    code = chosen ? knock_out(s, &r, (mha_knockout_mode)mode, &grid)
                  : sweep(s, &r, (mha_knockout_mode)mode, (mha_knockout_sweep)which, &grid);
    if (code == CLI_DONE) effect_grid_finish(&grid, true);
    if (code == CLI_DONE) code = prompt_report_put(s, &r);
    effect_grid_free(&grid);
    mha_prompt_pair_free(pair);
    return code;
}

static int run(cli_session *s)
{
    prompt_cases cases = {0};
    mha_model *model = NULL;
    int code = page_file_check(s);
    if (code == CLI_DONE) code = cli_model_open(s, NULL, &model);
    if (code == CLI_DONE) code = prompt_cases_read(s, model, &request, &cases);
    if (code == CLI_DONE) code = measure(s, model, &cases);
    prompt_cases_free(&cases);
    mha_model_free(model);
    return code;
}

const cli_command cli_knockout = {
    .name = "knockout",
    .summary = "attention knockout: remove attention edges",
    .usage = "TEXT",
    .details =
        "Runs a prompt without some attention weights, and prints the metric of the answer in nats: its logit minus "
        "that of --wrong, or its log-probability. With --from, "
        "--to, --heads or --layers, these edges are removed together; otherwise --sweep removes one part after "
        "another: the edge from the position to each token in every head (head), in all heads of a layer (layer) or "
        "in all layers (all), all edges to a token from other tokens in a layer (column), or all edges from the "
        "position "
        "in a head (row). --mode renorm masks keys before the softmax, so that other keys get their weight; zero "
        "sets weights to 0 after it.\n"
        "--json prints {model, case, metrics, site, by, metric, exact, axes, raw, normalised}, where site is the "
        "mode and normalised is null. -o OUT writes a page with the grid and the maps, or a figure of the "
        "grid if the name ends in .png, .svg or .pdf.",
    .shared = CLI_MODEL | CLI_IDS | CLI_OUT | CLI_JSON | CLI_CSV,
    .options = options,
    .examples = "mha knockout \" red cat key boat hat drum red cat key\" \\\n"
                "    --answer \" boat\" --wrong \" ring\"\n"
                "mha knockout \" red cat key boat hat drum red cat key\" \\\n"
                "    --answer \" boat\" --wrong \" ring\" --from -1 --to 3 --heads 1.0,1.3-1.6\n",
    .run = run,
};
