/* head_kinds.c - see head_kinds.h. */
#include "heads/weights/head_kinds.h"

static void add(mha__head_sets *s, mha_head_kind kind, const mha_model *m)
{
    const mha_model_info *info = mha_model_describe(m);
    const int64_t *counts = kind == MHA_HEADS_CROSS ? info->cross_heads_per_layer : info->heads_per_layer;
    s->set[s->count++] = (mha__head_set){.kind = kind,
                                         .model = m,
                                         .layers = info->layers,
                                         .heads = info->heads,
                                         .width = info->head_dim,
                                         .heads_per_layer = counts,
                                         .first = s->total,
                                         .cell = s->cells};
    s->total += info->layers * info->heads;
    s->cells += info->layers * info->heads * info->head_dim;
}

mha__head_sets mha__head_sets_of(const mha_model *model)
{
    mha__head_sets s = {.count = 0};
    add(&s, MHA_HEADS_OWN, model);
    if (model->encoder) add(&s, MHA_HEADS_CROSS, model);
    if (model->encoder) add(&s, MHA_HEADS_ENCODER, model->encoder);
    return s;
}

const mha__head_set *mha__head_set_at(const mha__head_sets *s, int64_t n)
{
    int k = s->count - 1;
    while (n < s->set[k].first)
        k--;
    return &s->set[k];
}

int64_t mha__head_row_count(const mha__head_sets *s)
{
    int64_t rows = 0;
    for (int k = 0; k < s->count; k++)
        rows += s->set[k].layers;
    return rows;
}

mha__head_row mha__head_row_of(const mha__head_sets *s, int64_t row)
{
    const mha__head_set *set = s->set;
    for (; row >= set->layers; set++)
        row -= set->layers;
    return (mha__head_row){set, row, set->first + row * set->heads, set->heads_per_layer[row]};
}

mha__head_part mha__head_set_part(const mha__head_set *s, int64_t layer, mha__projection which, int64_t head)
{
    return s->kind == MHA_HEADS_CROSS ? mha__head_part_cross(s->model, layer, which, head)
                                      : mha__head_part_of(s->model, layer, which, head);
}

mha__head_part mha__head_set_loaded(const mha__head_set *s, int64_t layer, mha__projection which, int64_t head)
{
    return s->kind == MHA_HEADS_CROSS ? mha__head_part_cross(s->model, layer, which, head)
                                      : mha__head_part_loaded(s->model, layer, which, head);
}
