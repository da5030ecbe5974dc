/* report_pair.c - runs an encoder-decoder on a source and a target, and adds its three kinds of attention to the
 * report. */
#include "report/report_pair.h"

#include "input/input.h"
#include "input/sequence.h"
#include "output.h"
#include "report/pair_attention.h"
#include "report/pair_gates.h"
#include "report/report_maps.h"
#include "session.h"
#include <stdlib.h>
#include <string.h>

enum { ENCODER, DECODER, CROSS, KINDS };

typedef struct pair {
    bool gates; /* measure the effects of heads */
    mha_model *model;
    cli_sequence sequence;
    pair_attention kind[KINDS];
} pair;

/* ---- running ---- */

/* Reads source and target as one text, separated by a tab, as the other commands of encoder-decoders do. */
static int read_pair(cli_session *s, const char *source, const char *target, pair *p)
{
    const size_t bytes = strlen(source) + strlen(target) + 2;
    char *text = malloc(bytes);
    const char **given = s->args;
    if (!text) return cli_error(s, CLI_FAILED, "out of memory");
    snprintf(text, bytes, "%s\t%s", source, target);
    const char *list[] = {text, NULL};
    s->args = list;
    s->arg_count = 1;
    const int code = cli_sequence_read(s, p->model, &p->sequence);
    s->args = given;
    s->arg_count = 0;
    free(text);
    return code;
}

static int keep_encoder(void *user, int64_t layer, int64_t heads, const float *probs)
{
    pair_attention_keep(&((pair *)user)->kind[ENCODER], layer, heads, probs);
    return cli_stopped();
}

static int keep_decoder(void *user, int64_t layer, int64_t heads, const float *probs)
{
    pair_attention_keep(&((pair *)user)->kind[DECODER], layer, heads, probs);
    return cli_stopped();
}

static int keep_cross(void *user, int64_t layer, int64_t heads, const float *probs)
{
    pair_attention_keep(&((pair *)user)->kind[CROSS], layer, heads, probs);
    return cli_stopped();
}

static int check_size(const cli_session *s, const pair *p)
{
    double weights = 0;
    for (int k = 0; k < KINDS; k++) {
        const pair_attention *a = &p->kind[k];
        weights += (double)a->layers * (double)a->heads * (double)a->rows * (double)a->columns;
    }
    if (weights <= REPORT_WEIGHTS_MAX) return CLI_DONE;
    return cli_usage(s, "source and target must have at most %d attention weights in total (got %.0f)",
                     REPORT_WEIGHTS_MAX, weights);
}

static int run(const cli_session *s, pair *p)
{
    const mha_model_info *encoder = mha_model_describe(mha_model_encoder(p->model)),
                         *decoder = mha_model_describe(p->model);
    const cli_sequence *q = &p->sequence;
    const int32_t *source = q->pair.source->ids;
    const int64_t S = q->source.length, T = q->count;
    mha_error error = {0};
    p->kind[ENCODER] =
        (pair_attention){"encoder", "Encoder", encoder->layers, encoder->heads, S, S, source, source, false, NULL};
    p->kind[DECODER] =
        (pair_attention){"decoder", "Decoder", decoder->layers, decoder->heads, T, T, q->ids, q->ids, true, NULL};
    p->kind[CROSS] = (pair_attention){
        "cross", "Cross-attention", decoder->layers, decoder->heads, T, S, q->ids, source, false, NULL};
    const int code = check_size(s, p);
    if (code != CLI_DONE) return code;
    for (int k = 0; k < KINDS; k++)
        if (!pair_attention_open(&p->kind[k])) return cli_error(s, CLI_FAILED, "out of memory for the maps");
    const mha_model_output first = {.size = sizeof first, .on_attention = keep_encoder, .user = p};
    const mha_model_output output = {.size = sizeof output,
                                     .on_attention = keep_decoder,
                                     .on_cross_attention = keep_cross,
                                     .encoder = &first,
                                     .user = p};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = T, .ids = q->ids, .source = &q->source};
    return mha_model_forward(p->model, &input, &output, &error) == MHA_OK ? CLI_DONE : cli_fail(s, &error);
}

/* ---- results ---- */

/* Returns the tokens as the tokenizer stores them. */
static json_t *names_of(const mha_model *model, const int32_t *ids, int64_t count)
{
    char digits[CLI_ID_DIGITS];
    json_t *names = json_array();
    for (int64_t n = 0; n < count; n++)
        json_array_append_new(names, json_string(cli_token_name(model, ids[n], digits)));
    return names;
}

/* Measures the effects of heads. */
static int measure_gates(const cli_session *s, const pair *p, const pair_attention *a, json_t **importance)
{
    static const pair_heads of[] = {[ENCODER] = PAIR_ENCODER, [DECODER] = PAIR_DECODER, [CROSS] = PAIR_CROSS};
    *importance = NULL;
    if (!p->gates) return CLI_DONE;
    return pair_gates_measure(s, p->model, &p->sequence, of[a - p->kind], importance);
}

