/* cmd_regroup.c - `mha regroup`: merges key/value heads and evaluates the result on held-out texts. */
#include "commands.h"
#include "edit/held_out_evaluation.h"
#include "options.h"
#include "output.h"
#include "word_wrap.h"
#include <stdlib.h>
#include <string.h>

static struct {
    char *both, *keys, *values, *method, *ridge, *test;
    int contiguous, published, compatible;
} given;

static const struct poptOption options[] = {
    {"kv-heads", 0, POPT_ARG_STRING, &given.both, 0, "number of key heads and value heads per layer", "N"},
    {"key-heads", 0, POPT_ARG_STRING, &given.keys, 0, "number of key heads (default: unchanged)", "N"},
    {"value-heads", 0, POPT_ARG_STRING, &given.values, 0, "number of value heads (default: unchanged)", "N"},
    {"method", 0, POPT_ARG_STRING, &given.method, 0,
     "method that merges the heads of a group (default: closed; values if rotated or normalized keys are merged)",
     "METHOD"},
    IMPORTANCE_SCORES_OPTIONS_FOR("weight the heads of a group by their scores (default: equally)"),
    IMPORTANCE_SCORES_FILE,
    {"test", 0, POPT_ARG_STRING, &given.test, 0, "evaluate on these texts (default: every fourth text of -f)", "FILE"},
    {"ridge", 0, POPT_ARG_STRING, &given.ridge, 0,
     "ridge parameter of the refit, 0.001 to 1000; 0 = no refit (default: 0.3)", "X"},
    {"contiguous", 0, POPT_ARG_NONE, &given.contiguous, 0, "group neighboring heads instead of similar heads", NULL},
    {"published", 0, POPT_ARG_NONE, &given.published, 0,
     "use the closed form as published: neighboring heads, uncentered, no refit", NULL},
    {"compatible", 0, POPT_ARG_NONE, &given.compatible, 0,
     "repeat the rows of shared heads, so that transformers can load the model", NULL},
    POPT_TABLEEND};

typedef struct job {
    cli_session *session;
    mha_model *model;
    mha_regroup_options how;
    importance_scores by;
    double *scores; /* [layers, H] from --by or --scores; NULL if neither is given */
    char weighted_by[200];
    held_texts texts;
    held_out_evaluation evaluation;
} job;

/* ---- output ---- */

static int put_result(const job *job)
{
    const held_out_evaluation *e = &job->evaluation;
    cli_session *s = job->session;
    char unknown[IMPORTANCE_SCORES_UNKNOWN];
    if (!s->options.json) {
        held_out_print_title(s);
        held_out_print_row(s, "key heads per layer", e->of.key_heads[0], e->of.key_heads[1]);
        held_out_print_row(s, "value heads per layer", e->of.value_heads[0], e->of.value_heads[1]);
        held_out_print_rest(s, e, job->texts.learn ? "fitting" : NULL, importance_scores_unknown(&job->by, unknown));
        return CLI_DONE;
    }
    json_t *all = json_pack("{s:s, s:s, s:s, s:o, s:o}", "model", cli_shown(s->model_name), "out", cli_out_name(s),
                            "method", mha_regroup_method_key(job->how.method), "key_heads",
                            held_out_pair_json(e->of.key_heads[0], e->of.key_heads[1]), "value_heads",
                            held_out_pair_json(e->of.value_heads[0], e->of.value_heads[1]));
    held_out_add_json(all, e);
    return cli_put_json(s, all, false);
}

/* ---- regrouping ---- */

/* Measures or reads the scores that weight the heads; does nothing without --by and --scores. */
static int weigh(job *j)
{
    if (!importance_scores_given_any(&j->by)) return CLI_DONE;
    const mha_model_info *info = mha_model_describe(j->model);
    j->scores = calloc((size_t)(info->layers * info->heads), sizeof *j->scores);
    if (!j->scores) return cli_error(j->session, CLI_FAILED, "out of memory for the scores of heads");
    j->how.scores = j->scores;
    snprintf(j->weighted_by, sizeof j->weighted_by, "%s", importance_scores_source(&j->by));
    j->how.weighted_by = j->weighted_by;
    head_part own[MHA_HEAD_KINDS];
    return importance_scores_values(j->session, &j->by, own, head_parts_of(j->model, own), j->texts.learn, j->scores);
}

