/* prompt_report.c - prints what was measured, and writes the grids as text, JSON, CSV, figure or page. */
#include "circuits/prompt_report.h"

#include "circuits/circuits_page.h"
#include "circuits/edge_figure.h"
#include "circuits/head_numbers.h"
#include "draw/figure.h"
#include "input/tokens.h"
#include "lens/map_figure.h"
#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const metric_names[] = {"logit-diff", "logprob", "kl"};

const char *prompt_metric_name(mha_circuit_metric metric)
{
    return metric_names[metric];
}

int prompt_metric(const cli_session *s, const char *name, const prompt_request *request, mha_circuit_metric *metric)
{
    const bool two = request->pairs || request->wrong;
    int found = two ? MHA_LOGIT_DIFF : MHA_LOGPROB;
    for (int n = 0; name && n < MHA_CIRCUIT_METRICS; n++)
        if (strcmp(name, metric_names[n]) == 0) name = NULL, found = n;
    *metric = (mha_circuit_metric)found;
    if (name) return cli_usage(s, "--metric must be logit-diff, logprob or kl (got \"%s\")", cli_shown(name));
    return two || *metric != MHA_LOGIT_DIFF ? CLI_DONE : cli_usage(s, "--metric logit-diff requires --wrong TOKEN");
}

/* Returns whether the case has a wrong answer. */
static bool has_wrong(const prompt_case *one)
{
    return one->wrong != one->answer;
}

int prompt_pair_open(const cli_session *s, const mha_model *model, const prompt_case *one, mha_prompt_pair **pair)
{
    mha_error error = {0};
    const mha_prompt_pair_options o = {.size = sizeof o,
                                       .clean = one->clean,
                                       .corrupted = one->corrupted,
                                       .length = one->length,
                                       .answer = one->answer,
                                       .wrong = one->wrong,
                                       .position = &one->position,
                                       .noise = one->noise};
    return mha_prompt_pair_create(model, &o, pair, &error) == MHA_OK ? CLI_DONE : cli_refuse(s, &error);
}

/* ---- what was measured ---- */

/* Returns whether the prompts differ at token t, or noise changes its embedding. */
static bool is_changed(const prompt_report *r, const prompt_case *one, int64_t t)
{
    const int64_t width = one->noise ? mha_prompt_noise_width(r->model) : 0;
    bool changed = one->clean[t] != one->corrupted[t];
    for (int64_t n = 0; !changed && n < width; n++)
        changed = one->noise[t * width + n] != 0;
    return changed;
}

/* Prints the tokens of a prompt; those that are changed in the corrupted prompt are bold, and marked by *. */
static void put_prompt(const cli_session *s, const prompt_report *r, const char *name, const int32_t *ids)
{
    char token[PROMPT_TOKEN];
    fprintf(s->out, "%-10s", name);
    for (int64_t t = 0; t < r->cases->list[0].length; t++) {
        const bool differs = is_changed(r, &r->cases->list[0], t);
        fprintf(s->out, " %s%s%s%s", differs ? cli_bold(s) : "", differs ? "*" : "",
                prompt_token(r->model, ids[t], token), differs ? cli_plain(s) : "");
    }
    fputc('\n', s->out);
}

static void put_run(const cli_session *s, const prompt_report *r, mha_prompt_run run)
{
    const float *g = mha_prompt_pair_logits(r->first, run);
    const int64_t vocab = mha_model_describe(r->model)->vocab;
    double metrics[MHA_CIRCUIT_METRICS], sum = 0;
    char token[PROMPT_TOKEN];
    int64_t best = 0;
    mha_prompt_pair_metrics(r->first, run, metrics, NULL);
    for (int64_t v = 1; v < vocab; v++)
        if (g[v] > g[best]) best = v;
    for (int64_t v = 0; v < vocab; v++)
        sum += exp((double)g[v] - (double)g[best]);
    fprintf(s->out, "%-10s top answer \"%s\" with probability %.3f; %s %.3f\n",
            run == MHA_RUN_CLEAN ? "clean" : "corrupted", prompt_token(r->model, (int32_t)best, token), 1 / sum,
            metric_names[r->metric], metrics[r->metric]);
}

