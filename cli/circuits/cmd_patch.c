/* cmd_patch.c - `mha patch`: what happens to the answer if one part of a run is taken from another run. */
#include "circuits/head_numbers.h"
#include "circuits/patch_plan.h"
#include "circuits/prompt_report.h"
#include "commands.h"
#include "heads/state_path.h"
#include "input/input.h"
#include "options.h"
#include "output.h"
#include "page/page_file.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GRIDS_MAX = 2 * MHA_SITES, MANY_PASSES = 10000, SKIPPED = -1 };

/* ---- patching one pair ---- */

static mha_patch_by by_of(const patch_plan *p, mha_site site)
{
    return p->by_given ? p->by : site >= MHA_SITE_Q ? MHA_BY_HEAD : MHA_BY_POSITION;
}

/* Reports the cost before long work. */
static void tell_cost(const cli_session *s, const patch_plan *p, const mha_prompt_pair *pair, int64_t pairs)
{
    int64_t passes = 0;
    if (p->edges) passes = pairs * mha_path_edge_count(pair) * (p->direction[0] + p->direction[1]);
    for (int site = 0; p->exact && !p->path && site < MHA_SITES; site++)
        for (int d = 0; p->site[site] && d < 2; d++)
            if (p->direction[d])
                passes +=
                    pairs * mha_patch_passes(pair, (mha_site)site, by_of(p, (mha_site)site), (mha_patch_direction)d);
    if (passes > MANY_PASSES)
        cli_say(s, "%lld passes%s", (long long)passes,
                p->edges ? "" : "; --estimate attr estimates them in 3 passes per pair");
}

/* Patches all parts of a grid; with --state, the file of pair N is FILE.N.SITE.DIRECTION. */
static mha_status patch_exactly(const patch_plan *p, const mha_prompt_pair *pair, int64_t number, mha_site site,
                                mha_patch_direction direction, double *out, mha_error *error)
{
    state_path memory;
    char word[STATE_PATH_WORD + 1];
    snprintf(word, sizeof word, "%lld.%s.%s", (long long)number, mha_site_name(site), patch_direction_names[direction]);
    return mha_patch_resume(pair, site, by_of(p, site), direction, state_path_of(0, word, &memory), out, error);
}

/* Computes the metrics of all parts of a grid: exact, or the base metric plus the estimated change. */
static mha_status measure(const patch_plan *p, const mha_prompt_pair *pair, mha_site site,
                          mha_patch_direction direction, const double *base, int64_t count, const effect_grid *g,
                          double *out, mha_error *error)
{
    const mha_patch_by by = by_of(p, site);
    if (p->edges) return mha_path_edges(pair, direction, g->edges, out, error);
    if (p->path) return mha_path_patch(pair, p->to, direction, out, error);
    if (p->exact) return patch_exactly(p, pair, g->pairs + 1, site, direction, out, error);
    const mha_status status = mha_attribution(pair, p->estimate, site, by, direction, out, error);
    for (int m = 0; m < MHA_CIRCUIT_METRICS; m++)
        for (int64_t n = 0; status == MHA_OK && n < count; n++)
            out[m * count + n] += base[m];
    return status;
}

/* ---- grids ---- */

/* Sets the shape and axes of a grid of paths. */
static int shape_paths(const patch_plan *p, const mha_prompt_pair *pair, const mha_model_info *m, effect_grid *g,
                       int64_t *shape)
{
    static const mha_site sites[] = {MHA_SITE_Q, MHA_SITE_K, MHA_SITE_V, MHA_SITE_Z};
    int64_t receivers[3] = {0, 1, 0};
    const bool logits = p->to == MHA_PATH_LOGITS;
    g->head_site = sites[p->to];
    if (!logits) mha_patch_shape(pair, g->head_site, MHA_BY_HEAD, receivers);
    shape[0] = m->layers * m->heads;
    shape[1] = logits ? 1 : m->layers * receivers[1];
    g->heads[0] = m->heads;
    g->heads[1] = receivers[1];
    g->axes[0] = "sender";
    g->axes[1] = "receiver";
    return logits ? 1 : 2;
}

/* Reduces the paths to a single sender: the receivers by layer and head, or one value for the logits. */
static int shape_sender(const patch_plan *p, const mha_model_info *m, effect_grid *g, int64_t *shape)
{
    snprintf(g->sender, sizeof g->sender, "%s", p->sender_name);
    snprintf(g->title, sizeof g->title, "%s by path from %s, %s", g->site, g->sender, g->direction);
    shape[0] = p->to == MHA_PATH_LOGITS ? 1 : m->layers;
    shape[1] = g->heads[1];
    memset(g->heads, 0, sizeof g->heads);
    memcpy(g->axes, (const char *[]){p->to == MHA_PATH_LOGITS ? "sender" : "layer", "head", NULL}, sizeof g->axes);
    return p->to == MHA_PATH_LOGITS ? 1 : 2;
}

