/* importance_scores.c - maps --by and its options to mha/importance.h. */
#include "heads/importance_scores.h"

#include "heads/heads_json.h"
#include "input/scores_file.h"
#include "options.h"
#include "output.h"
#include "word_wrap.h"
#include <stdlib.h>
#include <string.h>

struct importance_scores_given importance_scores_given;

/* ---- options ---- */

static int find_score(const cli_session *s, const char *name, mha_importance_score *score)
{
    for (*score = 0; *score < MHA_IMPORTANCE_SCORES; (*score)++)
        if (strcmp(mha_importance_score_key(*score), name) == 0) return CLI_DONE;
    return cli_usage(s, "--by must name a score (got \"%s\"); --help lists the scores", cli_shown(name));
}

static int find_loss(const cli_session *s, const char *name, mha_head_loss *loss)
{
    *loss = MHA_LOSS_AUTO;
    if (!name) return CLI_DONE;
    for (mha_head_loss l = MHA_LOSS_LM; l <= MHA_LOSS_PAIRS; l++)
        if (strcmp(mha_head_loss_key(l), name) == 0) {
            *loss = l;
            return CLI_DONE;
        }
    return cli_usage(s, "--loss must be one of lm, mlm, pairs (got \"%s\")", cli_shown(name));
}

/* Rejects options that require --by. --loss is accepted with --scores, where --loss pairs declares that each line of -f
 * is a pair. */
static int refuse_companions(const cli_session *s)
{
    const struct {
        const char *name, *value;
    } companions[] = {{"--loss", importance_scores_given.file ? NULL : importance_scores_given.loss},
                      {"--probes", importance_scores_given.probes},
                      {"--settle", importance_scores_given.settle},
                      {"--batch", importance_scores_given.batch}};
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++)
        if (companions[i].value) return cli_usage(s, "%s requires --by SCORE", companions[i].name);
    return CLI_DONE;
}

int importance_scores_check_state(const cli_session *s)
{
    const bool unused = state_path_given && !importance_scores_given.by;
    return unused ? cli_usage(s, "--state requires --by SCORE") : CLI_DONE;
}

bool importance_scores_divide(void)
{
    return !importance_scores_given.settle;
}

int importance_scores_read(const cli_session *s, importance_scores *scores)
{
    const struct importance_scores_given *g = &importance_scores_given;
    if (state_path_check(s) != CLI_DONE) return CLI_USAGE;
    *scores = (importance_scores){.wanted = g->by != NULL,
                                  .file = g->file,
                                  .how = {.size = sizeof scores->how, .seed = (uint64_t)s->options.seed}};
    if (g->file && g->by) return cli_usage(s, "--by and --scores %s are mutually exclusive", cli_shown(g->file));
    mha_importance_options *o = &scores->how;
    long long probes = 0, batch = 0;
    int code = g->by ? find_score(s, g->by, &o->by) : refuse_companions(s);
    if (code == CLI_DONE) code = find_loss(s, g->loss, &o->loss);
    if (code == CLI_DONE) code = cli_whole(s, "--probes", g->probes, 1, 4096, &probes);
    if (code == CLI_DONE) code = cli_whole(s, "--batch", g->batch, 1, 1LL << 40, &batch);
    if (code == CLI_DONE) code = cli_number(s, "--settle", g->settle, 0, 1, &o->settle);
    o->probes = (int)probes;
    o->batch_texts = batch;
    return code;
}

/* ---- inputs of the losses ---- */

static size_t room_of(const cli_texts *texts)
{
    size_t room = 1;
    for (int64_t i = 0; i < texts->count; i++)
        room += texts->bytes[i] + 1;
    return room;
}

bool importance_scores_given_any(const importance_scores *scores)
{
    return scores->wanted || scores->file;
}

bool importance_scores_use_pairs(const importance_scores *scores)
{
    return importance_scores_given_any(scores) && scores->how.loss == MHA_LOSS_PAIRS;
}

static int make_room(const cli_session *s, const cli_texts *texts, cli_texts *both)
{
    const size_t max = 2 * (size_t)texts->count;
    *both = (cli_texts){.count = texts->count,
                        .text = calloc(max, sizeof *both->text),
                        .bytes = calloc(max, sizeof *both->bytes),
                        .line = calloc(max, sizeof *both->line),
                        .path = texts->path,
                        .memory = malloc(room_of(texts))};
    if (both->text && both->bytes && both->line && both->memory) return CLI_DONE;
    return cli_error(s, CLI_FAILED, "out of memory for the texts");
}

