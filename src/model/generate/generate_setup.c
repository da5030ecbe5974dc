/* generate_setup.c - checks the options of mha_model_generate and allocates its memory. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/utf8.h"
#include "model/forward/pooler_logits.h"
#include "model/generate/generation.h"
#include "model/generate/sampling.h"
#include <string.h>

/* ---- checks ---- */

static mha_status check_prompt(const mha__generation *g, int64_t n, int64_t max, mha_error *err)
{
    const mha_prompt one = mha__generation_prompt(g, n), *p = &one;
    if (!p->ids || p->count < 1)
        return mha__fail(err, MHA_ERR_ARG, "prompt %lld of %lld must have tokens", (long long)n + 1,
                         (long long)g->count);
    if (p->count > max - g->o.max_new)
        return mha__fail(
            err, MHA_ERR_ARG, "prompt %lld of %lld: prompt tokens + max_new must be at most %lld (got %lld + %lld)",
            (long long)n + 1, (long long)g->count, (long long)max, (long long)p->count, (long long)g->o.max_new);
    for (int64_t i = 0; i < p->count; i++)
        if (p->ids[i] < 0 || p->ids[i] >= g->model->config.vocab)
            return mha__fail(err, MHA_ERR_ARG, "prompt %lld of %lld: ids[%lld] must be from 0 to %lld (got %d)",
                             (long long)n + 1, (long long)g->count, (long long)i, (long long)g->model->config.vocab - 1,
                             p->ids[i]);
    return MHA_OK;
}

static mha_status check_numbers(const mha_generate_options *o, mha_error *err)
{
    if (o->max_new < 1 || o->max_new > INT32_MAX / 2)
        return mha__fail(err, MHA_ERR_ARG, "mha_generate_options: max_new must be from 1 to %d (got %lld)",
                         INT32_MAX / 2, (long long)o->max_new);
    if (o->min_new < 0 || o->min_new > o->max_new)
        return mha__fail(err, MHA_ERR_ARG, "mha_generate_options: min_new must be from 0 to max_new = %lld (got %lld)",
                         (long long)o->max_new, (long long)o->min_new);
    if (o->at_once < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_generate_options: at_once must be at least 0 (got %lld)",
                         (long long)o->at_once);
    if (o->lookup < 0 || o->lookup > 64)
        return mha__fail(err, MHA_ERR_ARG, "mha_generate_options: lookup must be from 0 to 64 (got %lld)",
                         (long long)o->lookup);
    return mha__sampling_check(&o->sampling, err);
}

static mha_status check_eos(mha__generation *g, mha_error *err)
{
    mha_generate_options *o = &g->o;
    const mha__config *config = &g->model->config;
    if (o->eos_count < -1 || o->eos_count > (o->eos ? MHA__EOS : 0))
        return mha__fail(err, MHA_ERR_ARG, "mha_generate_options: eos_count must be from -1 to %d%s (got %lld)",
                         o->eos ? MHA__EOS : 0, o->eos ? "" : " if eos is NULL", (long long)o->eos_count);
    if (!o->eos && o->eos_count == 0) o->eos = config->eos, o->eos_count = config->eos_count;
    for (int64_t i = 0; o->eos && i < o->eos_count; i++)
        if (o->eos[i] < 0 || o->eos[i] >= config->vocab)
            return mha__fail(err, MHA_ERR_ARG, "mha_generate_options: eos[%lld] must be a token of the model (got %d)",
                             (long long)i, o->eos[i]);
    return MHA_OK;
}

static mha_status check_stop(const mha__generation *g, mha_error *err)
{
    const mha_generate_options *o = &g->o;
    if (o->stop_count < 0 || (o->stop_count > 0 && !o->stop))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_generate_options: stop_count must be the number of entries in stop (got %lld)",
                         (long long)o->stop_count);
    if ((o->stop_count > 0 || o->on_text) && !mha_model_tokenizer(g->model))
        return mha__fail(err, MHA_ERR_ARG, "mha_generate_options: %s must be unset for a model without a tokenizer",
                         o->on_text ? "on_text" : "stop");
    for (int64_t i = 0; i < o->stop_count; i++) {
        const char *stop = o->stop[i];
        const size_t bytes = stop ? strlen(stop) : 0;
        if (bytes == 0 || mha__utf8_check(stop, bytes) < bytes)
            return mha__fail(err, MHA_ERR_ARG, "mha_generate_options: stop[%lld] must be %s", (long long)i,
                             bytes ? "UTF-8" : "a non-empty string");
    }
    return MHA_OK;
}

