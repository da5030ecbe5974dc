/* head_part.c - see head_part.h. */
#include "input/head_part.h"

int head_parts_of(const mha_model *model, head_part parts[MHA_HEAD_KINDS])
{
    const mha_model *encoder = mha_model_encoder(model);
    parts[MHA_HEADS_OWN] = (head_part){encoder ? "decoder" : "", model, false};
    if (!encoder) return 1;
    parts[MHA_HEADS_CROSS] = (head_part){"cross", model, true};
    parts[MHA_HEADS_ENCODER] = (head_part){"encoder", encoder, false};
    return MHA_HEAD_KINDS;
}

size_t head_part_cells(const head_part *part)
{
    const mha_model_info *info = mha_model_describe(part->model);
    return (size_t)(info->layers * info->heads);
}

int64_t head_part_heads(const head_part *part, int64_t layer)
{
    const mha_model_info *info = mha_model_describe(part->model);
    return (part->cross ? info->cross_heads_per_layer : info->heads_per_layer)[layer];
}

int64_t head_part_number(const head_part *part, int64_t layer, int64_t place)
{
    return (part->cross ? mha_cross_head_number : mha_head_number)(part->model, layer, place);
}

int64_t head_part_place(const head_part *part, int64_t layer, int64_t number)
{
    return (part->cross ? mha_cross_head_place : mha_head_place)(part->model, layer, number);
}
