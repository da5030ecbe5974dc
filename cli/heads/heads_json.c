/* heads_json.c - writes the metrics and labels of mha/heads.h as JSON. */
#include "heads/heads_json.h"

#include "input/tokens.h"
#include "output.h"

json_t *heads_json_append(json_t *array, json_t *item)
{
    if (json_array_append_new(array, item) == 0) return array;
    json_decref(array);
    return NULL;
}

json_t *heads_json_each(const mha_heads *heads, heads_json_item item, const void *arg)
{
    json_t *layers = json_array();
    for (int64_t l = 0; layers && l < mha_heads_layers(heads); l++) {
        json_t *row = json_array();
        for (int64_t h = 0; row && h < mha_heads_count(heads, l); h++)
            row = heads_json_append(row, item(heads, l, h, arg));
        layers = heads_json_append(layers, row);
    }
    return layers;
}

static json_t *value_item(const mha_heads *heads, int64_t layer, int64_t head, const void *arg)
{
    return cli_real(mha_heads_value(heads, layer, head, *(const mha_head_metric *)arg));
}

json_t *heads_json_metrics(const mha_heads *heads)
{
    json_t *all = json_object();
    for (mha_head_metric m = 0; all && m < MHA_HEAD_METRICS; m++) {
        if (json_object_set_new(all, mha_head_metric_key(m), heads_json_each(heads, value_item, &m)) == 0) continue;
        json_decref(all);
        all = NULL;
    }
    return all;
}

static json_t *label_item(const mha_heads *heads, int64_t layer, int64_t head, const void *arg)
{
    (void)arg;
    return json_string(mha_head_label_key(mha_heads_label(heads, layer, head)));
}

json_t *heads_json_labels(const mha_heads *heads)
{
    return heads_json_each(heads, label_item, NULL);
}

static json_t *number_item(const mha_heads *heads, int64_t layer, int64_t head, const void *arg)
{
    (void)heads;
    return json_integer(mha_head_number(arg, layer, head));
}

json_t *heads_json_numbers(const mha_model *model, const mha_heads *heads)
{
    return heads_json_each(heads, number_item, model);
}

json_t *heads_json_tokens(const mha_model *model, const mha_heads *heads)
{
    const mha_encoding *tokens = mha_heads_tokens(heads);
    char digits[CLI_ID_DIGITS];
    json_t *array = json_array();
    for (int64_t i = 0; array && i < tokens->count; i++)
        array = heads_json_append(array, json_string(cli_token_name(model, tokens->ids[i], digits)));
    return array;
}

static json_t *map_item(const mha_heads *heads, int64_t layer, int64_t head, const void *arg)
{
    (void)arg;
    int64_t n = mha_heads_tokens(heads)->count;
    const float *map = mha_heads_map(heads, layer, head);
    json_t *rows = json_array();
    for (int64_t i = 0; rows && i < n; i++) {
        json_t *row = json_array();
        for (int64_t j = 0; row && j < n; j++)
            row = heads_json_append(row, cli_real((double)map[i * n + j]));
        rows = heads_json_append(rows, row);
    }
    return rows;
}

json_t *heads_json_attention(const mha_heads *heads)
{
    return heads_json_each(heads, map_item, NULL);
}
