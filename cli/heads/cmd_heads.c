/* cmd_heads.c - `mha heads`: measures every head of a model on texts; prints a table, a labeled grid, JSON or CSV. */
#include "commands.h"
#include "heads/head_diversity.h"
#include "heads/head_roles.h"
#include "heads/head_texts.h"
#include "heads/heads_grid.h"
#include "heads/heads_json.h"
#include "heads/heads_table.h"
#include "heads/importance_scores.h"
#include "heads/pair_scores.h"
#include "input/images.h"
#include "input/input.h"
#include "input/source_target.h"
#include "output.h"
#include "page/color_option.h"
#include "word_wrap.h"
#include <math.h>

static struct {
    int maps, no_probe, diversity;
    const char *colors, *roles;
    color_scale scale; /* value of `colors` */
} given;

static const struct poptOption options[] = {
    {"maps", 0, POPT_ARG_NONE, &given.maps, 0, "with --json: add the tokens and the attention maps of one text", NULL},
    {"no-probe", 0, POPT_ARG_NONE, &given.no_probe, 0, "skip the random probe texts (no induction or duplicate scores)",
     NULL},
    {"diversity", 0, POPT_ARG_NONE, &given.diversity, 0, "also compare the maps and outputs of heads", NULL},
    {"roles", 0, POPT_ARG_STRING, &given.roles, 0, "also measure syntactic roles on the tagged text FILE", "FILE"},
    COLOR_OPTION(&given.colors, "importance"),
    IMPORTANCE_SCORES_OPTIONS,
    POPT_TABLEEND};

/* ---- output ---- */

static json_t *heads_json(const cli_session *s, const measured_heads *m)
{
    const mha_model_info *info = mha_model_describe(m->model);
    json_t *all = json_pack("{s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "model", cli_shown(s->model_name), "texts",
                            (json_int_t)m->texts, "layers", (json_int_t)info->layers, "heads", (json_int_t)info->heads,
                            "head_numbers", heads_json_numbers(m->model, m->heads), "metrics",
                            heads_json_metrics(m->heads), "labels", heads_json_labels(m->heads));
    if (all) json_object_set_new(all, "sink_rate", cli_real(mha_heads_sink_rate(m->heads)));
    bool whole = all != NULL;
    if (whole && m->importance)
        whole = json_object_set_new(all, "importance", importance_scores_json(m->importance, m->heads, m->by)) == 0;
    if (whole && m->diversity)
        whole = json_object_set_new(all, "diversity", head_diversity_json(m->diversity, m->heads)) == 0;
    if (whole && m->roles) whole = json_object_set_new(all, "roles", head_roles_json(m->roles, m->heads)) == 0;
    if (whole && given.maps)
        whole = json_object_set_new(all, "tokens", heads_json_tokens(m->model, m->heads)) == 0 &&
                json_object_set_new(all, "attention", heads_json_attention(m->heads)) == 0;
    if (whole) return all;
    json_decref(all);
    return NULL;
}

/* Prints how the ranking was computed and how stable it is. */
static void put_trust(const cli_session *s, const measured_heads *m)
{
    const double halves = mha_importance_halves(m->importance), loss = mha_importance_loss(m->importance);
    char text[96] = "", trust[96] = "at least two texts are needed to measure the stability of the ranking";
    if (isfinite(loss)) snprintf(text, sizeof text, ", loss %.4g", loss);
    if (isfinite(halves))
        snprintf(trust, sizeof trust, "rank correlation between the halves of the texts %.2f", halves);
    cli_put_prose(s, 0, 0, "Importance by %s on %lld of %lld texts%s; %s.", mha_importance_score_key(m->by),
                  (long long)mha_importance_texts_used(m->importance), (long long)m->texts, text, trust);
}

static int put_result(cli_session *s, const measured_heads *m)
{
    if (s->options.json) return cli_put_json(s, heads_json(s, m), false);
    if (s->options.csv) {
        heads_table_csv(s->out, m);
        return CLI_DONE;
    }
    int code = heads_table_print(s, m);
    fputc('\n', s->out);
    if (m->importance)
        cli_put_importance_grid(s, m->model, m->heads, m->importance, given.scale, 0);
    else
        cli_put_grid(s, m->model, m->heads, 0);
    fputc('\n', s->out);
    if (m->importance) put_trust(s, m);
    cli_put_legend(s, m->heads, 0);
    if (m->roles) {
        fputc('\n', s->out);
        head_roles_print(s, m->model, m->roles);
    }
    if (!m->diversity) return code;
    fputc('\n', s->out);
    return head_diversity_print(s, m->model, m->heads, m->diversity);
}

/* ---- measurement ---- */

