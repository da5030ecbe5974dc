/* cmd_report.c - `mha report`: one text, every head of a model or of two, one HTML file. */
#include "commands.h"
#include "head_diversity.h"
#include "head_scores.h"
#include "head_texts.h"
#include "heads_json.h"
#include "heads_of_text.h"
#include "output.h"
#include "report_curve.h"
#include "report_page.h"

static struct {
    char *compare, *data, *curve;
    int diversity;
} given;

static const struct poptOption options[] = {
    {"compare", 0, POPT_ARG_STRING, &given.compare, 0, "show the heads of MODEL2 beside those of MODEL", "MODEL2"},
    HEAD_SCORES_OPTIONS,
    {"diversity", 0, POPT_ARG_NONE, &given.diversity, 0, "measure how much alike heads are: maps, outputs, clusters",
     NULL},
    {"data", 0, POPT_ARG_STRING, &given.data, 0, "texts for --by and --diversity, one a line (default: TEXT)", "FILE"},
    {"curve", 0, POPT_ARG_STRING, &given.curve, 0, "show the curve that mha prune --search --json printed", "FILE"},
    POPT_TABLEEND,
};

/* One model of the report, with all that was measured of it. */
typedef struct part {
    int number; /* 0; 1 = of --compare */
    heads_of_text text;
    json_t *importance, *diversity, *curve;
} part;

/* ---- measuring ---- */

/* The texts that importance and diversity are measured on: of --data, or the one that is drawn. */
static int read_data(const cli_session *s, const head_scores *scores, const heads_of_text *drawn, mha_head_data **data)
{
    cli_session other = *s;
    other.options.file = given.data;
    other.arg_count = given.data ? 0 : 1;
    other.args = (const char *[]){drawn->text, NULL};
    cli_texts texts;
    int code = cli_texts_read(&other, false, &texts);
    if (code != CLI_DONE) return code;
    code = head_scores_pair(s, scores, &texts);
    if (code == CLI_DONE) code = head_texts_data(&other, drawn->model, texts.text, texts.count, data);
    cli_texts_free(&texts);
    return code;
}

static int measure_importance(cli_session *s, const head_scores *scores, const mha_head_data *data, part *p)
{
    mha_importance *importance = NULL;
    int code = head_scores_measure(s, scores, p->text.model, p->number, data, &importance);
    if (code == CLI_DONE) p->importance = head_scores_json(importance, p->text.heads, scores->how.by);
    if (code == CLI_DONE && !p->importance) code = cli_error(s, CLI_FAILED, "out of memory");
    mha_importance_free(importance);
    return code;
}

/* Importance and diversity, those that were asked for. */
static int measure_part(cli_session *s, const head_scores *scores, part *p)
{
    if (!scores->wanted && !given.diversity) return CLI_DONE;
    mha_head_data *data = NULL;
    head_state state;
    int code = read_data(s, scores, &p->text, &data);
    if (code == CLI_DONE && scores->wanted) code = measure_importance(s, scores, data, p);
    if (code == CLI_DONE && given.diversity)
        code = head_diversity_measure(s, p->text.model, data, p->text.heads,
                                      head_state_path(p->number, "diversity", &state), &p->diversity);
    mha_head_data_free(data);
    return code;
}

static int measure(cli_session *s, part parts[2])
{
    head_scores scores;
    int code = head_scores_read(s, &scores);
    if (code == CLI_DONE && given.curve) code = report_curve_read(s, given.curve, &parts[0].curve);
    if (code == CLI_DONE) code = heads_of_text_measure(s, &parts[0].text);
    if (code == CLI_DONE) code = measure_part(s, &scores, &parts[0]);
    if (code != CLI_DONE || !given.compare) return code;
    code = heads_of_text_again(s, given.compare, &parts[0].text, &parts[1].text);
    return code == CLI_DONE ? measure_part(s, &scores, &parts[1]) : code;
}

static void part_free(part *p)
{
    json_decref(p->importance);
    json_decref(p->diversity);
    json_decref(p->curve);
    heads_of_text_free(&p->text);
}

/* ---- the page and its numbers ---- */

static report_model page_part(const part *p)
{
    return (report_model){.name = p->text.name,
                          .model = p->text.model,
                          .heads = p->text.heads,
                          .importance = p->importance,
                          .diversity = p->diversity,
                          .curve = p->curve};
}

static int write_page(cli_session *s, const part parts[2], int count)
{
    report r = {.text = parts[0].text.text, .count = count};
    for (int i = 0; i < count; i++)
        r.models[i] = page_part(&parts[i]);
    return report_page_save(s, &r);
}

static json_t *part_json(const part *p)
{
    const heads_of_text *h = &p->text;
    json_t *all = json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "model", h->name, "text", h->text, "tokens",
                            heads_json_tokens(h->model, h->heads), "heads", heads_json_numbers(h->model, h->heads),
                            "metrics", heads_json_metrics(h->heads), "labels", heads_json_labels(h->heads), "attention",
                            heads_json_attention(h->heads));
    if (all && p->importance) json_object_set(all, "importance", p->importance);
    if (all && p->diversity) json_object_set(all, "diversity", p->diversity);
    return all;
}

static int put_json(cli_session *s, const part parts[2], int count)
{
    json_t *all = part_json(&parts[0]);
    if (all) json_object_set_new(all, "output", json_string(s->options.out));
    if (all && count > 1 && json_object_set_new(all, "compare", part_json(&parts[1])) != 0) {
        json_decref(all);
        all = NULL;
    }
    return cli_put_json(s, all, false);
}

static int run(cli_session *s)
{
    if (!s->options.out) return cli_usage(s, "-o FILE.html is missing");
    if (given.data && !head_scores_given.by && !given.diversity)
        return cli_usage(s, "--data goes with --by or --diversity");
    if (head_scores_given.state && !head_scores_given.by && !given.diversity)
        return cli_usage(s, "--state goes with --by or --diversity: nothing else takes long");
    part parts[2] = {{.number = 0}, {.number = 1}};
    const int count = given.compare ? 2 : 1;
    int code = cli_check_out(s);
    if (code != CLI_DONE) return code;
    code = measure(s, parts);
    if (code == CLI_DONE) code = write_page(s, parts, count);
    if (code == CLI_DONE && s->options.json) code = put_json(s, parts, count);
    for (int i = 0; i < count; i++)
        part_free(&parts[i]);
    return code;
}

static void print_lists(FILE *out, int columns)
{
    head_scores_put_lists(out, columns, 24);
}

const cli_command cli_report = {
    .name = "report",
    .summary = "draw every head of a model on a text as one HTML page",
    .usage = "TEXT",
    .details = "The page needs nothing but itself: no network, no other file; -o - writes it to stdout. With --json "
               "the numbers it shows are also written to stdout: {output, model, text, tokens, heads, metrics, labels, "
               "attention [layers][heads][n][n]}, with --by also importance as mha heads prints it, with --diversity "
               "how alike the heads are, and with --compare the "
               "same of MODEL2 as compare.\n"
               "With --state FILE what is measured on --data is kept in FILE.SCORE and FILE.diversity (FILE.2.SCORE of "
               "MODEL2), so that a run that was killed goes on where it was.",
    .shared = CLI_MODEL | CLI_FILE | CLI_IDS | CLI_OUT | CLI_JSON | CLI_SEED,
    .options = options,
    .lists = print_lists,
    .run = run,
};