static mha_status check_source(const mha__generation *g, int64_t n, mha_error *err)
{
    const mha_model *e = g->model->encoder;
    const mha_prompt *p = &g->o.sources[n];
    const int64_t max = e->positions.weight ? e->config.max_positions : INT32_MAX / 2;
    if (!p->ids || p->count < 1 || p->count > max)
        return mha__fail(err, MHA_ERR_ARG, "source %lld of %lld must have from 1 to %lld tokens (got %lld)",
                         (long long)n + 1, (long long)g->count, (long long)max, p->ids ? (long long)p->count : 0);
    for (int64_t i = 0; i < p->count; i++)
        if (p->ids[i] < 0 || p->ids[i] >= e->config.vocab)
            return mha__fail(err, MHA_ERR_ARG, "source %lld of %lld: ids[%lld] must be from 0 to %lld (got %d)",
                             (long long)n + 1, (long long)g->count, (long long)i, (long long)e->config.vocab - 1,
                             p->ids[i]);
    return MHA_OK;
}

/* Checks that sources or features are set, as the encoder requires. */
static mha_status check_source_fields(const mha__generation *g, mha_error *err)
{
    const bool needed = g->model->encoder != NULL && g->count > 0;
    const bool audio = g->model->encoder && g->model->encoder->config.mel_bins;
    if (g->model->encoder && (audio ? g->o.sources != NULL : g->o.features != NULL))
        return mha__fail(err, MHA_ERR_ARG, "mha_generate_options: %s must be NULL, since the encoder of %s reads %s",
                         audio ? "sources" : "features", g->model->info.family, audio ? "audio features" : "tokens");
    if (needed != mha__generation_sources(g))
        return mha__fail(err, MHA_ERR_ARG, "mha_generate_options: %s must %sbe NULL, since %s is %san encoder-decoder",
                         audio ? "features" : "sources", needed ? "not " : "", g->model->info.family,
                         needed ? "" : "not ");
    for (int64_t n = 0; g->o.features && n < g->count; n++)
        if (!g->o.features[n])
            return mha__fail(err, MHA_ERR_ARG, "mha_generate_options: features[%lld] must not be NULL", (long long)n);
    if (!needed || !g->o.forward) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_generate_options: forward must be NULL with %s",
                     audio ? "features" : "sources");
}

/* Checks the sources of an encoder-decoder, and sets g->start. */
static mha_status check_sources(mha__generation *g, mha_error *err)
{
    MHA__TRY(check_source_fields(g, err));
    if (!mha__generation_sources(g)) return MHA_OK;
    g->start = (int32_t)g->model->config.start;
    if (g->start < 0)
        for (int64_t n = 0; n < g->count; n++)
            if (!g->prompts[n].count)
                return mha__fail(err, MHA_ERR_ARG,
                                 "prompt %lld of %lld must have tokens, since the model has no decoder_start_token_id",
                                 (long long)n + 1, (long long)g->count);
    for (int64_t n = 0; g->o.sources && n < g->count; n++)
        MHA__TRY(check_source(g, n, err));
    return MHA_OK;
}

mha_status mha__generation_check(mha__generation *g, mha_error *err)
{
    const mha_model *m = g->model;
    if (!m->info.causal)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "model must be a decoder to generate text (got %s)", m->info.family);
    if (!m->packed) return mha__fail(err, MHA_ERR_ARG, "model must have weights (got a model opened with no_weights)");
    MHA__TRY(mha__head_check_tokens(m, err));
    MHA__TRY(check_numbers(&g->o, err));
    MHA__TRY(check_eos(g, err));
    MHA__TRY(check_stop(g, err));
    MHA__TRY(check_sources(g, err));
    if (g->o.gates && g->o.forward)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_generate_options: forward must be NULL with gates");
    const int64_t max = m->positions.weight ? m->config.max_positions : INT32_MAX / 2;
    for (int64_t n = 0; n < g->count; n++)
        MHA__TRY(check_prompt(g, n, max, err));
    return MHA_OK;
}

/* ---- memory ---- */