/* Sets the shape and names of the list of all edges. */
static int shape_edges(const mha_prompt_pair *pair, effect_grid *g, int64_t *shape)
{
    g->site = "edge";
    memcpy(g->axes, (const char *[]){"edge", NULL, NULL}, sizeof g->axes);
    shape[0] = mha_path_edge_count(pair);
    return 1;
}

/* Sets the shape and names of a grid; returns false if the site does not have the granularity. */
static bool shape_grid(const patch_plan *p, const mha_prompt_pair *pair, mha_site site, int d, const mha_model_info *m,
                       effect_grid *g, int *rank, int64_t *shape)
{
    static const char *const axes[][3] = {{"layer", "position"}, {"layer", "head"}, {"layer", "head", "position"}};
    const mha_patch_by by = by_of(p, site);
    *g = (effect_grid){.model = p->model,
                       .head_site = site,
                       .site = p->path ? patch_receiver_names[p->to] : mha_site_name(site),
                       .by = p->path ? "path" : patch_by_names[by],
                       .direction = patch_direction_names[d],
                       .patched = site,
                       .run = d,
                       .metric = prompt_metric_name(p->metric),
                       .estimate = p->exact ? NULL : patch_estimate_names[p->estimate]};
    if (!p->path) memcpy(g->axes, axes[by], sizeof g->axes);
    *rank = p->edges  ? shape_edges(pair, g, shape)
            : p->path ? shape_paths(p, pair, m, g, shape)
                      : mha_patch_shape(pair, site, by, shape);
    if (p->edges)
        snprintf(g->title, sizeof g->title, "direct paths, %s", g->direction);
    else
        snprintf(g->title, sizeof g->title, "%s by %s, %s", g->site, g->by, g->direction);
    return *rank > 0;
}

/* Copies the metric of a grid; of paths from one head, only the row of the sender, by layer and head. */
static void add(const patch_plan *p, const mha_prompt_pair *pair, int d, const double *values, int64_t count,
                const mha_model_info *m, effect_grid *g)
{
    double clean[MHA_CIRCUIT_METRICS], corrupted[MHA_CIRCUIT_METRICS];
    mha_prompt_pair_metrics(pair, MHA_RUN_CLEAN, clean, NULL);
    mha_prompt_pair_metrics(pair, MHA_RUN_CORRUPTED, corrupted, NULL);
    const double *from = values + (int)p->metric * count;
    if (p->path && !p->path_all) from += (p->sender.layer * m->heads + p->sender.head) * g->measured;
    effect_grid_add(g, from, d == MHA_NOISE ? clean[p->metric] : corrupted[p->metric], clean[p->metric],
                    corrupted[p->metric]);
}

/* Measures one grid of a pair, and adds it to the grid; opens the grid with the first pair. */
static int measure_grid(cli_session *s, const patch_plan *p, const mha_prompt_pair *pair, mha_site site, int d,
                        const mha_model_info *m, effect_grid *g)
{
    effect_grid shaped;
    int rank = 0;
    int64_t shape[3] = {1, 1, 1}, count = 1;
    double base[MHA_CIRCUIT_METRICS];
    mha_error error = {0};
    if (!shape_grid(p, pair, site, d, m, &shaped, &rank, shape))
        return p->all_sites ? SKIPPED
                            : cli_usage(s, "--by must be %s for %s (got \"%s\")",
                                        site >= MHA_SITE_Q ? "head or head-position" : "position", mha_site_name(site),
                                        patch_by_names[by_of(p, site)]);
    for (int n = 0; n < rank; n++)
        count *= shape[n];
    double *values = calloc((size_t)count * MHA_CIRCUIT_METRICS, sizeof *values);
    mha_prompt_pair_metrics(pair, d == MHA_NOISE ? MHA_RUN_CLEAN : MHA_RUN_CORRUPTED, base, NULL);
    if (p->edges && !g->edges) g->edges = calloc((size_t)count, sizeof *g->edges);
    shaped.edges = g->edges;
    if (!values || (p->edges && !g->edges)) return cli_error(s, CLI_FAILED, "out of memory for results");
    int code = CLI_DONE;
    if (measure(p, pair, site, (mha_patch_direction)d, base, count, g, values, &error) != MHA_OK)
        code = p->all_sites && error.status == MHA_ERR_UNSUPPORTED ? SKIPPED : cli_reject(s, &error);
    if (code == SKIPPED) cli_say(s, "skipping %s: %s", mha_site_name(site), error.message);
    if (code == CLI_DONE && !g->change) {
        *g = shaped;
        if (p->path && !p->path_all) rank = shape_sender(p, m, g, shape);
        if (!effect_grid_open(g, rank, shape)) code = cli_error(s, CLI_FAILED, "out of memory for results");
    }
    if (code == CLI_DONE) add(p, pair, d, values, count, m, g);
    free(values);
    return code;
}

