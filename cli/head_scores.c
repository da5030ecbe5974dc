/* head_scores.c - from --by and its companions to mha/importance.h. */
#include "head_scores.h"

#include <stdlib.h>
#include <string.h>

#include "heads_json.h"
#include "options.h"
#include "output.h"
#include "wrap.h"

struct head_scores_given head_scores_given;

/* ---- options ---- */

static int find_score(const cli_session *s, const char *name, mha_head_score *score)
{
    for (*score = 0; *score < MHA_HEAD_SCORES; (*score)++)
        if (strcmp(mha_head_score_key(*score), name) == 0) return CLI_DONE;
    return cli_usage(s, "--by \"%s\": there is no such score; --help lists them", cli_shown(name));
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
    return cli_usage(s, "--loss \"%s\": want lm, mlm or pairs", cli_shown(name));
}

static int refuse_companions(const cli_session *s)
{
    const struct {
        const char *name, *value;
    } companions[] = {{"--loss", head_scores_given.loss},
                      {"--probes", head_scores_given.probes},
                      {"--settle", head_scores_given.settle},
                      {"--batch", head_scores_given.batch}};
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++)
        if (companions[i].value) return cli_usage(s, "%s goes with --by", companions[i].name);
    return CLI_DONE;
}

static int check_state(const cli_session *s, const char *state)
{
    const size_t longest = sizeof((head_state *)0)->path - HEAD_STATE_WORD - sizeof ".2.";
    if (state && (!*state || strlen(state) > longest)) return cli_usage(s, "--state wants a file's name");
    return CLI_DONE;
}

const char *head_state_path(int model, const char *word, head_state *memory)
{
    if (!head_scores_given.state) return NULL;
    snprintf(memory->path, sizeof memory->path, "%s%s.%s", head_scores_given.state, model ? ".2" : "", word);
    return memory->path;
}

int head_scores_read(const cli_session *s, head_scores *scores)
{
    const struct head_scores_given *g = &head_scores_given;
    if (check_state(s, g->state) != CLI_DONE) return CLI_USAGE;
    *scores =
        (head_scores){.wanted = g->by != NULL, .how = {.size = sizeof scores->how, .seed = (uint64_t)s->options.seed}};
    if (!g->by) return refuse_companions(s);
    mha_importance_options *o = &scores->how;
    long long probes = 0, batch = 0;
    int code = find_score(s, g->by, &o->by);
    if (code == CLI_DONE) code = find_loss(s, g->loss, &o->loss);
    if (code == CLI_DONE) code = cli_whole(s, "--probes", g->probes, 1, 4096, &probes);
    if (code == CLI_DONE) code = cli_whole(s, "--batch", g->batch, 1, 1LL << 40, &batch);
    if (code == CLI_DONE) code = cli_number(s, "--settle", g->settle, 0, 1, &o->settle);
    o->probes = (int)probes;
    o->batch_texts = batch;
    return code;
}

/* ---- texts of the losses ---- */

static size_t room_of(const cli_texts *texts)
{
    size_t room = 1;
    for (int64_t i = 0; i < texts->count; i++)
        room += texts->bytes[i] + 1;
    return room;
}

int head_scores_pair(const cli_session *s, const head_scores *scores, cli_texts *texts)
{
    if (!scores->wanted || scores->how.loss != MHA_LOSS_PAIRS) return CLI_DONE;
    const size_t n = (size_t)texts->count;
    cli_texts both = {.count = 2 * texts->count,
                      .text = calloc(2 * n, sizeof *both.text),
                      .bytes = calloc(2 * n, sizeof *both.bytes),
                      .memory = malloc(room_of(texts))};
    int code = both.text && both.bytes && both.memory ? CLI_DONE : cli_error(s, CLI_FAILED, "out of memory");
    char *at = both.memory;
    for (size_t i = 0; code == CLI_DONE && i < n; i++) {
        memcpy(at, texts->text[i], texts->bytes[i] + 1);
        char *tab = strchr(at, '\t');
        if (!tab || strchr(tab + 1, '\t')) {
            code = cli_usage(s, "text %zu: --loss pairs wants two texts with one tab between", i + 1);
            break;
        }
        *tab = '\0';
        both.text[i] = at;
        both.bytes[i] = (size_t)(tab - at);
        both.text[n + i] = tab + 1;
        both.bytes[n + i] = texts->bytes[i] - both.bytes[i] - 1;
        at += texts->bytes[i] + 1;
    }
    cli_texts *old = code == CLI_DONE ? texts : &both;
    const cli_texts kept = code == CLI_DONE ? both : *texts;
    cli_texts_free(old);
    *texts = kept;
    return code;
}

/* The id that stands for a hidden word; -1 if the tokenizer has none. */
static int32_t mask_id(const mha_tokenizer *tokenizer)
{
    const int32_t id = mha_tokenizer_id(tokenizer, "[MASK]");
    return id >= 0 ? id : mha_tokenizer_id(tokenizer, "<mask>");
}

enum { MASKED_PERCENT = 15 }; /* Devlin et al. 2019 */