/* Returns true if speculation is possible. Rejected guesses are truncated from the cache, but with a window, keys that
 * earlier rows attend to may have been freed. */
static bool may_guess(const mha__generation *g)
{
    const mha__config *c = &g->model->config;
    bool slides = false;
    for (int64_t layer = 0; layer < c->layers; layer++)
        slides |= c->attention[layer].window > 0;
    return !slides && !g->o.no_cache && !g->o.forward && !g->model->info.rotation_by_length;
}

/* Repeats the gates for each slot. */
static mha_status set_up_gates(mha__generation *g, mha_error *err)
{
    const size_t heads = (size_t)g->model->config.heads, layers = (size_t)g->model->config.layers;
    const size_t slots = (size_t)g->slots, count = slots * layers * heads;
    if (!g->o.gates) return MHA_OK;
    g->gates = mha__calloc(g->model->ctx, count, sizeof *g->gates);
    if (!g->gates) return mha__no_memory(err, count * sizeof *g->gates, "the gates of heads");
    for (size_t row = 0; row < layers * slots; row++)
        memcpy(g->gates + row * heads, g->o.gates + row / slots * heads, heads * sizeof *g->gates);
    return MHA_OK;
}

static void set_up_slots(mha__generation *g)
{
    const mha_generate_options *o = &g->o;
    const bool writes = o->on_text || o->stop_count > 0;
    for (int64_t n = 0; n < g->slots; n++)
        g->slot[n] = (mha__slot){.prompt = -1,
                                 .ids = g->ids + n * g->room,
                                 .ahead = o->lookup,
                                 .writer = {.ctx = g->model->ctx,
                                            .tokenizer = writes ? mha_model_tokenizer(g->model) : NULL,
                                            .stop = o->stop,
                                            .stop_count = o->stop_count}};
}

mha_status mha__generation_allocate(mha__generation *g, mha_error *err)
{
    mha_ctx *ctx = g->model->ctx;
    const size_t vocab = (size_t)g->model->config.vocab;
    int64_t longest = 0;
    if (!may_guess(g)) g->o.lookup = 0;
    for (int64_t n = 0; n < g->count; n++)
        longest = mha__max64(longest, mha__generation_prompt(g, n).count);
    g->slots = mha__min64(g->count, g->o.at_once ? g->o.at_once : 8);
    g->room = longest + g->o.max_new;
    const size_t rows = (size_t)g->slots * (size_t)(1 + g->o.lookup);
    g->slot = mha__calloc(ctx, (size_t)g->slots, sizeof *g->slot);
    g->ids = mha__calloc(ctx, (size_t)g->slots, (size_t)g->room * sizeof *g->ids);
    g->step = mha__calloc(ctx, rows, sizeof *g->step);
    g->mask = mha__calloc(ctx, rows, 1);
    g->logits = mha__calloc(ctx, rows, vocab * sizeof *g->logits);
    g->probs = mha__calloc(ctx, 2, vocab * sizeof *g->probs);
    if (!g->slot || !g->ids || !g->step || !g->mask || !g->logits || !g->probs)
        return mha__no_memory(err, rows * vocab * sizeof *g->logits, "generating");
    g->work = g->probs + vocab;
    set_up_slots(g);
    MHA__TRY(set_up_gates(g, err));
    if (g->o.no_cache || g->o.forward) return MHA_OK;
    int64_t sources = g->o.features ? g->model->encoder->config.max_positions : 0;
    for (int64_t n = 0; g->o.sources && n < g->count; n++)
        sources = mha__max64(sources, g->o.sources[n].count);
    const mha_model_cache_options o = {
        .size = sizeof o, .batch = g->slots, .tokens = g->room, .dtype = g->o.cache_dtype, .source_tokens = sources};
    return mha_model_cache_create(g->model, &o, &g->cache, err);
}

void mha__generation_release(mha__generation *g)
{
    mha_ctx *ctx = g->model->ctx;
    for (int64_t n = 0; g->slot && n < g->slots; n++)
        mha__writer_free(&g->slot[n].writer);
    mha_model_cache_free(g->cache);
    mha__free(ctx, g->slot);
    mha__free(ctx, g->ids);
    mha__free(ctx, g->step);
    mha__free(ctx, g->mask);
    mha__free(ctx, g->logits);
    mha__free(ctx, g->probs);
    mha__free(ctx, g->gates);
}
