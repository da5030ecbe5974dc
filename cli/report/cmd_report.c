/* cmd_report.c - `mha report`: writes an HTML page of all heads of one or two models on texts. */
#include "commands.h"
#include "heads/head_diversity.h"
#include "heads/head_texts.h"
#include "heads/heads_json.h"
#include "heads/importance_scores.h"
#include "heads/text_maps.h"
#include "live/live_page.h"
#include "output.h"
#include "report/report_curve.h"
#include "report/report_live.h"
#include "report/report_page.h"
#include "report/report_pair.h"
#include "session.h"
#include <stdlib.h>
#include <string.h>

static struct {
    char *compare, *data, *curve, *source, *target;
    int diversity, live;
} given;

static const struct poptOption options[] = {
    {"compare", 0, POPT_ARG_STRING, &given.compare, 0, "show the heads of MODEL and MODEL2 side by side", "MODEL2"},
    IMPORTANCE_SCORES_OPTIONS,
    {"diversity", 0, POPT_ARG_NONE, &given.diversity, 0, "compare the maps and outputs of heads, and cluster heads",
     NULL},
    {"live", 0, POPT_ARG_NONE, &given.live, 0, "add the page of mha live, which runs MODEL in the browser", NULL},
    {"data", 0, POPT_ARG_STRING, &given.data, 0, "texts for --by and --diversity (default: the displayed texts)",
     "FILE"},
    {"source", 0, POPT_ARG_STRING, &given.source, 0, "source of an encoder-decoder; requires --target", "TEXT"},
    {"target", 0, POPT_ARG_STRING, &given.target, 0, "target that the decoder reads, such as a translation", "TEXT"},
    {"curve", 0, POPT_ARG_STRING, &given.curve, 0, "show the curve of mha prune --search --json", "FILE"},
    POPT_TABLEEND,
};

/* One model of the report with its measurements. */
typedef struct part {
    int number; /* 0 = -m, 1 = --compare */
    text_maps text;
    json_t *importance, *diversity, *curve;
} part;

/* ---- importance and diversity ---- */

/* Copies the lists of texts and lengths; the strings still belong to `from`. */
static int copy_texts(const cli_session *s, const cli_texts *from, cli_texts *texts)
{
    const size_t n = (size_t)from->count;
    *texts = (cli_texts){
        .count = from->count, .text = calloc(n, sizeof *texts->text), .bytes = calloc(n, sizeof *texts->bytes)};
    if (!texts->text || !texts->bytes) {
        cli_texts_free(texts);
        return cli_error(s, CLI_FAILED, "out of memory for %zu texts", n);
    }
    memcpy(texts->text, from->text, n * sizeof *texts->text);
    memcpy(texts->bytes, from->bytes, n * sizeof *texts->bytes);
    return CLI_DONE;
}

/* Reads the texts for importance and diversity: --data, or the displayed texts. */
static int read_data(const cli_session *s, const importance_scores *scores, const text_maps *drawn,
                     mha_head_data **data)
{
    cli_texts texts;
    int code = given.data ? cli_texts_read_file(s, given.data, &texts) : copy_texts(s, drawn->texts, &texts);
    if (code != CLI_DONE) return code;
    code = importance_scores_pair(s, scores, false, &texts);
    if (code == CLI_DONE) code = head_texts_data(s, drawn->model, &texts, s->work, data);
    cli_texts_free(&texts);
    return code;
}

static int measure_importance(cli_session *s, const importance_scores *scores, const mha_head_data *data, part *p)
{
    mha_importance *importance = NULL;
    int code = importance_scores_measure(s, scores, p->text.model, p->number, data, &importance);
    if (code == CLI_DONE) p->importance = importance_scores_json(importance, p->text.heads, scores->how.by);
    if (code == CLI_DONE && !p->importance) code = cli_error(s, CLI_FAILED, "out of memory");
    mha_importance_free(importance);
    return code;
}

