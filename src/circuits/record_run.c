/* record_run.c - runs a prompt and keeps the activations of every site. */
#include "base/ctx.h"
#include "base/error.h"
#include "circuits/prompt_pair.h"
#include "model/forward/observers.h"
#include "model/forward/pooler_logits.h"
#include <string.h>

/* Returns where a site of a layer is kept, and sets the width of its rows; NULL = not kept. */
static float *kept(const mha_prompt_pair *pair, const mha__run_record *r, int64_t layer, mha__edit_site site,
                   int64_t *width, int64_t *stride)
{
    const int64_t rows = layer * pair->length;
    *width = *stride = pair->width;
    switch (site) {
    case MHA__EDIT_QKV:
        *width = mha__qkv_width(&mha__pair_attn(pair, layer)->options);
        *stride = pair->qkv_width;
        return r->qkv + rows * pair->qkv_width;
    case MHA__EDIT_CONTEXT:
        *width = mha__context_width(mha__pair_attn(pair, layer));
        *stride = pair->z_width;
        return r->z + rows * pair->z_width;
    case MHA__EDIT_ATTN_OUT:
        return r->attn_out + rows * pair->width;
    case MHA__EDIT_RESID_MID:
        return r->mid + rows * pair->width;
    case MHA__EDIT_MLP_OUT:
        return r->mlp_out + rows * pair->width;
    case MHA__EDIT_RESID_POST:
        return r->resid + (rows + pair->length) * pair->width;
    default:
        return NULL;
    }
}

typedef struct recorder {
    const mha_prompt_pair *pair;
    const mha__run_start *start;
    mha__run_record *record;
} recorder;

static void add_noise(const recorder *r, int64_t rows, float *x)
{
    const int64_t count = rows * r->pair->model->config.embed_width;
    const float scale = r->pair->model->config.embed_scale;
    for (int64_t n = 0; r->start->noise && n < count; n++)
        x[n] += scale * r->start->noise[n];
}

static void keep(void *user, int64_t layer, mha__edit_site site, int64_t first, int64_t rows, float *x)
{
    const recorder *r = user;
    int64_t width = 0, stride = 0;
    if (site == MHA__EDIT_EMBEDDED) {
        add_noise(r, rows, x);
        return;
    }
    float *to = kept(r->pair, r->record, layer, site, &width, &stride);
    for (int64_t n = 0; to && n < rows; n++)
        memcpy(to + (first + n) * stride, x + n * width, (size_t)width * sizeof *x);
}

static int keep_input(void *user, int64_t entry, const float *x)
{
    const recorder *r = user;
    if (entry == 0) memcpy(r->record->resid, x, (size_t)(r->pair->length * r->pair->width) * sizeof *x);
    return 0;
}

static int keep_maps(void *user, int64_t layer, int64_t heads, const float *probs)
{
    const recorder *r = user;
    const int64_t map = r->pair->length * r->pair->length;
    memcpy(r->record->maps + layer * r->pair->info->heads * map, probs, (size_t)(heads * map) * sizeof *probs);
    return 0;
}

static void lay_out(mha__arena *arena, const mha_prompt_pair *pair, mha__run_record *r)
{
    const size_t layers = (size_t)pair->info->layers, T = (size_t)pair->length, rows = layers * T;
    const size_t wide = (size_t)pair->width * sizeof(float);
    r->resid = mha__take(arena, rows + T, wide);
    r->mid = mha__take(arena, rows, wide);
    r->attn_out = mha__take(arena, rows, wide);
    r->mlp_out = mha__take(arena, rows, wide);
    r->qkv = mha__take(arena, rows, (size_t)pair->qkv_width * sizeof(float));
    r->z = mha__take(arena, rows, (size_t)pair->z_width * sizeof(float));
    r->maps = mha__take(arena, rows * (size_t)pair->info->heads, T * sizeof(float));
    r->logits = mha__take(arena, (size_t)pair->info->vocab, sizeof(float));
}

static mha_status allocate(const mha_prompt_pair *pair, mha__run_record *r, mha_error *err)
{
    mha__arena arena = {0};
    lay_out(&arena, pair, r);
    arena.base = r->memory = arena.overflow ? NULL : mha__calloc(pair->ctx, 1, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the activations of a run");
    arena.used = 0;
    lay_out(&arena, pair, r);
    return MHA_OK;
}

/* Computes the logits of the position from the last hidden states, which are followed by room for a row. */
static mha_status find_logits(const mha_prompt_pair *pair, float *hidden, float *logits, mha_error *err)
{
    const float *input = NULL, *row = hidden + pair->position * pair->width;
    float *room = hidden + pair->length * pair->width;
    MHA__TRY(mha__head_input(pair->model, 1, row, room, &input, err));
    return mha__head_logits(pair->model, 1, input, logits, err);
}

mha_status mha__record_run(const mha_prompt_pair *pair, const mha__run_start *start, mha__run_record *record,
                           mha_error *err)
{
    const int64_t T = pair->length;
    *record = (mha__run_record){0};
    MHA__TRY(allocate(pair, record, err));
    const size_t bytes = (size_t)(T * pair->width + mha__head_room(pair)) * sizeof(float);
    float *hidden = mha__alloc(pair->ctx, bytes);
    if (!hidden) return mha__no_memory(err, bytes, "the hidden states of a prompt");
    recorder r = {pair, start, record};
    mha__site_edit edit = {.change = keep, .user = &r};
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = T, .ids = start->ids, .hidden = start->hidden};
    const mha_model_output out = {
        .size = sizeof out, .last_hidden = hidden, .on_hidden = keep_input, .on_attention = keep_maps, .user = &r};
    mha_status status = mha__model_forward_edited(pair->model, &in, &out, &edit, err);
    if (status == MHA_OK) status = find_logits(pair, hidden, record->logits, err);
    mha__free(pair->ctx, hidden);
    return status;
}

void mha__record_free(const mha_prompt_pair *pair, mha__run_record *record)
{
    mha__free(pair->ctx, record->memory);
    *record = (mha__run_record){0};
}