/* Adds one kind of attention to the --json object. */
static void add_json(const pair *p, const pair_attention *a, json_t *numbers, json_t *metrics, json_t *labels,
                     json_t *importance, json_t *said)
{
    json_t *queries = a->queries == a->keys ? NULL : names_of(p->model, a->queries, a->rows);
    json_object_set_new(said, a->key,
                        json_pack("{s:o, s:o*, s:O, s:O, s:O, s:O*, s:o}", "tokens",
                                  names_of(p->model, a->keys, a->columns), "queries", queries, "heads", numbers,
                                  "metrics", metrics, "labels", labels, "importance", importance, "attention",
                                  pair_attention_weights(a)));
}

/* Adds one kind of attention to the page, and to the --json object unless it is NULL. */
static int add_kind(const cli_session *s, const pair *p, const pair_attention *a, const char *text, report *r,
                    json_t *said)
{
    json_t *metrics = NULL, *labels = NULL, *importance = NULL, *numbers = pair_attention_numbers(a);
    int code = pair_attention_measure(s, p->sequence.tokenizer, a, &metrics, &labels);
    if (code == CLI_DONE) code = measure_gates(s, p, a, &importance);
    json_t *queries = a->queries == a->keys ? NULL : report_tokens_json(p->model, a->queries, a->rows);
    json_t *maps = report_maps_of(a->maps, a->layers * a->heads, a->rows, a->columns, REPORT_EXACT_BYTES / KINDS);
    json_t *model = json_pack("{s:s, s:s, s:b, s:i, s:o, s:o*, s:O, s:O, s:O, s:O*, s:o}", "model",
                              cli_shown(s->model_name), "kind", a->key, "causal", a->causal, "cut", 0, "tokens",
                              report_tokens_json(p->model, a->keys, a->columns), "queries", queries, "heads", numbers,
                              "metrics", metrics, "labels", labels, "importance", importance, "maps", maps);
    if (code == CLI_DONE && said) add_json(p, a, numbers, metrics, labels, importance, said);
    json_decref(numbers);
    json_decref(metrics);
    json_decref(labels);
    json_decref(importance);
    if (code == CLI_DONE && !report_add_models(r, text, model ? json_pack("[O]", model) : NULL))
        code = cli_error(s, CLI_FAILED, "out of memory for the maps");
    json_decref(model);
    return code;
}

/* Adds all kinds, each under its title. */
static int add_all(const cli_session *s, const pair *p, const char *source, const char *target, report *r, json_t *said)
{
    static const int order[] = {CROSS, ENCODER, DECODER};
    const size_t bytes = strlen(source) + strlen(target) + 64;
    char *text = malloc(bytes);
    int code = text ? CLI_DONE : cli_error(s, CLI_FAILED, "out of memory");
    for (int n = 0; code == CLI_DONE && n < KINDS; n++) {
        const pair_attention *a = &p->kind[order[n]];
        if (order[n] == CROSS)
            snprintf(text, bytes, "%s: %s → %s", a->title, target, source);
        else
            snprintf(text, bytes, "%s: %s", a->title, order[n] == ENCODER ? source : target);
        code = add_kind(s, p, a, text, r, said);
    }
    free(text);
    if (code == CLI_DONE && !report_measured(r, NULL, NULL, NULL)) code = cli_error(s, CLI_FAILED, "out of memory");
    return code;
}

static bool reads_texts(const mha_model *model)
{
    const mha_model *encoder = mha_model_encoder(model);
    return encoder && mha_model_describe(encoder)->feature_bins == 0;
}

/* The tables of a page have a cell for every head of every layer. */
static int check_heads(const cli_session *s, const mha_model *model)
{
    const mha_model *const sides[] = {model, mha_model_encoder(model)};
    bool pruned = false;
    for (int n = 0; n < 2; n++) {
        const mha_model_info *info = mha_model_describe(sides[n]);
        for (int64_t l = 0; l < info->layers; l++)
            pruned |= info->heads_per_layer[l] != info->original_heads ||
                      (info->cross_heads_per_layer && info->cross_heads_per_layer[l] != info->original_heads);
    }
    return pruned ? cli_usage(s, "--source requires an encoder-decoder from which no heads were removed (got %s)",
                              cli_shown(s->model_name))
                  : CLI_DONE;
}

int report_pair_measure(cli_session *s, const char *source, const char *target, bool gates, report *r, json_t **said)
{
    pair p = {.gates = gates};
    int code = cli_model_open(s, NULL, &p.model);
    if (code == CLI_DONE && !reads_texts(p.model))
        code =
            cli_usage(s, "--source requires an encoder-decoder of texts (got %s)", mha_model_describe(p.model)->family);
    if (code == CLI_DONE) code = check_heads(s, p.model);
    if (code == CLI_DONE) code = read_pair(s, source, target, &p);
    if (code == CLI_DONE && gates && p.sequence.count < 2)
        code = cli_usage(s, "--by requires a target of at least one token");
    if (code == CLI_DONE) code = run(s, &p);
    if (code == CLI_DONE)
        *said = json_pack("{s:s, s:s, s:s}", "model", cli_shown(s->model_name), "source", source, "target", target);
    if (code == CLI_DONE) code = add_all(s, &p, source, target, r, s->options.json ? *said : NULL);
    for (int k = 0; k < KINDS; k++)
        pair_attention_free(&p.kind[k]);
    cli_sequence_free(&p.sequence);
    mha_model_free(p.model);
    return code;
}