/* ---- exact values of the largest estimates ---- */

/* Returns the part of an element; its head by position, as the library numbers heads. */
static mha_patch_part part_of(const effect_grid *g, mha_site site, mha_patch_by by, int64_t n)
{
    const int64_t last = g->shape[g->rank - 1];
    mha_patch_part part = {site, n / last, -1, -1};
    if (by == MHA_BY_POSITION) part.position = n % last;
    if (by == MHA_BY_HEAD) part.head = n % last;
    if (by == MHA_BY_HEAD_POSITION)
        part = (mha_patch_part){site, n / last / g->shape[1], n / last % g->shape[1], n % last};
    if (part.head >= 0) part.head = head_place(g->model, site, part.layer, part.head);
    return part;
}

/* Patches the largest parts of an estimate, and prints both values. */
static int check_largest(cli_session *s, const patch_plan *p, const prompt_report *r, const effect_grid *g,
                         mha_site site, mha_patch_direction direction)
{
    char name[EFFECT_PART];
    bool *taken = calloc((size_t)g->count, sizeof *taken);
    int code = taken ? CLI_DONE : cli_error(s, CLI_FAILED, "out of memory for results");
    fprintf(s->out, "\n%s: the largest estimates and their exact values\n", g->title);
    for (long long k = 0; code == CLI_DONE && k < p->verify && k < g->count; k++) {
        double exact[MHA_CIRCUIT_METRICS];
        mha_error error = {0};
        const int64_t best = effect_grid_next(g, taken);
        if (best < 0) break;
        const mha_patch_part part = part_of(g, site, by_of(p, site), best);
        if (mha_patch_together(r->first, direction, &part, 1, exact, &error) != MHA_OK) {
            code = cli_refuse(s, &error);
            break;
        }
        const double value = g->raw ? exact[p->metric] : mha_patch_normalized(exact[p->metric], g->clean, g->corrupted);
        fprintf(s->out, "  %s %s estimate %.3f exact %.3f\n", effect_grid_part(g, &r->cases->list[0], best, name),
                g->site, g->value[best], value);
    }
    free(taken);
    return code;
}

static int check_all(cli_session *s, const patch_plan *p, const prompt_report *r)
{
    int code = CLI_DONE;
    if (!p->verify) return CLI_DONE;
    for (int n = 0; code == CLI_DONE && n < r->count; n++)
        code = check_largest(s, p, r, &r->grids[n], r->grids[n].patched, (mha_patch_direction)r->grids[n].run);
    return code;
}

/* ---- all pairs ---- */

static int measure_pair(cli_session *s, const patch_plan *p, const mha_prompt_pair *pair, const mha_model *model,
                        prompt_report *r)
{
    int code = CLI_DONE;
    r->count = 0;
    for (int site = 0; site < MHA_SITES; site++)
        for (int d = 0; (p->path ? site == 0 : p->site[site]) && d < 2; d++) {
            if (!p->direction[d] || code != CLI_DONE) continue;
            code = measure_grid(s, p, pair, (mha_site)site, d, mha_model_describe(model), &r->grids[r->count]);
            r->count += code == CLI_DONE;
            if (code == SKIPPED) code = CLI_DONE;
        }
    return code;
}

static bool needs_same_length(const patch_plan *p)
{
    bool positions = false;
    for (int site = 0; !p->path && site < MHA_SITES; site++)
        positions = positions || (p->site[site] && by_of(p, (mha_site)site) != MHA_BY_HEAD);
    return positions;
}

