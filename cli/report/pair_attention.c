/* pair_attention.c - keeps the maps of one kind of attention, and measures them. */
#include "report/pair_attention.h"

#include "heads/heads_json.h"
#include "output.h"
#include <stdlib.h>
#include <string.h>

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

/* ---- metrics ---- */

/* Stores the kinds of tokens. The start token, with which the text of a decoder begins, is special too. */
static int find_kinds(const cli_session *s, const mha_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                      bool started, uint8_t **kinds)
{
    mha_error error = {0};
    *kinds = calloc((size_t)count, 1);
    if (!*kinds) return cli_error(s, CLI_FAILED, "out of memory for the maps");
    if (mha_head_token_kinds(tokenizer, ids, count, *kinds, &error) != MHA_OK) return cli_fail(s, &error);
    if (started) (*kinds)[0] |= MHA_TOKEN_SPECIAL;
    return CLI_DONE;
}

static bool is_cross(const pair_attention *a)
{
    return a->queries != a->keys;
}

/* Removes the metrics that compare positions of the two texts, and those of probe texts: they are undefined. */
static void remove_positions(json_t *metrics)
{
    static const mha_head_metric undefined[] = {
        MHA_HEAD_DISTANCE, MHA_HEAD_DISTANCE_CONTENT, MHA_HEAD_OFFSET,    MHA_HEAD_PREV,           MHA_HEAD_PREV_ARGMAX,
        MHA_HEAD_NEXT,     MHA_HEAD_NEXT_ARGMAX,      MHA_HEAD_SELF,      MHA_HEAD_SELF_ARGMAX,    MHA_HEAD_WINDOW2,
        MHA_HEAD_BLOCK,    MHA_HEAD_TOEPLITZ,         MHA_HEAD_DUP_PROBE, MHA_HEAD_INDUCTION_PROBE};
    for (size_t n = 0; n < sizeof undefined / sizeof *undefined; n++)
        json_object_del(metrics, mha_head_metric_key(undefined[n]));
}

static int measure(const cli_session *s, const pair_attention *a, const uint8_t *kinds, const uint8_t *query_kinds,
                   json_t **metrics, json_t **labels)
{
    mha_heads *heads = NULL;
    mha_error error = {0};
    const mha_head_map text = {.tokens = a->columns, .p = a->maps, .kinds = kinds};
    const mha_head_queries queries = {.tokens = a->rows, .kinds = query_kinds};
    const mha_head_maps maps = {.size = sizeof maps,
                                .layers = a->layers,
                                .heads = a->heads,
                                .causal = a->causal,
                                .count = 1,
                                .text = &text,
                                .queries = is_cross(a) ? &queries : NULL};
    if (mha_heads_of_maps(s->ctx, &maps, &heads, &error) != MHA_OK) return cli_fail(s, &error);
    *metrics = heads_json_metrics(heads);
    *labels = heads_json_labels(heads);
    if (is_cross(a)) remove_positions(*metrics);
    mha_heads_free(heads);
    return CLI_DONE;
}

int pair_attention_measure(const cli_session *s, const mha_tokenizer *tokenizer, const pair_attention *a,
                           json_t **metrics, json_t **labels)
{
    uint8_t *keys = NULL, *queries = NULL;
    int code = find_kinds(s, tokenizer, a->keys, a->columns, a->causal, &keys);
    if (code == CLI_DONE && is_cross(a)) code = find_kinds(s, tokenizer, a->queries, a->rows, true, &queries);
    if (code == CLI_DONE) code = measure(s, a, keys, queries, metrics, labels);
    free(keys);
    free(queries);
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