static int check_options(const cli_session *s, int64_t texts)
{
    if (given.maps && !s->options.json) return cli_usage(s, "--maps requires --json");
    if (given.diversity && s->options.csv) return cli_usage(s, "--diversity and --csv are mutually exclusive");
    if (given.roles && s->options.csv) return cli_usage(s, "--roles and --csv are mutually exclusive");
    if (given.maps && state_path_given) return cli_usage(s, "--maps and --state are mutually exclusive");
    if (given.maps && texts != 1) return cli_usage(s, "--maps requires one text (got %lld)", (long long)texts);
    return CLI_DONE;
}

/* Measures the statistics of all heads and, with --by, their importance. */
static int measure_heads(cli_session *s, const cli_texts *texts, const importance_scores *scores,
                         const mha_head_data *data, measured_heads *m)
{
    state_path state;
    const mha_heads_options how = {.size = sizeof how,
                                   .no_probe = given.no_probe,
                                   .seed = (uint64_t)s->options.seed,
                                   .keep_maps = given.maps,
                                   .state = state_path_of(0, "statistics", &state)};
    mha_error error = {0};
    if (given.maps) {
        const int code = head_texts_maps(s, m->model, texts->text[0], &how, &m->heads);
        return code == CLI_DONE ? importance_scores_measure(s, scores, m->model, 0, data, &m->importance) : code;
    }
    if (scores->wanted)
        return importance_scores_with_heads(s, scores, m->model, 0, data, &how, &m->importance, &m->heads);
    return mha_heads_measure_data(m->model, data, &how, &m->heads, &error) == MHA_OK ? CLI_DONE : cli_fail(s, &error);
}

/* Measures the importance of all heads of an encoder-decoder on source/target pairs. */
static int measure_pairs(cli_session *s, const mha_model *model, const cli_texts *texts,
                         const importance_scores *scores)
{
    mha_head_data *data = NULL;
    mha_importance *importance = NULL;
    if (!scores->wanted || given.maps || given.diversity || given.roles)
        return cli_usage(s,
                         "%s on source/target pairs (mha report --source TEXT --target TEXT draws the attention of a "
                         "pair)",
                         !scores->wanted   ? "missing --by SCORE, the only measure"
                         : given.maps      ? "--maps is not supported"
                         : given.diversity ? "--diversity is not supported"
                                           : "--roles is not supported");
    int code = head_texts_data(s, model, texts, s->work, &data);
    cli_texts_number(texts);
    if (code == CLI_DONE) code = importance_scores_measure(s, scores, model, 0, data, &importance);
    cli_texts_number(NULL);
    if (code == CLI_DONE) code = pair_scores_put(s, model, importance, scores->how.by, texts->count);
    mha_importance_free(importance);
    mha_head_data_free(data);
    return code;
}

static int measure_model(cli_session *s, const mha_model *model, const cli_texts *texts,
                         const importance_scores *scores)
{
    mha_head_data *data = NULL;
    state_path state;
    measured_heads m = {.by = scores->how.by, .texts = texts->count};
    const mha_model *side = cli_tower_of(s, cli_encoder_of(model), texts);
    int code = side ? CLI_DONE : CLI_USAGE;
    m.model = side;
    if (code == CLI_DONE && scores->wanted && mha_model_describe(side)->image_channels)
        code = cli_usage(s, "--by must not be given for images");
    if (code == CLI_DONE && given.roles) code = head_roles_measure(s, side, given.roles, &m.roles);
    const bool needed = !given.maps || scores->wanted || given.diversity;
    if (code == CLI_DONE && needed) code = head_texts_data(s, side, texts, s->work, &data);
    cli_texts_number(texts);
    if (code == CLI_DONE) code = measure_heads(s, texts, scores, data, &m);
    cli_texts_number(NULL);
    if (code == CLI_DONE && given.diversity)
        code = head_diversity_measure(s, side, data, state_path_of(0, "diversity", &state), &m.diversity);
    if (code == CLI_DONE) code = put_result(s, &m);
    head_roles_free(m.roles);
    mha_diversity_free(m.diversity);
    mha_importance_free(m.importance);
    mha_heads_free(m.heads);
    mha_head_data_free(data);
    return code;
}

static int measure(cli_session *s, const cli_texts *texts, const importance_scores *scores)
{
    mha_model *model = NULL;
    int code = cli_model_open(s, NULL, &model);
    if (code != CLI_DONE) return code;
    const bool pairs = mha_model_encoder(model) && cli_texts_are_pairs(texts);
    code = cli_model_check_text(s, model);
    if (code == CLI_DONE) code = (pairs ? measure_pairs : measure_model)(s, model, texts, scores);
    mha_model_free(model);
    return code;
}