static int measure_diversity(cli_session *s, part *p, const mha_head_data *data)
{
    state_path state;
    mha_diversity *d = NULL;
    int code = head_diversity_measure(s, p->text.model, data, state_path_of(p->number, "diversity", &state), &d);
    if (code == CLI_DONE && !(p->diversity = head_diversity_json(d, p->text.heads)))
        code = cli_error(s, CLI_FAILED, "out of memory");
    mha_diversity_free(d);
    return code;
}

/* Measures importance and diversity, if requested. */
static int measure_part(cli_session *s, const importance_scores *scores, part *p)
{
    if (!scores->wanted && !given.diversity) return CLI_DONE;
    if (mha_model_describe(p->text.model)->image_channels)
        return cli_usage(s, "--%s must not be given for images", scores->wanted ? "by" : "diversity");
    mha_head_data *data = NULL;
    int code = read_data(s, scores, &p->text, &data);
    if (code == CLI_DONE && scores->wanted) code = measure_importance(s, scores, data, p);
    if (code == CLI_DONE && given.diversity) code = measure_diversity(s, p, data);
    mha_head_data_free(data);
    return code;
}

/* ---- maps of each text ---- */

static json_t *part_json(const part *p)
{
    const text_maps *h = &p->text;
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "model", cli_shown(h->name), "text", h->text, "tokens",
                     heads_json_tokens(h->model, h->heads), "heads", heads_json_numbers(h->model, h->heads), "metrics",
                     heads_json_metrics(h->heads), "labels", heads_json_labels(h->heads), "attention",
                     heads_json_attention(h->heads));
}

/* Returns the --json object of a text, with the second model under "compare". */
static json_t *text_json(const part parts[2], int count)
{
    json_t *all = part_json(&parts[0]);
    if (all && count > 1 && json_object_set_new(all, "compare", part_json(&parts[1])) != 0) {
        json_decref(all);
        all = NULL;
    }
    return all;
}

static int check_size(const cli_session *s, const report *r, int64_t i)
{
    if (r->planned == 1 || r->weights <= REPORT_WEIGHTS_MAX) return CLI_DONE;
    return cli_usage(s,
                     "the texts must have at most %d attention weights in total (exceeded at text %lld of %lld): "
                     "give fewer or shorter texts",
                     REPORT_WEIGHTS_MAX, (long long)i + 1, (long long)r->planned);
}

static int measure_text(cli_session *s, part parts[2], int count, int64_t i, report *r, json_t *said)
{
    report_model models[2];
    int code = cli_stopped();
    if (r->planned > 1) cli_progress("texts", i, r->planned);
    for (int m = 0; code == CLI_DONE && m < count; m++) {
        code = text_maps_at(s, &parts[m].text, i);
        models[m] = (report_model){parts[m].text.name, parts[m].text.model, parts[m].text.heads};
    }
    if (code != CLI_DONE) return code;
    if (!report_add(r, parts[0].text.text, models, count) ||
        (s->options.json && json_array_append_new(said, text_json(parts, count)) != 0))
        return cli_error(s, CLI_FAILED, "out of memory for the maps of text %lld", (long long)i + 1);
    return check_size(s, r, i);
}

/* Rejects an encoder-decoder, whose page requires a pair. */
static int check_sides(const cli_session *s, const part *p)
{
    if (!mha_model_encoder(p->text.model)) return CLI_DONE;
    return cli_usage(s, "%s is an encoder-decoder, which requires --source and --target instead of a text",
                     cli_shown(p->text.name));
}

/* Opens the models. The live page contains the model that was opened last, so it precedes MODEL2. */
static int open_models(cli_session *s, part parts[2], int count, report *r)
{
    int code = text_maps_open(s, &parts[0].text);
    if (code == CLI_DONE) code = check_sides(s, &parts[0]);
    if (code == CLI_DONE && given.live) code = report_live_page(s, parts[0].text.texts->text[0], &r->live);
    if (code == CLI_DONE && count > 1) code = text_maps_other(s, given.compare, &parts[0].text, &parts[1].text);
    return code == CLI_DONE && count > 1 ? check_sides(s, &parts[1]) : code;
}

