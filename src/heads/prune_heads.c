/* prune_heads.c - which heads a model has, by the numbers that they had before any were removed. */
#include "heads/prune_heads.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "io/json.h"
#include <string.h>

int64_t mha__group(const mha_model *m, int64_t layer)
{
    const int64_t keys = m->config.layer_k_heads[layer], values = m->config.layer_v_heads[layer];
    return m->config.layer_heads[layer] * mha__common_multiple(keys, values) / (keys * values);
}

/* The list of "mha.heads" was checked when the model was opened. */
static void read_numbers(const mha_model *m, const json_t *lists, int32_t *numbers)
{
    const int64_t heads = m->config.heads;
    for (int64_t layer = 0; layer < m->config.layers; layer++) {
        const json_t *list = json_array_get(lists, (size_t)layer);
        for (int64_t h = 0; h < heads; h++) {
            const bool there = h < m->heads_per_layer[layer];
            const int64_t number = list ? json_integer_value(json_array_get(list, (size_t)h)) : h;
            numbers[layer * heads + h] = there ? (int32_t)number : -1;
        }
    }
}

mha_status mha__head_numbers(const mha_model *m, int32_t **numbers, mha_error *err)
{
    const size_t count = (size_t)(m->config.layers * m->config.heads);
    json_t *root = NULL;
    *numbers = NULL;
    MHA__TRY(mha__json_parse("config.json", m->config_text, strlen(m->config_text), MHA__JSON_BOM, &root, err));
    *numbers = mha__calloc(m->ctx, count, sizeof **numbers);
    if (*numbers) read_numbers(m, json_object_get(root, "mha.heads"), *numbers);
    json_decref(root);
    return *numbers ? MHA_OK : mha__no_memory(err, count * sizeof **numbers, "the numbers of heads");
}

mha_status mha__check_keep(const mha_model *m, const uint8_t *keep, mha_error *err)
{
    for (int64_t layer = 0; layer < m->config.layers; layer++) {
        const int64_t group = mha__group(m, layer);
        const uint8_t *row = keep + layer * m->config.heads;
        if (mha__kept(m, keep, layer) == 0)
            return mha__fail(err, MHA_ERR_ARG, "layer %lld would be left without a head; one has to stay",
                             (long long)layer);
        for (int64_t h = 0; h < m->heads_per_layer[layer]; h++)
            if (!row[h] != !row[h - h % group])
                return mha__fail(err, MHA_ERR_ARG,
                                 "layer %lld: heads %lld to %lld share one key head, and stay or go together",
                                 (long long)layer, (long long)(h - h % group), (long long)(h - h % group + group - 1));
    }
    return MHA_OK;
}

bool mha__may_lose_heads(const mha_model *m, int64_t layer)
{
    return m->config.attention[layer].choice.of == MHA_CHOICE_NONE;
}

int64_t mha__kept(const mha_model *m, const uint8_t *keep, int64_t layer)
{
    int64_t count = 0;
    for (int64_t l = layer < 0 ? 0 : layer; l <= (layer < 0 ? m->config.layers - 1 : layer); l++)
        for (int64_t h = 0; h < m->heads_per_layer[l]; h++)
            count += keep[l * m->config.heads + h] != 0;
    return count;
}

json_t *mha__heads_json(const mha_model *m, const int32_t *numbers, const uint8_t *keep, bool which)
{
    json_t *lists = json_array();
    for (int64_t layer = 0; layer < m->config.layers; layer++) {
        json_t *list = json_array();
        for (int64_t h = 0; h < m->heads_per_layer[layer]; h++) {
            const int64_t at = layer * m->config.heads + h;
            if ((keep[at] != 0) == which && json_array_append_new(list, json_integer(numbers[at])) != 0) break;
        }
        if (json_array_append_new(lists, list) == 0) continue;
        json_decref(lists);
        return NULL;
    }
    return lists;
}

/* ---- public ---- */

static int64_t number_of(const mha_model *m, int64_t layer, int64_t head, const int32_t *numbers)
{
    return head >= 0 && head < m->heads_per_layer[layer] ? numbers[layer * m->config.heads + head] : -1;
}

static int64_t place_of(const mha_model *m, int64_t layer, int64_t number, const int32_t *numbers)
{
    for (int64_t h = 0; h < m->heads_per_layer[layer]; h++)
        if (numbers[layer * m->config.heads + h] == number) return h;
    return -1;
}

static int64_t look_up(const mha_model *m, int64_t layer, int64_t value,
                       int64_t (*find)(const mha_model *, int64_t, int64_t, const int32_t *))
{
    int32_t *numbers;
    if (!m || layer < 0 || layer >= m->config.layers || mha__head_numbers(m, &numbers, NULL) != MHA_OK) return -1;
    const int64_t found = find(m, layer, value, numbers);
    mha__free(m->ctx, numbers);
    return found;
}

int64_t mha_head_number(const mha_model *model, int64_t layer, int64_t head)
{
    return look_up(model, layer, head, number_of);
}

int64_t mha_head_place(const mha_model *model, int64_t layer, int64_t number)
{
    return look_up(model, layer, number, place_of);
}
