/* knockout_forward.c - a forward pass without some attention edges, and the masks of removed edges. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "circuits/prompt_pair.h"
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
    int64_t count, length;
    uint8_t *keep; /* [H, L, L] for the layer that runs */
} removal;

static void begin(void *user, int64_t layer, mha_layer_input *in)
{
    static const uint8_t all = 1;
    const removal *r = user;
    const int64_t L = r->length, H = r->model->info.heads_per_layer[layer];
    memset(r->keep, 1, (size_t)(H * L * L));
    const bool any = mha__remove_edges(r->edges, r->count, layer, H, L, r->keep);
    in->keep = any ? (mha_cview){r->keep, {0, L * L, L, 1}} : (mha_cview){&all, {0}};
}

static void leave(void *user, int64_t layer, mha__edit_site site, int64_t first, int64_t rows, float *x)
{
    (void)user, (void)layer, (void)site, (void)first, (void)rows, (void)x;
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
    return in->length < 1 ? MHA_OK : mha__edges_check(&model->info, in->length, edges, count, err);
}

mha_status mha_knockout_forward(const mha_model *model, const mha_model_input *input, const mha_model_output *output,
                                const mha_attention_edge *edges, int64_t count, mha_error *err)
{
    mha_model_input in;
    MHA__TRY(mha__options_read(&in, sizeof in, input, "mha_model_input", err));
    MHA__TRY(check(model, &in, edges, count, err));
    if (count == 0 || in.length < 1) return mha_model_forward(model, input, output, err);
    const size_t rows = (size_t)(model->info.heads * in.length), keys = (size_t)in.length;
    removal r = {model, edges, count, in.length, mha__calloc(model->ctx, rows, keys)};
    if (!r.keep) return mha__no_memory(err, rows * keys, "the mask of a knockout");
    mha__site_edit edit = {.begin = begin, .change = leave, .user = &r};
    const mha_status status = mha__model_forward_edited(model, input, output, &edit, err);
    mha__free(model->ctx, r.keep);
    return status;
}
