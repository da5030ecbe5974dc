/* original_heads.c - reads the head numbers of the unpruned model from "mha.heads". */
#include "base/ctx.h"
#include "base/error.h"
#include "io/json/json.h"
#include "model/model_struct.h"
#include <string.h>

/* Sets the head numbers of all layers. The lists were validated when the config was read. */
static void read_numbers(mha_model *m, const mha__json *lists)
{
    const int64_t heads = m->config.heads;
    for (int64_t layer = 0; layer < m->config.layers; layer++) {
        const mha__json *list = mha__json_item(lists, (size_t)layer);
        for (int64_t h = 0; h < heads; h++) {
            const mha__json *item = mha__json_item(list, (size_t)h);
            m->head_numbers[layer * heads + h] = !list ? (int32_t)h : item ? (int32_t)mha__json_as_int(item) : -1;
        }
    }
}

mha_status mha__model_number_heads(mha_model *m, mha_error *err)
{
    const size_t count = (size_t)(m->config.layers * m->config.heads);
    const mha__json *root = NULL;
    MHA__TRY(mha__json_parse(m->ctx, "config.json", m->config_text, strlen(m->config_text), MHA__JSON_BOM, &root, err));
    m->head_numbers = mha__calloc(m->ctx, count, sizeof *m->head_numbers);
    if (m->head_numbers) read_numbers(m, mha__json_get(root, "mha.heads"));
    mha__json_free(root);
    return m->head_numbers ? MHA_OK : mha__no_memory(err, count * sizeof *m->head_numbers, "the head numbers");
}
