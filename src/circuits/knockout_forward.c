/* knockout_forward.c - a forward pass without some attention edges, and the masks of removed edges. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "circuits/prompt_pair.h"
#include "model/forward/batch.h"
#include "model/forward/observers.h"
#include "model/model_struct.h"
#include <string.h>

/* ---- edges ---- */

static mha_status check_index(const char *name, int64_t n, int64_t value, int64_t count, mha_error *err)
{
    if (value >= -1 && value < count) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "edges[%lld]: %s must be from -1 to %lld (got %lld)", (long long)n, name,
                     (long long)count - 1, (long long)value);
}

mha_status mha__edges_check(const mha_model_info *info, int64_t length, const mha_attention_edge *edges, int64_t count,
                            mha_error *err)
{
    for (int64_t n = 0; n < count; n++) {
        MHA__TRY(check_index("layer", n, edges[n].layer, info->layers, err));
        MHA__TRY(check_index("head", n, edges[n].head, info->heads, err));
        MHA__TRY(check_index("query", n, edges[n].query, length, err));
        MHA__TRY(check_index("key", n, edges[n].key, length, err));
    }
    return MHA_OK;
}

static bool covers(int64_t wanted, int64_t n)
{
    return wanted < 0 || wanted == n;
}

bool mha__remove_edges(const mha_attention_edge *edges, int64_t count, int64_t layer, int64_t heads, int64_t length,
                       uint8_t *keep)
{
    bool any = false;
    for (const mha_attention_edge *e = edges; e < edges + count; e++) {
        if (!covers(e->layer, layer)) continue;
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; covers(e->head, h) && i < length; i++)
                for (int64_t j = 0; covers(e->query, i) && j < length; j++)
                    if (covers(e->key, j)) keep[(h * length + i) * length + j] = 0;
        any = true;
    }
    return any;
}

/* ---- the pass ---- */

typedef struct removal {
    const mha_model *model;
    const mha_attention_edge *edges;
    const uint8_t *mask; /* [B, L]; NULL if it only marks padding at the end, which the pass gets as lengths */
    int64_t count, batch, length;
    uint8_t *keep; /* [B, H, L, L] for the layer that runs; without a mask, [H, L, L] for all sequences */
} removal;

static bool loses_edges(const removal *r, int64_t layer)
{
    for (int64_t n = 0; n < r->count; n++)
        if (covers(r->edges[n].layer, layer)) return true;
    return false;
}

/* Sets keep [H, L, L] of a sequence to its mask, and removes the edges. */
static void fill(const removal *r, int64_t layer, int64_t heads, const uint8_t *mask, uint8_t *keep)
{
    const size_t L = (size_t)r->length;
    for (size_t row = 0; row < (size_t)heads * L; row++) {
        if (mask)
            memcpy(keep + row * L, mask, L);
        else
            memset(keep + row * L, 1, L);
    }
    mha__remove_edges(r->edges, r->count, layer, heads, r->length, keep);
}

/* The keep mask replaces that of the batch, so it contains the mask of the tokens too. */
static void begin(void *user, int64_t layer, mha_layer_input *in)
{
    static const uint8_t all = 1;
    const removal *r = user;
    const int64_t L = r->length, H = r->model->info.heads_per_layer[layer], copies = r->mask ? r->batch : 1;
    if (!loses_edges(r, layer)) {
        in->keep = r->mask ? (mha_cview){r->mask, {L, 0, 0, 1}} : (mha_cview){&all, {0}};
        return;
    }
    for (int64_t b = 0; b < copies; b++)
        fill(r, layer, H, r->mask ? r->mask + b * L : NULL, r->keep + b * H * L * L);
    in->keep = (mha_cview){r->keep, {r->mask ? H * L * L : 0, L * L, L, 1}};
}

static mha_status check(const mha_model *model, const mha_model_input *in, const mha_attention_edge *edges,
                        int64_t count, mha_error *err)
{
    const char *what = in->cache      ? "cache"
                       : in->starts   ? "starts"
                       : in->shard    ? "shard"
                       : in->pixels   ? "pixels"
                       : in->features ? "features"
                                      : NULL;
    MHA__TRY(mha__circuits_check(model, "mha_knockout_forward", err));
    if (what) return mha__fail(err, MHA_ERR_ARG, "mha_knockout_forward: %s must be NULL", what);
    if (count < 0 || (count > 0 && !edges))
        return mha__fail(err, MHA_ERR_ARG, "mha_knockout_forward: edges must have `count` elements (got %lld)",
                         (long long)count);
    return MHA_OK;
}

mha_status mha_knockout_forward(const mha_model *model, const mha_model_input *input, const mha_model_output *output,
                                const mha_attention_edge *edges, int64_t count, mha_error *err)
{
    mha_model_input in;
    mha__batch batch = {0};
    MHA__TRY(mha__options_read(&in, sizeof in, input, "mha_model_input", err));
    MHA__TRY(check(model, &in, edges, count, err));
    if (count == 0) return mha_model_forward(model, input, output, err);
    MHA__TRY(mha__batch_read(model, &batch, input, err));
    MHA__TRY(mha__edges_check(&model->info, in.length, edges, count, err));
    removal r = {model, edges, batch.right_padded ? NULL : in.mask, count, in.batch, in.length, NULL};
    const int64_t shape[] = {r.mask ? in.batch : 1, model->info.heads, in.length, in.length};
    size_t bytes = 0;
    const bool fits = mha__bytes(shape, 4, 1, &bytes);
    r.keep = fits ? mha__alloc(model->ctx, bytes) : NULL;
    if (!r.keep) return mha__no_memory(err, fits ? bytes : SIZE_MAX, "the mask of a knockout");
    mha__site_edit edit = {.begin = begin, .user = &r};
    const mha_status status = mha__model_forward_edited(model, input, output, &edit, err);
    mha__free(model->ctx, r.keep);
    return status;
}