/* What the loss of masked words reads: all tokens one behind another, some of them hidden, and what was hidden. */
typedef struct masked {
    int32_t *ids, *labels;
    int64_t *starts;
} masked;

static void masked_free(masked *m)
{
    free(m->ids);
    free(m->labels);
    free(m->starts);
}

static void hide_tokens(const mha_tokenizer *tokenizer, const mha_head_data *data, uint64_t seed, masked *m)
{
    const int32_t mask = mask_id(tokenizer);
    mha_rng rng;
    mha_rng_manual_seed(&rng, seed);
    int64_t at = 0;
    for (int64_t t = 0; t < mha_head_data_count(data); t++) {
        int64_t length;
        const int32_t *text = mha_head_data_ids(data, t, &length);
        m->starts[t] = at;
        for (int64_t i = 0; i < length; i++, at++) {
            const bool hide =
                mha_rng_next(&rng) % 100 < MASKED_PERCENT && !mha_tokenizer_is_special(tokenizer, text[i]);
            m->ids[at] = hide ? mask : text[i];
            m->labels[at] = hide ? text[i] : MHA_IGNORE;
        }
    }
    m->starts[mha_head_data_count(data)] = at;
}

/* *out is the data with hidden words. */
static int hide(cli_session *s, const mha_model *model, uint64_t seed, const mha_head_data *data, masked *m,
                mha_head_data **out)
{
    const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
    const size_t tokens = (size_t)mha_head_data_tokens(data), texts = (size_t)mha_head_data_count(data);
    if (mask_id(tokenizer) < 0) return cli_usage(s, "--loss mlm: the tokenizer has no [MASK] to hide words with");
    *m = (masked){calloc(tokens, sizeof *m->ids), calloc(tokens, sizeof *m->labels),
                  calloc(texts + 1, sizeof *m->starts)};
    if (!m->ids || !m->labels || !m->starts) return cli_error(s, CLI_FAILED, "out of memory");
    hide_tokens(tokenizer, data, seed, m);
    mha_error error = {0};
    if (mha_head_data_of_ids(model, m->ids, m->starts, (int64_t)texts, NULL, out, &error) != MHA_OK)
        return cli_fail(s, &error);
    return CLI_DONE;
}

/* ---- measuring ---- */

/* The library speaks of labels and of pairs; here are the options that make them. */
static int check_loss(const cli_session *s, const mha_model *model, const mha_importance_options *how)
{
    const mha_model_info *info = mha_model_describe(model);
    const bool own = info->causal && info->logits;
    if (how->loss != MHA_LOSS_AUTO || own || !mha_head_score_needs_loss(how->by)) return CLI_DONE;
    const bool masks = info->logits && !info->causal && mask_id(mha_model_tokenizer(model)) >= 0;
    return cli_usage(s,
                     "--by %s needs a loss, and the model has none of its own: give %s--loss pairs (each text two that "
                     "mean the same, with a tab between), or a score that needs none: --by jacobian_probe",
                     mha_head_score_key(how->by), masks ? "--loss mlm (words are hidden and guessed), " : "");
}

int head_scores_measure(cli_session *s, const head_scores *scores, const mha_model *model, int number,
                        const mha_head_data *data, mha_importance **out)
{
    *out = NULL;
    if (!scores->wanted) return CLI_DONE;
    mha_head_data *hidden = NULL;
    masked m = {0};
    mha_error error = {0};
    mha_importance_options how = scores->how;
    head_state state;
    int code = check_loss(s, model, &how);
    how.state = head_state_path(number, mha_head_score_key(how.by), &state);
    if (code == CLI_DONE && how.loss == MHA_LOSS_MLM) code = hide(s, model, how.seed, data, &m, &hidden);
    how.labels = m.labels;
    if (code == CLI_DONE && mha_importance_measure(model, hidden ? hidden : data, &how, out, &error) != MHA_OK)
        code = cli_fail(s, &error);
    masked_free(&m);
    mha_head_data_free(hidden);
    return code;
}

/* ---- the result ---- */

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

json_t *head_scores_json(const mha_importance *importance, const mha_heads *heads, mha_head_score by)
{
    return json_pack(
        "{s:s, s:o, s:I, s:o, s:b, s:o, s:o, s:o}", "by", mha_head_score_key(by), "loss",
        cli_real(mha_importance_loss(importance)), "texts", (json_int_t)mha_importance_texts_used(importance), "halves",
        cli_real(mha_importance_halves(importance)), "saturated", mha_importance_saturated(importance), "values",
        values_json(importance, heads, mha_importance_value), "low", values_json(importance, heads, mha_importance_low),
        "high", values_json(importance, heads, mha_importance_high));
}

void head_scores_put_lists(FILE *out, int columns, int margin)
{
    fputs("\nScores of --by:\n", out);
    for (mha_head_score score = 0; score < MHA_HEAD_SCORES; score++) {
        fprintf(out, "  %-*s", margin - 2, mha_head_score_key(score));
        cli_put_wrapped(out, columns, margin, margin, mha_head_score_help(score));
    }
}