static void warn(const cli_session *s, const prompt_report *r)
{
    double clean[MHA_CIRCUIT_METRICS], corrupted[MHA_CIRCUIT_METRICS];
    mha_prompt_pair_metrics(r->first, MHA_RUN_CLEAN, clean, NULL);
    mha_prompt_pair_metrics(r->first, MHA_RUN_CORRUPTED, corrupted, NULL);
    if (has_wrong(&r->cases->list[0]) && clean[MHA_LOGIT_DIFF] <= 0)
        cli_say(s, "warning: the clean run does not prefer the answer (logit difference %.3f)", clean[MHA_LOGIT_DIFF]);
    if (r->count > 0 && r->grids[0].direction && isnan(mha_patch_normalized(0, clean[r->metric], corrupted[r->metric])))
        cli_say(s, "warning: both runs hardly differ in %s; values are in nats", metric_names[r->metric]);
}

void prompt_report_head(const cli_session *s, const prompt_report *r)
{
    const prompt_case *one = &r->cases->list[0];
    char right[PROMPT_TOKEN], wrong[PROMPT_TOKEN];
    put_prompt(s, r, "clean", one->clean);
    if (r->grids[0].direction) put_prompt(s, r, "corrupted", one->corrupted);
    fprintf(s->out, "%-10s \"%s\"", "answer", prompt_token(r->model, one->answer, right));
    if (has_wrong(one)) fprintf(s->out, " against \"%s\"", prompt_token(r->model, one->wrong, wrong));
    fprintf(s->out, " after token %lld\n", (long long)one->position);
    put_run(s, r, MHA_RUN_CLEAN);
    if (r->grids[0].direction) put_run(s, r, MHA_RUN_CORRUPTED);
    if (r->cases->count > 1)
        fprintf(s->out, "first of %lld %s\n", (long long)r->cases->count, one->noise ? "draws of noise" : "pairs");
}

/* ---- JSON ---- */

static json_t *tokens_json(const prompt_report *r, const int32_t *ids)
{
    json_t *array = json_array();
    for (int64_t t = 0; t < r->cases->list[0].length; t++)
        json_array_append_new(array, cli_token_json(mha_model_tokenizer(r->model), ids[t]));
    return array;
}

static json_t *case_json(const prompt_report *r)
{
    const prompt_case *one = &r->cases->list[0];
    return json_pack("{s:o, s:o, s:o, s:o, s:I}", "clean", tokens_json(r, one->clean), "corrupted",
                     tokens_json(r, one->corrupted), "answer",
                     cli_token_json(mha_model_tokenizer(r->model), one->answer), "wrong",
                     has_wrong(one) ? cli_token_json(mha_model_tokenizer(r->model), one->wrong) : json_null(),
                     "position", (json_int_t)one->position);
}

static json_t *metrics_json(const prompt_report *r)
{
    return json_pack("{s:o, s:o}", "clean", cli_real(r->grids[0].clean), "corrupted", cli_real(r->grids[0].corrupted));
}

/* Returns the results: the members of the grid if there is one, otherwise a list of grids. */
static json_t *results_json(const cli_session *s, const prompt_report *r)
{
    json_t *all = json_pack("{s:s, s:I, s:o, s:o}", "model", cli_shown(s->model_name), "pairs",
                            (json_int_t)r->cases->count, "case", case_json(r), "metrics", metrics_json(r));
    json_t *grids = json_array();
    for (int n = 0; n < r->count; n++)
        json_array_append_new(grids, effect_grid_json(&r->grids[n]));
    if (r->count == 1) json_object_update(all, json_array_get(grids, 0));
    if (r->count > 1) json_object_set(all, "grids", grids);
    json_decref(grids);
    return all;
}

/* ---- all formats ---- */

/* Returns the graph of a list of edges; the page shows fewer edges at first. */
static json_t *graph_json(const prompt_report *r, const effect_grid *grid)
{
    enum { EDGES_MAX = 200 };
    edge_graph g;
    json_t *graph = edge_graph_make(grid, EDGES_MAX, &g) ? edge_graph_json(&g, grid) : json_null();
    if (json_is_object(graph)) json_object_set_new(graph, "shown", json_integer(r->top));
    edge_graph_free(&g);
    return graph;
}

/* Returns the numbers of the query heads that read each head of the site, by layer and head number. */
static json_t *readers_json(const effect_grid *g)
{
    json_t *layers = json_array();
    for (int64_t l = 0; l < mha_model_describe(g->model)->layers; l++) {
        const int64_t each = head_readers(g->model, g->head_site, l);
        json_t *heads = json_array();
        for (int64_t n = 0; n < head_columns(g->model, g->head_site); n++) {
            const int64_t place = head_place(g->model, g->head_site, l, n);
            json_t *readers = json_array();
            for (int64_t k = 0; place >= 0 && k < each; k++)
                json_array_append_new(readers, json_integer(mha_head_number(g->model, l, place * each + k)));
            json_array_append_new(heads, readers);
        }
        json_array_append_new(layers, heads);
    }
    return layers;
}

