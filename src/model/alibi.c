/* alibi.c - slopes of ALiBi (Press et al. 2022), by the number that a head had in the whole model: removing or
 * reordering heads changes nobody else's. */
#include "base/ctx.h"
#include "base/error.h"
#include "io/json.h"
#include "model/model_struct.h"
#include <math.h>
#include <string.h>

/* 2^(-8 (h + 1) / H) where H is a power of two; else those of the power below, and every other one of the next. */
static double slope_of(int64_t head, int64_t heads)
{
    int64_t power = 1;
    while (2 * power <= heads)
        power *= 2;
    if (head < power) return exp2(-8.0 * (double)(head + 1) / (double)power);
    return exp2(-8.0 * (double)(2 * (head - power) + 1) / (double)(2 * power));
}

mha_status mha__model_slopes(mha_model *m, mha_error *err)
{
    const mha__config *c = &m->config;
    json_t *root = NULL;
    bool any = false;
    for (int64_t layer = 0; layer < c->layers; layer++)
        any |= c->attention[layer].alibi;
    if (!any) return MHA_OK;
    MHA__TRY(mha__json_parse("config.json", m->config_text, strlen(m->config_text), MHA__JSON_BOM, &root, err));
    m->slopes = mha__calloc(m->ctx, (size_t)(c->layers * c->heads), sizeof *m->slopes);
    const json_t *lists = json_object_get(root, "mha.heads"); /* it has been checked */
    for (int64_t n = 0; m->slopes && n < c->layers * c->heads; n++) {
        const int64_t layer = n / c->heads, place = n % c->heads;
        const json_t *list = json_array_get(lists, (size_t)layer), *item = json_array_get(list, (size_t)place);
        m->slopes[n] = (float)slope_of(item ? json_integer_value(item) : place, c->heads);
    }
    json_decref(root);
    return m->slopes ? MHA_OK : mha__no_memory(err, (size_t)(c->layers * c->heads) * sizeof *m->slopes, "slopes");
}