static void put_text(cli_texts *both, int64_t at, const char *text, size_t bytes, int64_t line)
{
    both->text[at] = text;
    both->bytes[at] = bytes;
    both->line[at] = line;
}

/* Splits text i of `texts` at its tab: the first part becomes text i of `both`, the second part is appended to
 * `both`. */
static int cut(const cli_session *s, const cli_texts *texts, int64_t i, bool not_scored, char *at, cli_texts *both)
{
    memcpy(at, texts->text[i], texts->bytes[i] + 1);
    char *tab = strchr(at, '\t'), where[CLI_WHERE];
    const int64_t line = texts->line ? texts->line[i] : 0;
    if ((!tab && !not_scored) || (tab && strchr(tab + 1, '\t')))
        return cli_usage(s, "%s--loss pairs requires two texts separated by one tab", cli_texts_where(texts, i, where));
    put_text(both, i, at, tab ? (size_t)(tab - at) : texts->bytes[i], line);
    if (!tab) return CLI_DONE;
    *tab = '\0';
    put_text(both, both->count++, tab + 1, texts->bytes[i] - both->bytes[i] - 1, line);
    return CLI_DONE;
}

int importance_scores_pair(const cli_session *s, const importance_scores *scores, bool not_scored, cli_texts *texts)
{
    cli_texts both;
    if (!importance_scores_use_pairs(scores)) return CLI_DONE;
    int code = make_room(s, texts, &both);
    char *at = both.memory;
    for (int64_t i = 0; code == CLI_DONE && i < texts->count; at += texts->bytes[i++] + 1)
        code = cut(s, texts, i, not_scored, at, &both);
    if (code == CLI_DONE && !texts->line) {
        free(both.line); /* `line` is NULL if the texts are arguments */
        both.line = NULL;
    }
    cli_texts_free(code == CLI_DONE ? texts : &both);
    if (code == CLI_DONE) *texts = both;
    return code;
}

/* Creates a copy of the data with masked tokens, and their labels. The caller frees both, also after an error. */
static int hide(cli_session *s, const mha_model *model, uint64_t seed, const mha_head_data *data, int32_t **labels,
                mha_head_data **out)
{
    mha_error error = {0};
    if (mha_tokenizer_mask_id(mha_model_tokenizer(model)) < 0)
        return cli_usage(s, "--loss mlm requires a tokenizer with a [MASK] token");
    *labels = calloc((size_t)mha_head_data_tokens(data), sizeof **labels);
    if (!*labels) return cli_error(s, CLI_FAILED, "out of memory");
    return mha_head_data_mask(model, data, seed, *labels, out, &error) == MHA_OK ? CLI_DONE : cli_fail(s, &error);
}

/* ---- measurement ---- */

/* Fails if the score requires a loss that the model does not define. The message names the options to use; the
 * library's message would name its arguments. */
static int check_loss(const cli_session *s, const mha_model *model, const mha_importance_options *how)
{
    const mha_model_info *info = mha_model_describe(model);
    const bool own = info->causal && info->logits;
    if (how->loss != MHA_LOSS_AUTO || own || !mha_importance_score_needs_loss(how->by)) return CLI_DONE;
    const bool masks = info->logits && !info->causal && mha_tokenizer_mask_id(mha_model_tokenizer(model)) >= 0;
    return cli_usage(s,
                     "--by %s requires a loss, which this model does not define: give %s--loss pairs (each text two "
                     "paraphrases separated by a tab), or a score without a loss: --by jacobian_probe",
                     mha_importance_score_key(how->by), masks ? "--loss mlm (predict masked tokens), " : "");
}

/* Measures importance on the masked copy of the data, if there is one, and then the statistics on the original data: an
 * option that the model does not support is found before the statistics are saved. */
static mha_status measure(const mha_model *model, const mha_head_data *data, const mha_head_data *hidden,
                          const mha_importance_options *how, const mha_heads_options *heads_how, mha_importance **out,
                          mha_heads **heads, mha_error *err)
{
    if (!hidden && heads) return mha_importance_with_heads(model, data, how, heads_how, out, heads, err);
    const mha_status status = mha_importance_measure(model, hidden ? hidden : data, how, out, err);
    return status == MHA_OK && heads ? mha_heads_measure_data(model, data, heads_how, heads, err) : status;
}

int importance_scores_measure(cli_session *s, const importance_scores *scores, const mha_model *model, int number,
                              const mha_head_data *data, mha_importance **out)
{
    return importance_scores_with_heads(s, scores, model, number, data, NULL, out, NULL);
}

