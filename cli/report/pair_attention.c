/* pair_attention.c - keeps the maps of one kind of attention, and measures them. */
#include "report/pair_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "heads/heads_json.h"
#include "input/tokens.h"
#include "output.h"

/* Statistics of cross-attention: the mean over queries of measures of a row. */
enum { ENTROPY, ENTROPY_NORM, CONFIDENCE, FIRST, SEP, PUNCT, CROSS_METRICS };
static const mha_head_metric cross_metrics[CROSS_METRICS] = {
    MHA_HEAD_ENTROPY, MHA_HEAD_ENTROPY_NORM, MHA_HEAD_CONFIDENCE, MHA_HEAD_FIRST, MHA_HEAD_SEP, MHA_HEAD_PUNCT};

bool pair_attention_open(pair_attention *a)
{
    a->maps = calloc((size_t)(a->layers * a->heads * a->rows * a->columns), sizeof *a->maps);
    return a->maps != NULL;
}

void pair_attention_free(pair_attention *a)
{
    free(a->maps);
}

void pair_attention_keep(pair_attention *a, int64_t layer, int64_t heads, const float *probs)
{
    const int64_t each = a->rows * a->columns;
    if (layer >= a->layers || heads > a->heads) return;
    memcpy(a->maps + layer * a->heads * each, probs, (size_t)(heads * each) * sizeof *probs);
}

static const float *map_of(const pair_attention *a, int64_t layer, int64_t head)
{
    return a->maps + (layer * a->heads + head) * a->rows * a->columns;
}

/* ---- kinds of tokens ---- */

static bool is_punctuation(const mha_tokenizer *tokenizer, int32_t id)
{
    char *words = cli_token_words(tokenizer, id);
    const char *mark = words ? words + strspn(words, " ") : "";
    const bool found = *mark && strchr(".,;:?!", *mark) && !mark[1];
    free(words);
    return found;
}

/* Returns the kinds of tokens as in mha_head_map; special tokens other than the first are separators. */
static uint8_t *kinds_of(const mha_tokenizer *tokenizer, const int32_t *ids, int64_t count)
{
    uint8_t *kinds = calloc((size_t)count, 1);
    for (int64_t n = 0; kinds && n < count; n++) {
        const bool special = mha_tokenizer_is_special(tokenizer, ids[n]);
        kinds[n] = (uint8_t)((special ? MHA_TOKEN_SPECIAL : 0) | (special && n > 0 ? MHA_TOKEN_SEP : 0) |
                             (is_punctuation(tokenizer, ids[n]) ? MHA_TOKEN_PUNCT : 0));
    }
    return kinds;
}

/* ---- self-attention ---- */

static int measure_self(const cli_session *s, const pair_attention *a, const uint8_t *kinds, json_t **metrics,
                        json_t **labels)
{
    mha_heads *heads = NULL;
    mha_error error = {0};
    const mha_head_map text = {.tokens = a->rows, .p = a->maps, .kinds = kinds};
    const mha_head_maps maps = {
        .size = sizeof maps, .layers = a->layers, .heads = a->heads, .causal = a->causal, .count = 1, .text = &text};
    if (mha_heads_of_maps(s->ctx, &maps, &heads, &error) != MHA_OK) return cli_fail(s, &error);
    *metrics = heads_json_metrics(heads);
    *labels = heads_json_labels(heads);
    mha_heads_free(heads);
    return CLI_DONE;
}

/* ---- cross-attention ---- */

/* Adds the measures of a row to the sums. */
static void add_row(const pair_attention *a, const float *row, const uint8_t *kinds, double *sums)
{
    double entropy = 0, most = 0;
    for (int64_t j = 0; j < a->columns; j++) {
        const double p = (double)row[j];
        if (p > 0) entropy -= p * log2(p);
        most = fmax(most, p);
        if (kinds[j] & MHA_TOKEN_SEP) sums[SEP] += p;
        if (kinds[j] & MHA_TOKEN_PUNCT) sums[PUNCT] += p;
    }
    sums[ENTROPY] += entropy;
    sums[ENTROPY_NORM] += a->columns > 1 ? entropy / log2((double)a->columns) : 0;
    sums[CONFIDENCE] += most;
    sums[FIRST] += (double)row[0];
}

