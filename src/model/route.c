/* route.c - a model that runs some heads of each layer for each sequence. */
#include "model/route.h"
#include "base/ctx.h"
#include "base/error.h"
#include "layer/attention/attention_layer.h"
#include "model/forward/model_cache.h"
#include <string.h>

int64_t mha__router_units(const mha_model *model, int64_t layer)
{
    const mha__config *c = &model->config;
    const mha_attn_layer_options heads = {.heads = c->layer_heads[layer]};
    return mha__attn_layer_units(&heads, c->layer_k_heads[layer], c->layer_v_heads[layer]);
}

mha_status mha__router_check(const mha_router *router, const mha_model *m, mha_error *err)
{
    if (router->layers != m->config.layers || router->hidden != m->config.hidden)
        return mha__fail(err, MHA_ERR_ARG, "the router is of %lld layers of width %lld, the model has %lld of %lld",
                         (long long)router->layers, (long long)router->hidden, (long long)m->config.layers,
                         (long long)m->config.hidden);
    if (mha__config_choosing(&m->config) >= 0)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "a router, but layer %lld chooses its heads itself",
                         (long long)mha__config_choosing(&m->config));
    for (int64_t layer = 0; layer < router->layers; layer++)
        if (router->units[layer] != mha__router_units(m, layer))
            return mha__fail(err, MHA_ERR_ARG, "the router has %lld heads or groups in layer %lld, the model %lld",
                             (long long)router->units[layer], (long long)layer, (long long)mha__router_units(m, layer));
    return MHA_OK;
}

/* ---- setting it ---- */

static mha_status check_heads(const mha_model *m, int64_t heads, mha_error *err)
{
    int64_t most = 0;
    for (int64_t layer = 0; layer < m->config.layers; layer++) {
        const int64_t group = m->config.layer_heads[layer] / mha__router_units(m, layer);
        most = mha__max64(most, m->config.layer_heads[layer]);
        if (heads % group)
            return mha__fail(err, MHA_ERR_ARG,
                             "%lld heads for each sequence: layer %lld has groups of %lld heads that share keys or "
                             "values",
                             (long long)heads, (long long)layer, (long long)group);
    }
    if (heads < 1 || heads > most)
        return mha__fail(err, MHA_ERR_ARG, "%lld heads for each sequence, the model has 1..%lld", (long long)heads,
                         (long long)most);
    return MHA_OK;
}

static mha_status pack_by_head(mha_model *m, mha_error *err)
{
    m->by_head = true;
    for (int64_t layer = 0; layer < m->config.layers; layer++)
        if (!mha__block_attn(m->block[layer])->unit_parts) MHA__TRY(mha__model_repack(m, layer, err));
    return MHA_OK;
}

mha_status mha_model_route(mha_model *model, const mha_router *router, int64_t heads, mha_error *err)
{
    if (!model) return mha__fail(err, MHA_ERR_ARG, "mha_model_route: model is NULL");
    if (router) {
        if (!model->packed) return mha__fail(err, MHA_ERR_ARG, "the model was opened without weights (no_weights)");
        if (model->outer.packed != MHA_F32)
            return mha__fail(err, MHA_ERR_UNSUPPORTED, "a router for a model that was opened in %s; only f32 is built",
                             mha_dtype_name(model->outer.packed));
        MHA__TRY(mha__router_check(router, model, err));
        MHA__TRY(check_heads(model, heads, err));
        MHA__TRY(pack_by_head(model, err));
    }
    model->router = router;
    model->routed_heads = heads;
    model->routings++;
    return MHA_OK;
}

/* ---- one pass ---- */

void mha__routed_lay_out(mha__arena *arena, const mha_model *m, const mha__batch *batch, mha__routed *routed)
{
    const mha_model_cache *cache = batch->in.cache;
    const size_t sequences = (size_t)batch->sequences, heads = (size_t)m->config.heads;
    if (!m->router) return;
    routed->decided = mha__take(arena, sequences, 1);
    routed->step = cache ? cache->batch : batch->sequences;
    routed->first = cache && batch->in.batch == 1 ? batch->in.sequence : 0;
    routed->kept = cache ? cache->kept : mha__take(arena, sequences * (size_t)m->config.layers, heads);
}

void mha__routed_begin(const mha_model *m, const mha__batch *batch, mha__routed *routed)
{
    const mha_model_cache *cache = batch->in.cache;
    for (int64_t b = 0; m->router && b < batch->sequences; b++)
        routed->decided[b] = cache && mha_model_cache_length(cache, routed->first + b) > 0;
}

/* Where sequence b of the pass has its heads of a layer. */
static uint8_t *kept_of(const mha_model *m, const mha__routed *routed, int64_t layer, int64_t b)
{
    return routed->kept + layer * routed->step * m->config.heads + (routed->first + b) * m->config.layer_heads[layer];
}

void mha__routed_turn(const mha_model *m, mha__batch *batch, mha__routed *routed, int64_t layer, uint8_t *kept)
{
    const mha_choice choice = m->config.attention[layer].choice.of;
    const bool chooses = choice == MHA_CHOICE_EXPERTS || choice == MHA_CHOICE_HEADS;
    batch->layer.kept = kept && chooses ? kept + layer * batch->sequences * m->config.heads : NULL;
    batch->layer.route = NULL;
    if (!m->router || batch->layer.context) return;
    const int64_t units = m->router->units[layer], group = m->config.layer_heads[layer] / units;
    routed->layer = (mha_layer_route){.weight = m->router->weight[layer],
                                      .bias = m->router->bias[layer],
                                      .keep = mha__min64(units, m->routed_heads / group),
                                      .decided = routed->decided,
                                      .kept = routed->kept ? kept_of(m, routed, layer, 0) : &routed->some};
    batch->layer.route = &routed->layer;
}

/* A layer that chooses has written its rows one behind the other; those of fewer heads get their places. */
static void spread_kept(const mha_model *m, const mha__batch *batch, int64_t layer)
{
    const int64_t H = m->config.heads, own = m->config.layer_heads[layer];
    for (int64_t b = batch->sequences; b-- > 0;) {
        memmove(batch->layer.kept + b * H, batch->layer.kept + b * own, (size_t)own);
        memset(batch->layer.kept + b * H + own, 0, (size_t)(H - own));
    }
}

void mha__routed_show(const mha_model *m, const mha__batch *batch, const mha__routed *routed, int64_t layer,
                      uint8_t *out)
{
    const int64_t H = m->config.heads, own = m->config.layer_heads[layer];
    if (batch->layer.kept) {
        spread_kept(m, batch, layer);
        return;
    }
    for (int64_t b = 0; out && b < batch->sequences; b++) {
        uint8_t *to = out + (layer * batch->sequences + b) * H;
        memset(to, 0, (size_t)H);
        if (batch->layer.route)
            memcpy(to, kept_of(m, routed, layer, b), (size_t)own);
        else
            memset(to, 1, (size_t)own);
    }
}