static int make(job *j, mha_model_edit **made)
{
    cli_session *s = j->session;
    mha_error error = {0};
    j->how.fit = j->texts.learn;
    if (mha_regroup(j->model, &j->how, made, &error) != MHA_OK) return cli_reject(s, &error);
    int code = held_out_evaluate(s, *made, &j->texts, &j->evaluation);
    if (code == CLI_DONE) code = held_out_save(s, *made, &j->evaluation);
    if (code != CLI_DONE) return code;
    cli_say(s, "%s: written", cli_out_name(s));
    if (!given.compatible) held_out_log_transformers(s, &j->evaluation);
    return put_result(j);
}

/* Returns true if scores are measured or weights fitted on texts. */
static bool learns(const job *j)
{
    return j->how.method != MHA_REGROUP_MEAN || j->how.ridge > 0 || importance_scores_need_texts(&j->by);
}

/* Selects the method without --method. */
static void choose_method(job *j)
{
    if (given.method || given.published) return;
    j->how.method = mha_regroup_default(j->model, j->how.key_heads);
    if (j->how.method != MHA_REGROUP_CLOSED)
        cli_say(j->session, "using --method %s, since the keys of %s are rotated or normalized",
                mha_regroup_method_key(j->how.method), mha_model_describe(j->model)->family);
}

static int work(job *j)
{
    cli_session *s = j->session;
    mha_model_edit *made = NULL;
    const mha_model_options how = {.size = sizeof how, .no_tokenizer = !s->options.file && !given.test};
    if (learns(j) && !s->options.file)
        return cli_usage(s, "missing texts to fit weights on: give -f FILE, or --method mean");
    int code = cli_model_open(s, &how, &j->model);
    if (code == CLI_DONE && mha_model_encoder(j->model))
        code =
            cli_error(s, CLI_REFUSED, "key and value heads of %s must not be regrouped, since it is an encoder-decoder",
                      mha_model_describe(j->model)->family);
    if (code == CLI_DONE) choose_method(j);
    if (code == CLI_DONE) code = held_texts_read(s, j->model, given.test, learns(j), &j->by, &j->texts);
    if (code == CLI_DONE) code = weigh(j);
    if (code == CLI_DONE) code = make(j, &made);
    mha_model_edit_free(made);
    return code;
}

static int read_method(const cli_session *s, mha_regroup_method *method)
{
    for (int n = 0; n < MHA_REGROUP_METHODS; n++)
        if (!given.method || strcmp(given.method, mha_regroup_method_key((mha_regroup_method)n)) == 0) {
            *method = (mha_regroup_method)n;
            return CLI_DONE;
        }
    return cli_usage(s, "--method must be one of closed, mean, values (got \"%s\")", cli_shown(given.method));
}

static int read_counts(const cli_session *s, mha_regroup_options *how)
{
    long long both = 0, keys = 0, values = 0;
    int code = cli_whole(s, "--kv-heads", given.both, 1, 65536, &both);
    if (code == CLI_DONE) code = cli_whole(s, "--key-heads", given.keys, 1, 65536, &keys);
    if (code == CLI_DONE) code = cli_whole(s, "--value-heads", given.values, 1, 65536, &values);
    if (code != CLI_DONE) return code;
    if (given.both && (given.keys || given.values))
        return cli_usage(s, "--kv-heads must not be combined with --key-heads or --value-heads");
    if (!given.both && !given.keys && !given.values) return cli_usage(s, "missing --kv-heads N");
    how->key_heads = given.both ? both : keys;
    how->value_heads = given.both ? both : values;
    return CLI_DONE;
}