/* Returns the label of a head by the rules of mha heads that do not compare positions. */
static mha_head_label label_of(const double *mean)
{
    const mha_head_label single[] = {MHA_LABEL_FIRST, MHA_LABEL_SEP, MHA_LABEL_PUNCT};
    int best = 0;
    for (int n = 1; n < 3; n++)
        if (mean[FIRST + n] > mean[FIRST + best]) best = n;
    if (mean[FIRST + best] >= 0.4) return single[best];
    return mean[ENTROPY_NORM] >= 0.9 ? MHA_LABEL_BROAD : MHA_LABEL_MIXED;
}

static int measure_cross(const pair_attention *a, const uint8_t *kinds, json_t **metrics, json_t **labels)
{
    json_t *tables[CROSS_METRICS];
    *metrics = json_object();
    *labels = json_array();
    for (int m = 0; m < CROSS_METRICS; m++)
        json_object_set_new(*metrics, mha_head_metric_key(cross_metrics[m]), tables[m] = json_array());
    for (int64_t layer = 0; layer < a->layers; layer++) {
        for (int m = 0; m < CROSS_METRICS; m++)
            json_array_append_new(tables[m], json_array());
        json_array_append_new(*labels, json_array());
        for (int64_t head = 0; head < a->heads; head++) {
            double mean[CROSS_METRICS] = {0};
            for (int64_t i = 0; i < a->rows; i++)
                add_row(a, map_of(a, layer, head) + i * a->columns, kinds, mean);
            for (int m = 0; m < CROSS_METRICS; m++) {
                mean[m] /= (double)a->rows;
                json_array_append_new(json_array_get(tables[m], (size_t)layer), cli_real(mean[m]));
            }
            json_array_append_new(json_array_get(*labels, (size_t)layer),
                                  json_string(mha_head_label_key(label_of(mean))));
        }
    }
    return CLI_DONE;
}

int pair_attention_measure(const cli_session *s, const mha_tokenizer *tokenizer, const pair_attention *a,
                           json_t **metrics, json_t **labels)
{
    uint8_t *kinds = kinds_of(tokenizer, a->keys, a->columns);
    if (!kinds) return cli_error(s, CLI_FAILED, "out of memory for the maps");
    const int code =
        a->queries == a->keys ? measure_self(s, a, kinds, metrics, labels) : measure_cross(a, kinds, metrics, labels);
    free(kinds);
    return code;
}

/* ---- JSON ---- */

json_t *pair_attention_numbers(const pair_attention *a)
{
    json_t *layers = json_array();
    for (int64_t layer = 0; layer < a->layers; layer++) {
        json_t *row = json_array();
        for (int64_t head = 0; head < a->heads; head++)
            json_array_append_new(row, json_integer(head));
        json_array_append_new(layers, row);
    }
    return layers;
}

static json_t *weights_of(const pair_attention *a, const float *map)
{
    json_t *rows = json_array();
    for (int64_t i = 0; i < a->rows; i++) {
        json_t *row = json_array();
        for (int64_t j = 0; j < a->columns; j++)
            json_array_append_new(row, cli_real((double)map[i * a->columns + j]));
        json_array_append_new(rows, row);
    }
    return rows;
}

json_t *pair_attention_weights(const pair_attention *a)
{
    json_t *layers = json_array();
    for (int64_t layer = 0; layer < a->layers; layer++) {
        json_t *row = json_array();
        for (int64_t head = 0; head < a->heads; head++)
            json_array_append_new(row, weights_of(a, map_of(a, layer, head)));
        json_array_append_new(layers, row);
    }
    return layers;
}