static int run(cli_session *s)
{
    cli_texts texts;
    importance_scores scores;
    int code = cli_color_scale(s, given.colors, &given.scale);
    if (code == CLI_DONE) code = importance_scores_read(s, &scores);
    if (code == CLI_DONE) code = cli_texts_read(s, false, &texts);
    if (code != CLI_DONE) return code;
    code = check_options(s, texts.count);
    if (code == CLI_DONE) code = importance_scores_pair(s, &scores, false, &texts);
    if (code == CLI_DONE) code = measure(s, &texts, &scores);
    cli_texts_free(&texts);
    return code;
}

/* Prints the definitions of metrics and labels from the lists in heads.h. */
static void print_lists(FILE *out, int columns)
{
    enum { MARGIN = 24 };
    fputs("\nMetrics of one row of a map (the attention weights of one query):\n", out);
    for (int m = 0; m < MHA_HEAD_METRICS; m++) {
        fprintf(out, "  %-*s", MARGIN - 2, mha_head_metric_key((mha_head_metric)m));
        cli_put_wrapped(out, columns, MARGIN, MARGIN, mha_head_metric_help((mha_head_metric)m));
    }
    fputs("\nLabels:\n", out);
    for (int l = 0; l < MHA_HEAD_LABELS; l++) {
        fprintf(out, "  %-*s", MARGIN - 2, mha_head_label_key((mha_head_label)l));
        cli_put_wrapped(out, columns, MARGIN, MARGIN, mha_head_label_help((mha_head_label)l));
    }
    importance_scores_put_lists(out, columns, MARGIN);
}

static bool divides(void)
{
    return !given.maps && importance_scores_divide();
}

const cli_command cli_heads = {
    .name = "heads",
    .summary = "measure and label every attention head of a model",
    .usage = "TEXT... | -f FILE",
    .details =
        "Metrics are means over the tokens of all texts. A grid cell shows a label and, in percent, the score that "
        "decided the label. Texts must not contain NUL.\n"
        "--json prints {model, texts, layers, heads, head_numbers: [layers][heads], metrics: {name: "
        "[layers][heads]}, labels: [layers][heads]}; --csv prints one line per head. Heads are numbered as in the "
        "unpruned model. Both formats contain all metrics; the table shows only the metrics that fit the terminal.\n"
        "With --by, the table ranks the heads by importance, with 95 % confidence intervals over texts, and the "
        "grid shows importance in percent of the largest. JSON gains importance: {by, loss, texts, halves, "
        "saturated, values, low, high [layers][heads]}, where halves is the rank correlation between two halves of "
        "the texts. With --loss pairs, each text is two paraphrases separated by a tab.\n"
        "In an encoder-decoder, the encoder is measured on texts. If each text is a source and a target separated by a "
        "tab, --by measures the heads of the decoder, of its cross-attention and of the encoder, and the loss is the "
        "cross entropy of the target; JSON is {model, texts, importance: {by, loss, texts, halves, saturated, decoder, "
        "cross, encoder: {head_numbers, values, low, high [layers][heads]}}}, and CSV has the column kind.\n"
        "--diversity prints how different the heads of each layer are, and the pairs of heads with the most similar "
        "maps; JSON gains diversity: {rows, measures, unique, xy, merges}, as in mha report.\n"
        "--roles measures how often the largest weight of a verb is on its subject, of an object on its verb, of a "
        "noun on its determiner, and of a pronoun on its antecedent (Voita et al. 2019). A head has a role if its "
        "accuracy is at least 0.10 above the accuracy of the best fixed distance, the chance level. Each line of FILE "
        "is a sentence, a tab and its relations, such as: subject 4>3, object 7>4 (word numbers from 1; the later word "
        "first). share/mha/texts/roles.txt has 40 tagged sentences. JSON gains roles: {file, sentences, margin, "
        "relations, offset, uniform {role}, accuracy, mass {role: [layers][heads]}, labels}.\n"
        "With --state FILE, a stopped or killed run can be resumed and prints the same digits. About once a second, "
        "statistics are saved in FILE.statistics and scores in FILE.SCORE. Most scores resume after a multiple of "
        "32 texts; gradmag and scores of --loss pairs resume after a batch (--batch). A file from a different "
        "model, different texts or different options is rejected; delete it to start over.",
    .lists = print_lists,
    .shared = CLI_MODEL | CLI_FILE | CLI_IDS | CLI_JSON | CLI_CSV | CLI_SEED | CLI_DTYPE,
    .options = options,
    .examples = "mha heads \"Clara has a kite. Clara has a kite.\"\n"
                "mha heads -f texts.txt --by gradmag --csv\n"
                "mha heads -m minilm -f texts.txt --by jacobian_probe\n",
    .divides = divides,
    .run = run,
};