static int measure(cli_session *s, part parts[2], int count, report *r, json_t *said)
{
    importance_scores scores;
    int code = importance_scores_read(s, &scores);
    if (code == CLI_DONE && given.curve) code = report_curve_read(s, given.curve, &parts[0].curve);
    if (code == CLI_DONE) code = open_models(s, parts, count, r);
    if (code != CLI_DONE) return code;
    r->planned = parts[0].text.texts->count;
    for (int64_t i = 0; code == CLI_DONE && i < r->planned; i++)
        code = measure_text(s, parts, count, i, r, said);
    for (int m = 0; code == CLI_DONE && m < count; m++) {
        code = measure_part(s, &scores, &parts[m]);
        if (code == CLI_DONE && !report_measured(r, parts[m].importance, parts[m].diversity, parts[m].curve))
            code = cli_error(s, CLI_FAILED, "out of memory");
    }
    return code;
}

static void part_free(part *p)
{
    json_decref(p->importance);
    json_decref(p->diversity);
    json_decref(p->curve);
    text_maps_free(&p->text);
}

/* ---- JSON ---- */

static void set_measured(json_t *all, const part *p)
{
    if (p->importance) json_object_set(all, "importance", p->importance);
    if (p->diversity) json_object_set(all, "diversity", p->diversity);
}

/* Prints the values of the page as JSON: one text as an object, several texts as an object with the list "texts". */
static int put_json(cli_session *s, const part parts[2], int count, const json_t *said)
{
    json_t *all = json_array_size(said) == 1
                      ? json_incref(json_array_get(said, 0))
                      : json_pack("{s:s, s:O}", "model", cli_shown(parts[0].text.name), "texts", said);
    if (all) json_object_set_new(all, "output", json_string(cli_shown(s->options.out)));
    if (all) set_measured(all, &parts[0]);
    json_t *other = count > 1 ? json_object_get(all, "compare") : NULL;
    if (count > 1 && !other && all) {
        other = json_pack("{s:s}", "model", cli_shown(parts[1].text.name));
        json_object_set_new(all, "compare", other);
    }
    if (other) set_measured(other, &parts[1]);
    return cli_put_json(s, all, false);
}

static int check_tabs(const cli_session *s, const char *option, const char *text)
{
    if (!strchr(text, '\t')) return CLI_DONE;
    return cli_usage(s, "%s must not contain a tab (got \"%s\")", option, cli_shown(text));
}

/* Checks the options that a page of an encoder-decoder does not have. */
static int check_pair(const cli_session *s)
{
    const struct importance_scores_given *g = &importance_scores_given;
    if (!given.source || !given.target) return cli_usage(s, "--source and --target require each other");
    int code = check_tabs(s, "--source", given.source);
    if (code == CLI_DONE) code = check_tabs(s, "--target", given.target);
    if (code != CLI_DONE) return code;
    if (s->arg_count > 0 || s->options.file) return cli_usage(s, "--source must not be given with TEXT or -f");
    if (given.compare || given.data || given.curve || given.diversity || given.live || s->options.ids)
        return cli_usage(s, "--source must not be given with --compare, --curve, --data, --diversity, --ids or --live");
    if (g->batch || g->loss || g->probes || g->settle || state_path_given)
        return cli_usage(s, "--source must not be given with --batch, --loss, --probes, --settle or --state");
    if (g->by && strcmp(g->by, "loo_loss") != 0)
        return cli_usage(s, "--by must be loo_loss with --source (got \"%s\")", cli_shown(g->by));
    return CLI_DONE;
}

static int check_options(const cli_session *s)
{
    if (given.source || given.target) {
        const int code = check_pair(s);
        if (code != CLI_DONE) return code;
    }
    if (!s->options.out) return cli_usage(s, "missing -o FILE.html");
    if (given.data && !importance_scores_given.by && !given.diversity)
        return cli_usage(s, "--data requires --by or --diversity");
    if (state_path_given && !importance_scores_given.by && !given.diversity)
        return cli_usage(s, "--state requires --by or --diversity");
    if (given.live && s->options.ids) return cli_usage(s, "--live must not be given with --ids");
    return cli_check_out(s);
}