static int measure_all(cli_session *s, const patch_plan *p, const mha_model *model, const prompt_cases *cases)
{
    effect_grid grids[GRIDS_MAX] = {0};
    mha_prompt_pair *first = NULL;
    prompt_report r = {model, cases, NULL, p->metric, (int)p->top, grids, 0};
    int code = CLI_DONE;
    if (!cases->same_length && needs_same_length(p))
        return cli_usage(s, "results by position require pairs of the same length; use --by head");
    for (int64_t n = 0; code == CLI_DONE && n < cases->count; n++) {
        mha_prompt_pair *pair = NULL;
        code = prompt_pair_open(s, model, &cases->list[n], &pair);
        if (code == CLI_DONE && n == 0) tell_cost(s, p, pair, cases->count);
        if (code == CLI_DONE) code = measure_pair(s, p, pair, model, &r);
        if (n == 0)
            r.first = first = pair;
        else
            mha_prompt_pair_free(pair);
    }
    for (int n = 0; code == CLI_DONE && n < r.count; n++)
        effect_grid_finish(&grids[n], p->raw);
    if (code == CLI_DONE) code = prompt_report_put(s, &r);
    if (code == CLI_DONE) code = check_all(s, p, &r);
    for (int n = 0; n < GRIDS_MAX; n++)
        effect_grid_free(&grids[n]);
    mha_prompt_pair_free(first);
    return code;
}

static int run(cli_session *s)
{
    patch_plan p;
    prompt_cases cases = {0};
    mha_model *model = NULL;
    int code = page_file_check(s);
    if (code == CLI_DONE) code = cli_model_open(s, NULL, &model);
    if (code == CLI_DONE) code = patch_plan_read(s, model, &p);
    if (code == CLI_DONE) code = prompt_cases_read(s, model, &patch_request, &cases);
    if (code == CLI_DONE) code = measure_all(s, &p, model, &cases);
    prompt_cases_free(&cases);
    mha_model_free(model);
    return code;
}

const cli_command cli_patch = {
    .name = "patch",
    .summary = "activation patching: replace parts of a run by those of another",
    .usage = "TEXT --corrupted TEXT | --pairs FILE",
    .details =
        "Repeats the corrupted run with one part of the clean run (--direction denoise: is the part sufficient?), "
        "or the clean run with one part of the corrupted run (noise: is it necessary?), for every part of --site, "
        "and prints how far the answer moves: 1 is as in the clean run, 0 as in the corrupted run. Tokens are "
        "numbered from 0; -1 is the last, and a token that occurs once can be named by its text. Without --wrong, the "
        "metric is the log-probability of the answer. --pairs reads "
        "lines {clean, corrupted, answer, wrong, position}; results are means with 95 % intervals over the pairs. "
        "--estimate computes first-order estimates from gradients; --path changes only the direct path between two "
        "heads. --edges does so for every pair of a sender (the embedding, a head, a feed-forward part) and a later "
        "receiver (q, k or v of a head, a feed-forward part, the logits), and lists the strongest edges.\n"
        "With --state FILE, a stopped or killed run of exact patching can be resumed and prints the same digits. About "
        "once a second, the metrics so far are written to FILE.N.SITE.DIRECTION, where N is the number of the pair.\n"
        "--json prints {model, pairs, case: {clean, corrupted, answer, wrong, position}, metrics: {clean, "
        "corrupted}, site, by, direction, metric, exact, axes, raw, normalised}; with several grids, these members "
        "are in the list grids. Heads have the numbers that they had in the unpruned model; values of removed heads "
        "are null. normalised is null if both runs hardly differ. With several pairs, interval has half of each 95 % "
        "interval, in the unit of normalised, or in nats with --raw-metric and if normalised is null. Paths from one "
        "head have its name in sender; paths from all heads have heads, the heads per layer of both axes, which are "
        "numbered layer * heads + head; --edges has edges, a list of {from, to, input}. --csv prints one line per "
        "part; for a path, layer and head are those of the receiver, and with --edges the column site has the input "
        "of the receiver: q, k, v, mlp or logits. -o OUT writes a page with the grids and the maps of each head in "
        "both runs, or a figure of the grids (with --edges, of the --top strongest edges) if the name ends in .png, "
        ".svg or .pdf.",
    .shared = CLI_MODEL | CLI_IDS | CLI_OUT | CLI_JSON | CLI_CSV | CLI_SEED,
    .options = patch_options,
    .examples = "mha patch \" red cat key boat hat drum red cat key\" \\\n"
                "    --corrupted \" red cat key ring hat drum red cat key\" \\\n"
                "    --answer \" boat\" --wrong \" ring\"\n"
                "mha patch \" red cat key boat hat drum red cat key\" \\\n"
                "    --corrupted \" red cat key ring hat drum red cat key\" \\\n"
                "    --answer \" boat\" --wrong \" ring\" --path 0.5 --to k\n"
                "mha patch \" red cat key boat hat drum red cat key\" \\\n"
                "    --corrupted \" red cat ring boat hat drum red cat key\" \\\n"
                "    --answer \" boat\" --wrong \" hat\" --edges -o paths.svg\n",
    .run = run,
};