int importance_scores_with_heads(cli_session *s, const importance_scores *scores, const mha_model *model, int number,
                                 const mha_head_data *data, const mha_heads_options *heads_how, mha_importance **out,
                                 mha_heads **heads)
{
    *out = NULL;
    if (!scores->wanted) return CLI_DONE;
    mha_head_data *hidden = NULL;
    int32_t *labels = NULL;
    mha_error error = {0};
    mha_importance_options how = scores->how;
    state_path state;
    int code = check_loss(s, model, &how);
    how.state = state_path_of(number, mha_importance_score_key(how.by), &state);
    if (code == CLI_DONE && how.loss == MHA_LOSS_MLM) code = hide(s, model, how.seed, data, &labels, &hidden);
    how.labels = labels;
    if (code == CLI_DONE && measure(model, data, hidden, &how, heads_how, out, heads, &error) != MHA_OK)
        code = error.status == MHA_ERR_NOT_FINITE ? cli_refuse(s, &error) : cli_fail(s, &error);
    free(labels);
    mha_head_data_free(hidden);
    return code;
}

/* ---- scores for other commands ---- */

bool importance_scores_need_texts(const importance_scores *scores)
{
    return scores->wanted && scores->how.by != MHA_IMPORTANCE_OV_NORM && scores->how.by != MHA_IMPORTANCE_QK_NORM;
}

const char *importance_scores_source(const importance_scores *scores)
{
    return scores->file ? cli_shown(scores->file) : mha_importance_score_key(scores->how.by);
}

const char *importance_scores_unknown(const importance_scores *scores, char text[IMPORTANCE_SCORES_UNKNOWN])
{
    if (!scores->file) return NULL;
    snprintf(text, IMPORTANCE_SCORES_UNKNOWN, "The scores of %s may have been measured on these texts.",
             cli_shown(scores->file));
    return text;
}

/* Rounds a score as `mha heads` prints it, so that --by and --scores choose the same heads. */
static double printed(double value)
{
    char digits[40];
    snprintf(digits, sizeof digits, "%.9g", value);
    return strtod(digits, NULL);
}

int importance_scores_values(cli_session *s, const importance_scores *scores, const head_part *parts, int count,
                             const mha_head_data *data, double *values)
{
    if (scores->file) return scores_file_read(s, scores->file, parts, count, values);
    mha_importance *importance;
    mha_importance_heads heads;
    const int code = importance_scores_measure(s, scores, parts->model, 0, data, &importance);
    for (int k = 0; code == CLI_DONE && mha_importance_kind(importance, (mha_head_kind)k, &heads); k++)
        for (int64_t n = 0; n < heads.layers * heads.heads; n++)
            *values++ = printed(heads.values[n]);
    mha_importance_free(importance);
    return code;
}

/* ---- output ---- */

typedef double (*value_fn)(const mha_importance *, int64_t layer, int64_t head);

typedef struct wanted {
    value_fn value;
    const mha_importance *importance;
} wanted;

static json_t *value_item(const mha_heads *heads, int64_t layer, int64_t head, const void *arg)
{
    (void)heads;
    const wanted *what = arg;
    return cli_real(what->value(what->importance, layer, head));
}

static json_t *values_json(const mha_importance *importance, const mha_heads *heads, value_fn value)
{
    return heads_json_each(heads, value_item, &(wanted){value, importance});
}

json_t *importance_scores_json(const mha_importance *importance, const mha_heads *heads, mha_importance_score by)
{
    return json_pack(
        "{s:s, s:o, s:I, s:o, s:b, s:o, s:o, s:o}", "by", mha_importance_score_key(by), "loss",
        cli_real(mha_importance_loss(importance)), "texts", (json_int_t)mha_importance_texts_used(importance), "halves",
        cli_real(mha_importance_halves(importance)), "saturated", mha_importance_saturated(importance), "values",
        values_json(importance, heads, mha_importance_value), "low", values_json(importance, heads, mha_importance_low),
        "high", values_json(importance, heads, mha_importance_high));
}

void importance_scores_put_lists(FILE *out, int columns, int margin)
{
    fputs("\nScores of --by:\n", out);
    for (mha_importance_score score = 0; score < MHA_IMPORTANCE_SCORES; score++) {
        fprintf(out, "  %-*s", margin - 2, mha_importance_score_key(score));
        cli_put_wrapped(out, columns, margin, margin, mha_importance_score_help(score));
    }
}
