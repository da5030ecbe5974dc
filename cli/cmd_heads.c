/* cmd_heads.c - `mha heads`: every head of a model measured on texts: a table, a grid with labels, JSON or CSV. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "heads_grid.h"
#include "heads_json.h"
#include "input.h"
#include "output.h"
#include "wrap.h"

static struct {
    int maps, no_probe;
} given;

static const struct poptOption options[] = {
    {"maps", 0, POPT_ARG_NONE, &given.maps, 0, "with --json: add the tokens and the attention maps of one text", NULL},
    {"no-probe", 0, POPT_ARG_NONE, &given.no_probe, 0, "leave out the random probe texts (no induction, no duplicate)",
     NULL},
    POPT_TABLEEND};

/* ---- the table ---- */

/* Columns in the order of their importance: as many as fit are shown. */
static const struct {
    mha_head_metric metric;
    const char *title;
} columns[] = {
    {MHA_HEAD_ENTROPY, "entropy"}, {MHA_HEAD_DISTANCE, "dist"},
    {MHA_HEAD_FIRST, "first"},     {MHA_HEAD_SEP, "sep"},
    {MHA_HEAD_PREV, "prev"},       {MHA_HEAD_NEXT, "next"},
    {MHA_HEAD_SELF, "self"},       {MHA_HEAD_PUNCT, "punct"},
    {MHA_HEAD_DUP_PROBE, "dup"},   {MHA_HEAD_INDUCTION_PROBE, "induc"},
    {MHA_HEAD_BROAD, "broad"},     {MHA_HEAD_VERTICAL, "vert"},
    {MHA_HEAD_WINDOW2, "win2"},    {MHA_HEAD_TOEPLITZ, "toepl"},
    {MHA_HEAD_OFFSET, "offset"},
};
enum { COLUMNS = sizeof columns / sizeof *columns, NAME_WIDTH = 16 };

static void put_number(FILE *out, int width, double value)
{
    if (isnan(value))
        fprintf(out, " %*s", width, "-");
    else
        fprintf(out, " %*.2f", width, value);
}

static int title_width(int column)
{
    int n = (int)strlen(columns[column].title);
    return n > 5 ? n : 5;
}

/* "layer.head  label  numbers" for every head. */
static void print_table(const cli_session *s, const mha_heads *heads)
{
    int shown = 0;
    for (int used = NAME_WIDTH; shown < COLUMNS && used + title_width(shown) + 1 <= s->columns; shown++)
        used += title_width(shown) + 1;
    fprintf(s->out, "%s%-6s%-*s", cli_bold(s), "head", NAME_WIDTH - 6, "label");
    for (int c = 0; c < shown; c++)
        fprintf(s->out, " %*s", title_width(c), columns[c].title);
    fprintf(s->out, "%s\n", cli_plain(s));
    for (int64_t l = 0; l < mha_heads_layers(heads); l++)
        for (int64_t h = 0; h < mha_heads_count(heads, l); h++) {
            char name[48];
            snprintf(name, sizeof name, "%lld.%lld", (long long)l, (long long)h);
            fprintf(s->out, "%-6s%-*s", name, NAME_WIDTH - 6, mha_head_label_key(mha_heads_label(heads, l, h)));
            for (int c = 0; c < shown; c++)
                put_number(s->out, title_width(c), mha_heads_value(heads, l, h, columns[c].metric));
            fputc('\n', s->out);
        }
}

/* ---- CSV and JSON ---- */

static void print_csv(FILE *out, const mha_heads *heads)
{
    fputs("layer,head,label", out);
    for (int m = 0; m < MHA_HEAD_METRICS; m++)
        fprintf(out, ",%s", mha_head_metric_key((mha_head_metric)m));
    fputc('\n', out);
    for (int64_t l = 0; l < mha_heads_layers(heads); l++)
        for (int64_t h = 0; h < mha_heads_count(heads, l); h++) {
            fprintf(out, "%lld,%lld,%s", (long long)l, (long long)h, mha_head_label_key(mha_heads_label(heads, l, h)));
            for (int m = 0; m < MHA_HEAD_METRICS; m++) {
                double value = mha_heads_value(heads, l, h, (mha_head_metric)m);
                if (isnan(value))
                    fputc(',', out); /* an empty cell */
                else
                    fprintf(out, ",%.9g", value);
            }
            fputc('\n', out);
        }
}

