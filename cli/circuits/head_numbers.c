/* head_numbers.c - the numbers that heads had in the unpruned model, for query heads and for key/value heads. */
#include "circuits/head_numbers.h"

#include <stdbool.h>

int64_t head_readers(const mha_model *model, mha_site site, int64_t layer)
{
    const mha_model_info *m = mha_model_describe(model);
    if (site == MHA_SITE_K) return m->heads_per_layer[layer] / m->key_heads_per_layer[layer];
    return site == MHA_SITE_V ? m->heads_per_layer[layer] / m->value_heads_per_layer[layer] : 1;
}

/* Returns whether each group of `each` query heads is a group of the unpruned model: pruning removes whole groups, but
 * regrouping may reorder heads. */
static bool keeps_groups(const mha_model *model, int64_t layer, int64_t each)
{
    for (int64_t h = 0; h < mha_model_describe(model)->heads_per_layer[layer]; h++) {
        const int64_t first = mha_head_number(model, layer, h - h % each);
        if (first % each != 0 || mha_head_number(model, layer, h) != first + h % each) return false;
    }
    return true;
}

int64_t head_number(const mha_model *model, mha_site site, int64_t layer, int64_t head)
{
    const int64_t each = head_readers(model, site, layer), first = mha_head_number(model, layer, head * each);
    return first < 0 || each == 1 ? first : keeps_groups(model, layer, each) ? first / each : head;
}

int64_t head_place(const mha_model *model, mha_site site, int64_t layer, int64_t number)
{
    const int64_t heads = mha_model_describe(model)->heads_per_layer[layer] / head_readers(model, site, layer);
    for (int64_t h = 0; h < heads; h++)
        if (head_number(model, site, layer, h) == number) return h;
    return -1;
}

int64_t head_columns(const mha_model *model, mha_site site)
{
    const mha_model_info *m = mha_model_describe(model);
    int64_t columns = 0;
    for (int64_t l = 0; l < m->layers; l++)
        for (int64_t h = 0; h < m->heads_per_layer[l] / head_readers(model, site, l); h++) {
            const int64_t number = head_number(model, site, l, h);
            if (number >= columns) columns = number + 1;
        }
    return columns;
}