static int check(job *j)
{
    cli_session *s = j->session;
    mha_regroup_options *how = &j->how;
    double ridge = 0;
    int code = importance_scores_read(s, &j->by);
    if (code == CLI_DONE) code = importance_scores_check_state(s);
    if (code == CLI_DONE) code = read_counts(s, how);
    if (code == CLI_DONE) code = read_method(s, &how->method);
    if (code == CLI_DONE) code = cli_number(s, "--ridge", given.ridge, 0, 1000, &ridge);
    if (code != CLI_DONE) return code;
    if (given.published && (given.ridge || how->method != MHA_REGROUP_CLOSED || importance_scores_given_any(&j->by)))
        return cli_usage(s, "--published must not be combined with --ridge, --by, --scores or --method");
    if (!s->options.out) return cli_usage(s, "missing -o FOLDER");
    how->ridge = given.published || (given.ridge && ridge == 0) ? -1 : ridge;
    how->contiguous = given.contiguous || given.published;
    how->uncentered = given.published;
    how->compatible = given.compatible;
    code = cli_texts_of_file(s, learns(j));
    return code == CLI_DONE ? cli_check_out_folder(s) : code;
}

static const cli_word words[] = {
    {"key_heads must ", "--key-heads must "}, {"value_heads must ", "--value-heads must "}, {NULL, NULL}};
static const cli_word of_both[] = {
    {"key_heads must ", "--kv-heads must "}, {"value_heads must ", "--kv-heads must "}, {NULL, NULL}};

static int run(cli_session *s)
{
    job j = {.session = s, .how = {.size = sizeof(mha_regroup_options)}};
    cli_message_words(given.both ? of_both : words);
    int code = check(&j);
    if (code == CLI_DONE) code = work(&j);
    held_texts_free(&j.texts);
    free(j.scores);
    mha_model_free(j.model);
    return code;
}

static void print_methods(FILE *out, int columns)
{
    enum { MARGIN = 12 };
    fputs("\nMethods:\n", out);
    for (int n = 0; n < MHA_REGROUP_METHODS; n++) {
        fprintf(out, "  %-*s", MARGIN - 2, mha_regroup_method_key((mha_regroup_method)n));
        cli_put_wrapped(out, columns, MARGIN, MARGIN, mha_regroup_method_help((mha_regroup_method)n));
    }
    importance_scores_put_lists(out, columns, 2 * MARGIN);
}

const cli_command cli_regroup = {
    .name = "regroup",
    .summary = "share keys and values between heads and write the smaller model",
    .usage = "-o FOLDER --kv-heads N [-f FILE]",
    .details =
        "The command converts multi-head attention to grouped-query attention, or reduces the number of groups. "
        "Sharing keys changes the output little; sharing values changes it more. The closed form minimizes the error "
        "of the shared heads on the texts of -f; similar heads are grouped, and the output projections are refitted. "
        "Rotated or normalized keys have no closed form: --method values, the default of such models, averages keys "
        "and computes the closed form for values. The folder contains the tokenizer and config and can be loaded again "
        "(mha.kv_heads in config.json, or num_key_value_heads); mha.record lists the grouping, the source file "
        "(sha256) and the measured quality. transformers loads the folder if config.json has num_key_value_heads; "
        "otherwise use --compatible, which repeats the rows of shared heads.\n"
        "With --by SCORE or --scores FILE, as in mha prune, the error of each head is weighted by its score, but at "
        "least by one hundredth of the highest score of the layer.\n"
        "Quality and speed are measured on held-out texts: the texts of --test or, by default, every fourth text of "
        "-f.\n"
        "--json prints {model, out, method, key_heads, value_heads, parameters, bytes, kv_bytes_per_token, quality, "
        "tokens_per_second}, where pairs are [before, after].",
    .lists = print_methods,
    .shared = CLI_MODEL | CLI_FILE | CLI_IDS | CLI_OUT | CLI_JSON | CLI_SEED,
    .options = options,
    .examples = "mha regroup --kv-heads 4 --method values -f texts.txt -o grouped\n"
                "mha regroup -m minilm --kv-heads 2 --method mean --ridge 0 -o shared\n",
    .divides = importance_scores_divide,
    .run = run,
};
