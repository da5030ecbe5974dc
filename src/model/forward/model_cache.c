/* model_cache.c - the KV cache of a decoder: one cache of the operator per layer, all updated together. */
#include "model/forward/model_cache.h"

#include "attn/cache/kv_cache.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "math/types/element.h"
#include <string.h>

static mha_status create_layers(mha_model_cache *c, const mha_model_cache_options *o, mha_error *err)
{
    const mha__config *config = &c->model->config;
    const int64_t latent = o->expanded ? 0 : mha__config_latent_width(config);
    const int64_t page = o->page_size ? o->page_size : 128; /* one extra page for the copy of a shared page */
    for (int64_t layer = 0; layer < config->layers; layer++) {
        mha_cache_desc desc = {.size = sizeof desc,
                               .batch = c->batch,
                               .kv_heads = mha__model_kv_heads(c->model, layer),
                               .head_dim = config->head_dim,
                               .dtype = o->dtype,
                               .page_size = o->page_size,
                               .capacity = c->batch * (mha__round_up(o->tokens, page) + page),
                               .window = config->attention[layer].window};
        if (latent) {
            desc.kv_heads = desc.v_from_k = 1;
            desc.head_dim = latent;
            desc.v_head_dim = config->kv_rank;
        }
        MHA__TRY(mha_cache_create(c->ctx, &desc, &c->layer[layer], err));
    }
    return MHA_OK;
}

static mha_status create_sources(mha_model_cache *c, int64_t tokens, mha_error *err)
{
    mha__arena arena = {0};
    if (!c->model->encoder) return MHA_OK;
    c->sources = (mha__sources){.batch = c->batch, .tokens = tokens};
    mha__sources_lay_out(&arena, c->model, true, &c->sources);
    c->source_memory = arena.overflow ? NULL : mha__calloc(c->ctx, 1, arena.used);
    if (!c->source_memory) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "a cache of sources");
    c->source_bytes = arena.used;
    arena = (mha__arena){.base = c->source_memory};
    mha__sources_lay_out(&arena, c->model, true, &c->sources);
    return MHA_OK;
}

static mha_status check_options(const mha_model *model, mha_model_cache_options *o, mha_error *err)
{
    if (!model->info.causal)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "model must be a decoder to have a cache (got %s)",
                         model->info.family);
    /* mha_cache_create accepts f64, but no layer has f64 keys and values */
    const bool cached =
        o->dtype == MHA_F32 || o->dtype == MHA_BF16 || o->dtype == MHA_F16 || mha__is_cache_only(o->dtype);
    if (o->dtype && !cached)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_cache_options: dtype must be one of f32, bf16, f16, q8_0, q4_0, f8_e4m3 (got %s)",
                         mha__quote_dtype(&(mha__quoted){0}, o->dtype));
    if (o->batch == 0) o->batch = 1;
    if (o->dtype == MHA_DTYPE_DEFAULT) o->dtype = mha__attention_dtype(model->outer.packed);
    if (o->tokens == 0) o->tokens = model->config.max_positions;
    if (o->batch < 1 || o->batch > INT32_MAX)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_cache_options: batch must be from 1 to 2^31-1 (got %lld)",
                         (long long)o->batch);
    if (o->source_tokens == 0 && model->encoder) o->source_tokens = model->encoder->config.max_positions;
    if (o->source_tokens < 0 || o->source_tokens > INT32_MAX)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_cache_options: source_tokens must be from 0 to 2^31-1 (got %lld)",
                         (long long)o->source_tokens);
    if (o->page_size < 0 || o->page_size > INT32_MAX)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_cache_options: page_size must be from 0 to 2^31-1 (got %lld)",
                         (long long)o->page_size);
    if (o->tokens < 1 || o->tokens > INT32_MAX)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_cache_options: tokens must be from 1 to 2^31-1 (got %lld)",
                         (long long)o->tokens);
    return MHA_OK;
}

mha_status mha_model_cache_create(const mha_model *model, const mha_model_cache_options *options, mha_model_cache **out,
                                  mha_error *err)
{
    mha_model_cache_options o;
    if (!model || !out) return mha__fail(err, MHA_ERR_ARG, "mha_model_cache_create: model and out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_model_cache_options", err));
    MHA__TRY(check_options(model, &o, err));
    const size_t bytes = sizeof(mha_model_cache) + (size_t)model->config.layers * sizeof(mha_cache *);
    mha_model_cache *c = mha__calloc(model->ctx, 1, bytes);
    if (!c) return mha__no_memory(err, bytes, "a model's cache");
    c->ctx = model->ctx;
    c->model = model;
    c->batch = o.batch;
    c->tokens = o.tokens;
    mha_status status = create_layers(c, &o, err);
    if (status == MHA_OK) status = create_sources(c, o.source_tokens, err);
    if (status != MHA_OK) {
        mha_model_cache_free(c);
        return status;
    }
    *out = c;
    return MHA_OK;
}

void mha_model_cache_free(mha_model_cache *cache)
{
    if (!cache) return;
    for (int64_t layer = 0; layer < cache->model->config.layers; layer++)
        mha_cache_free(cache->layer[layer]);
    mha__free(cache->ctx, cache->source_memory);
    mha__free(cache->ctx, cache);
}

int64_t mha_model_cache_length(const mha_model_cache *cache, int64_t sequence)
{
    return cache ? mha_cache_length(cache->layer[0], sequence) : -1;
}

size_t mha_model_cache_bytes(const mha_model_cache *cache)
{
    size_t bytes = cache ? cache->source_bytes : 0;
    for (int64_t layer = 0; cache && layer < cache->model->config.layers; layer++)
        bytes += mha_cache_bytes(cache->layer[layer]);
    return bytes;
}

mha_status mha_model_cache_clear(mha_model_cache *cache, int64_t sequence, mha_error *err)
{
    if (!cache) return mha__fail(err, MHA_ERR_ARG, "cache must not be NULL");
    for (int64_t layer = 0; layer < cache->model->config.layers; layer++)
        MHA__TRY(mha_cache_clear(cache->layer[layer], sequence, err));
    mha__sources_clear(&cache->sources, sequence);
    return MHA_OK;
}

/* Layers differ in their windows, and thus in the pages that they have dropped. All layers are checked before the first
 * layer changes. */
mha_status mha_model_cache_truncate(mha_model_cache *cache, int64_t sequence, int64_t length, mha_error *err)
{
    if (!cache) return mha__fail(err, MHA_ERR_ARG, "cache must not be NULL");
    const int64_t layers = cache->model->config.layers;
    for (int64_t layer = 0; layer < layers; layer++)
        MHA__TRY(mha__cache_check_truncate(cache->layer[layer], sequence, length, err));
    for (int64_t layer = 0; layer < layers; layer++)
        MHA__TRY(mha_cache_truncate(cache->layer[layer], sequence, length, err));
    return MHA_OK;
}

mha_status mha_model_cache_fork(mha_model_cache *cache, int64_t from, int64_t to, int64_t length, mha_error *err)
{
    if (!cache) return mha__fail(err, MHA_ERR_ARG, "cache must not be NULL");
    const int64_t layers = cache->model->config.layers;
    for (int64_t layer = 0; layer < layers; layer++)
        MHA__TRY(mha__cache_check_fork(cache->layer[layer], from, to, length, err));
    for (int64_t layer = 0; layer < layers; layer++)
        MHA__TRY(mha_cache_fork(cache->layer[layer], from, to, length, err));
    mha__sources_copy(&cache->sources, cache->model, from, to);
    return MHA_OK;
}