static json_t *heads_json(const cli_session *s, const mha_model *model, const mha_heads *heads, int64_t texts)
{
    const mha_model_info *info = mha_model_describe(model);
    json_t *all = json_pack("{s:s, s:I, s:I, s:I, s:o, s:o}", "model", cli_shown(s->model_name), "texts",
                            (json_int_t)texts, "layers", (json_int_t)info->layers, "heads", (json_int_t)info->heads,
                            "metrics", heads_json_metrics(heads), "labels", heads_json_labels(heads));
    if (!all || !given.maps) return all;
    bool whole = json_object_set_new(all, "tokens", heads_json_tokens(model, heads)) == 0 &&
                 json_object_set_new(all, "attention", heads_json_attention(heads)) == 0;
    if (whole) return all;
    json_decref(all);
    return NULL;
}

/* ---- work ---- */

static int put_result(cli_session *s, const mha_model *model, const mha_heads *heads, int64_t texts)
{
    if (s->options.json) return cli_put_json(s, heads_json(s, model, heads, texts), false);
    if (s->options.csv) {
        print_csv(s->out, heads);
        return CLI_DONE;
    }
    print_table(s, heads);
    fputc('\n', s->out);
    cli_put_grid(s, heads, 0);
    fputc('\n', s->out);
    cli_put_legend(s, heads, 0);
    return CLI_DONE;
}

static int check_options(const cli_session *s, int64_t texts)
{
    if (given.maps && !s->options.json) return cli_usage(s, "--maps goes with --json");
    if (given.maps && texts != 1) return cli_usage(s, "--maps wants one text, not %lld", (long long)texts);
    return CLI_DONE;
}

static int measure(cli_session *s, const cli_texts *texts)
{
    mha_model *model = NULL;
    mha_heads *heads = NULL;
    mha_error error = {0};
    const mha_heads_options how = {
        .size = sizeof how, .no_probe = given.no_probe, .seed = (uint64_t)s->options.seed, .keep_maps = given.maps};
    int code = cli_model_open(s, NULL, &model);
    if (code == CLI_DONE && mha_heads_measure(model, texts->text, texts->count, &how, &heads, &error) != MHA_OK)
        code = cli_refuse(s, &error);
    if (code == CLI_DONE) code = put_result(s, model, heads, texts->count);
    mha_heads_free(heads);
    mha_model_free(model);
    return code;
}

static int run(cli_session *s)
{
    cli_texts texts;
    int code = cli_texts_read(s, false, &texts);
    if (code != CLI_DONE) return code;
    code = check_options(s, texts.count);
    if (code == CLI_DONE) code = measure(s, &texts);
    cli_texts_free(&texts);
    return code;
}

/* Metrics and labels, from the lists of heads.h. */
static void print_lists(FILE *out, int columns)
{
    enum { MARGIN = 24 };
    fputs("\nMetrics, of a row of the map (a token that looks at all tokens):\n", out);
    for (int m = 0; m < MHA_HEAD_METRICS; m++) {
        fprintf(out, "  %-*s", MARGIN - 2, mha_head_metric_key((mha_head_metric)m));
        cli_put_wrapped(out, columns, MARGIN, MARGIN, mha_head_metric_help((mha_head_metric)m));
    }
    fputs("\nLabels:\n", out);
    for (int l = 0; l < MHA_HEAD_LABELS; l++) {
        fprintf(out, "  %-*s", MARGIN - 2, mha_head_label_key((mha_head_label)l));
        cli_put_wrapped(out, columns, MARGIN, MARGIN, mha_head_label_help((mha_head_label)l));
    }
}

const cli_command cli_heads = {
    .name = "heads",
    .summary = "measure and label every attention head of a model",
    .usage = "TEXT... | -f FILE",
    .details = "Numbers are means over the tokens of all texts. A cell of the grid is a label and the score it rests "
               "on, in percent. Texts may not hold NUL.\n"
               "--json prints {model, texts, layers, heads, metrics: {name: [layers][heads]}, labels: "
               "[layers][heads]}; --csv one line per head. Both have all metrics; the table has those that fit the "
               "terminal.",
    .lists = print_lists,
    .shared = CLI_MODEL | CLI_FILE | CLI_JSON | CLI_CSV | CLI_SEED | CLI_DTYPE,
    .options = options,
    .run = run,
};