/* Writes the page of an encoder-decoder on a source and its target. */
static int run_pair(cli_session *s)
{
    report r = {.planned = 1};
    json_t *said = NULL;
    int code = report_pair_measure(s, given.source, given.target, importance_scores_given.by != NULL, &r, &said);
    if (code == CLI_DONE) code = report_page_save(s, &r);
    if (code == CLI_DONE && s->options.json) {
        json_object_set_new(said, "output", json_string(cli_shown(s->options.out)));
        code = cli_put_json(s, json_incref(said), false);
    }
    json_decref(said);
    report_free(&r);
    return code;
}

static int run(cli_session *s)
{
    part parts[2] = {{.number = 0}, {.number = 1}};
    report r = {0};
    json_t *said = json_array();
    const int count = given.compare ? 2 : 1;
    int code = check_options(s);
    if (code == CLI_DONE && given.source) {
        json_decref(said);
        return run_pair(s);
    }
    if (code == CLI_DONE && given.live) code = live_check_model(s);
    if (code == CLI_DONE) code = measure(s, parts, count, &r, said);
    if (code == CLI_DONE) code = report_page_save(s, &r);
    if (code == CLI_DONE && s->options.json) code = put_json(s, parts, count, said);
    for (int i = 0; i < count; i++)
        part_free(&parts[i]);
    report_free(&r);
    json_decref(said);
    return code;
}

static bool divides(void)
{
    return !given.source && (importance_scores_given.by || given.diversity) && importance_scores_divide();
}

static void print_lists(FILE *out, int columns)
{
    importance_scores_put_lists(out, columns, 24);
}

const cli_command cli_report = {
    .name = "report",
    .summary = "write one HTML page of every head of a model on texts",
    .usage = "TEXT... | --source TEXT --target TEXT",
    .details =
        "The page is self-contained: it needs no network and no other file; -o - writes it to stdout. "
        "Several texts are shown one at a time, with a selector. Their maps must have at most 67108864 weights "
        "in total, a page of about 30 MB; a text of n tokens has n * n weights per head.\n"
        "--json also writes the values of the page to stdout: {output, model, text, tokens, heads, metrics, "
        "labels, attention [layers][heads][n][n]}. --by adds importance, as printed by mha heads; --diversity "
        "adds diversity, the similarity of heads; --compare adds compare, the values of MODEL2. Several texts "
        "are written as a list named texts.\n"
        "--source and --target show an encoder-decoder (t5, bart, marian): the cross-attention, whose maps have a row "
        "per token of the target and a column per token of the source, and the self-attention of encoder and decoder. "
        "--json then prints {output, model, source, target, cross, encoder, decoder}, each with {tokens, heads, "
        "metrics, labels, attention}; cross also has queries, the tokens of its rows. --by loo_loss adds importance: "
        "the change of the loss of the target if the gate of a head of encoder or decoder is 0.\n"
        "--live adds the page of mha live, which runs MODEL on the displayed text: heads can be switched off, and "
        "the prediction, the continuation and the effect of every head follow. It adds the model and the "
        "library, 2.1 MB for the built-in model.\n"
        "--state FILE saves the measurements on --data in FILE.SCORE and FILE.diversity (FILE.2.SCORE for "
        "MODEL2), so that an interrupted run can be resumed.",
    .shared = CLI_MODEL | CLI_FILE | CLI_IDS | CLI_OUT | CLI_JSON | CLI_SEED,
    .options = options,
    .lists = print_lists,
    .examples = "mha report -o report.html \"Clara has a kite. Clara has a kite.\"\n"
                "mha report --live -o live-report.html \"Clara has a kite. Clara has a kite.\"\n"
                "mha report -m minilm -f notes.txt --documents whole --diversity -o notes.html\n",
    .divides = divides,
    .run = run,
};
