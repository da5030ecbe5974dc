/* original_heads.c - reads the head numbers of the unpruned model from "mha.heads". */
#include "base/ctx.h"
#include "base/error.h"
#include "model/config/config_layers.h"
#include "model/config/family.h"
#include "model/model_struct.h"
#include <string.h>

/* Reads the head numbers of all layers into *numbers [layers, H]. The lists were validated when the config was read. */
static mha_status read_numbers(const mha_model *m, const mha__json_obj *own, bool cross, int32_t **numbers,
                               mha_error *err)
{
    const int64_t heads = m->config.heads;
    const size_t count = (size_t)(m->config.layers * heads);
    const mha__json *lists = NULL;
    MHA__TRY(mha__config_head_lists(own, &m->config, cross, &lists, err));
    *numbers = mha__calloc(m->ctx, count, sizeof **numbers);
    if (!*numbers) return mha__no_memory(err, count * sizeof **numbers, "the head numbers");
    for (int64_t layer = 0; layer < m->config.layers; layer++) {
        const mha__json *list = mha__json_item(lists, (size_t)layer);
        for (int64_t h = 0; h < heads; h++) {
            const mha__json *item = mha__json_item(list, (size_t)h);
            (*numbers)[layer * heads + h] = !list ? (int32_t)h : item ? (int32_t)mha__json_as_int(item) : -1;
        }
    }
    return MHA_OK;
}

/* Sets the columns of the heads in a table that has a column for each head that at least one layer keeps. */
static mha_status find_columns(mha_model *m, mha_error *err)
{
    const mha__config *c = &m->config;
    const size_t count = (size_t)(c->layers * c->heads), all = count + (size_t)c->original_heads;
    int32_t next = 0;
    if (c->relative_heads == c->original_heads) return MHA_OK;
    m->relative_columns = mha__calloc(m->ctx, all, sizeof *m->relative_columns);
    if (!m->relative_columns) return mha__no_memory(err, all * sizeof *m->relative_columns, "the head numbers");
    int32_t *column = m->relative_columns + count; /* [original_heads] column of each head number */
    for (size_t n = 0; n < count; n++)
        if (m->head_numbers[n] >= 0) column[m->head_numbers[n]] = 1;
    for (int64_t h = 0; h < c->original_heads; h++)
        column[h] = column[h] ? next++ : -1;
    for (size_t n = 0; n < count; n++)
        m->relative_columns[n] = m->head_numbers[n] < 0 ? -1 : column[m->head_numbers[n]];
    return MHA_OK;
}

mha_status mha__model_number_heads(mha_model *m, mha_error *err)
{
    const mha__json *json = NULL;
    mha__json_obj own = {0};
    MHA__TRY(mha__json_parse(m->ctx, "config.json", m->config_text, strlen(m->config_text), MHA__JSON_BOM, &json, err));
    const mha__json_obj root = {.json = json, .file = "config.json"};
    mha_status status = mha__config_tower(&root, &m->config, &own, err);
    if (status == MHA_OK) status = read_numbers(m, &own, false, &m->head_numbers, err);
    if (status == MHA_OK && m->config.family->encoder) status = read_numbers(m, &own, true, &m->cross_numbers, err);
    mha__json_free(json);
    return status == MHA_OK ? find_columns(m, err) : status;
}