static int put_page(cli_session *s, const prompt_report *r)
{
    json_t *grids = json_array();
    for (int n = 0; n < r->count; n++) {
        json_t *grid = effect_grid_json(&r->grids[n]);
        if (r->grids[n].raw) json_object_set_new(grid, "normalised", json_null()); /* the page shows nats */
        if (r->grids[n].edges)
            json_object_set_new(grid, "graph", graph_json(r, &r->grids[n]));
        else
            json_object_set_new(grid, "readers", readers_json(&r->grids[n]));
        json_array_append_new(grids, grid);
    }
    return circuits_page_save(s, r,
                              json_pack("{s:s, s:I, s:o, s:o, s:o}", "model", cli_shown(s->model_name), "pairs",
                                        (json_int_t)r->cases->count, "case", case_json(r), "metrics", metrics_json(r),
                                        "grids", grids));
}

/* Returns the case whose tokens name columns; NULL if prompts have different lengths. */
static const prompt_case *named_case(const prompt_report *r)
{
    return r->cases->same_length ? &r->cases->list[0] : NULL;
}

/* Returns the tokens of a prompt as one line; those that are changed in the corrupted prompt are marked by *. */
static json_t *prompt_line(const prompt_report *r, const char *name, const int32_t *ids)
{
    char token[PROMPT_TOKEN];
    json_t *line = json_sprintf("%s:", name);
    for (int64_t t = 0; t < r->cases->list[0].length; t++) {
        json_t *longer =
            json_sprintf("%s %s%s", json_string_value(line), is_changed(r, &r->cases->list[0], t) ? "*" : "",
                         cli_shown(prompt_token(r->model, ids[t], token)));
        json_decref(line);
        line = longer;
    }
    return line;
}

/* Writes the grids as a figure, below the prompts and the answer. */
static int put_figure(const cli_session *s, const prompt_report *r)
{
    const prompt_case *one = &r->cases->list[0];
    char right[PROMPT_TOKEN], wrong[PROMPT_TOKEN];
    json_t *lines = json_array(), *maps = json_array();
    json_array_append_new(lines, prompt_line(r, "clean", one->clean));
    if (r->grids[0].direction) json_array_append_new(lines, prompt_line(r, "corrupted", one->corrupted));
    json_array_append_new(lines,
                          json_sprintf("answer: \"%s\"%s%s%s after token %lld",
                                       prompt_token(r->model, one->answer, right), has_wrong(one) ? " against \"" : "",
                                       has_wrong(one) ? prompt_token(r->model, one->wrong, wrong) : "",
                                       has_wrong(one) ? "\"" : "", (long long)one->position));
    for (int n = 0; n < r->count; n++)
        json_array_append_new(maps, effect_grid_map(&r->grids[n], named_case(r)));
    const int code = map_figure_save(s, "What moves the answer", lines, maps);
    json_decref(lines);
    json_decref(maps);
    return code;
}

int prompt_report_put(cli_session *s, const prompt_report *r)
{
    char what[64];
    snprintf(what, sizeof what, "the %s of the clean prompt", metric_names[r->metric]);
    const int finite = r->count > 0 ? cli_finite(s, "", what, r->grids[0].clean) : CLI_DONE;
    if (finite != CLI_DONE) return finite;
    warn(s, r);
    if (s->options.json) {
        const int code = cli_put_json(s, results_json(s, r), false);
        if (code != CLI_DONE) return code;
    } else if (s->options.csv) {
        effect_grid_csv_head(s->out);
        for (int n = 0; n < r->count; n++)
            effect_grid_csv(s->out, &r->grids[n]);
    } else if (!cli_out_is_stdout(s)) {
        prompt_report_head(s, r);
        for (int n = 0; n < r->count; n++) {
            fputc('\n', s->out);
            effect_grid_print(s, &r->grids[n], named_case(r), r->top);
        }
    }
    if (!s->options.out) return CLI_DONE;
    if (!figure_knows(s->options.out)) return put_page(s, r);
    return r->grids[0].edges ? edge_figure_save(s, &r->grids[0], r->top) : put_figure(s, r);
}
