/* encoder_source.c - checks the source of a pass, stores its masks, keys and values, and describes it for the layers.
 *
 * Padding at the end of a source is passed to the operator as a length, and other masked tokens as a keep mask. */
#include "model/forward/encoder_source.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "layer/block/cross_block.h"
#include "model/forward/model_cache.h"
#include "model/forward/observers.h"
#include <string.h>

/* ---- memory ---- */

void mha__cross_lay_out(mha__arena *arena, const mha_model *m, const mha__batch *batch, const mha_model_output *out,
                        mha__cross_pass *p)
{
    if (!p->used) return;
    if (!batch->in.cache) mha__sources_lay_out(arena, m, true, &p->own);
    const size_t rows = (size_t)(batch->in.batch * batch->in.length), keys = (size_t)p->layer.tokens;
    const size_t heads = (size_t)(out->cross_map_heads ? out->cross_map_count : m->config.heads);
    if (out->on_cross_attention) p->probs = mha__take(arena, rows * heads, keys * sizeof *p->probs);
    if (out->cross_map_heads) p->heads = mha__take(arena, heads, sizeof *p->heads);
    if (!out->on_cross_activations) return;
    const size_t width = (size_t)(m->config.heads * m->config.head_dim);
    p->activations.context = mha__take(arena, rows, width * sizeof(float));
    p->activations.out = mha__take(arena, rows, (size_t)m->config.hidden * sizeof(float));
}

/* ---- checks ---- */

/* Returns the length of a masked sequence up to its last real token. */
static int64_t real_length(const mha_model_input *in, int64_t b)
{
    int64_t length = in->length;
    while (in->mask && length > 0 && !in->mask[b * in->length + length - 1])
        length--;
    return length;
}

/* Checks packed sequences, and describes them as one sequence of all tokens. */
static mha_status read_packed(const mha_model *m, const mha__batch *batch, mha__cross_pass *p, mha_error *err)
{
    mha__batch source = {0};
    if (!p->input.starts != !batch->in.starts)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: starts of source must be %s starts of the input",
                         p->input.starts ? "NULL without" : "given with");
    p->sequences = p->input.batch;
    if (!p->input.starts) return MHA_OK;
    MHA__TRY(mha__batch_read(m->encoder, &source, &p->input, err));
    p->input = source.in;
    return MHA_OK;
}

/* Reads the last hidden states of the encoder, if the caller passes them instead of running it. */
static mha_status read_encoded(const mha_model *m, const mha_model_output *out, mha__cross_pass *p, mha_error *err)
{
    if (!p->input.hidden || p->input.first_layer != m->encoder->config.layers) return MHA_OK;
    if (out->encoder)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_output: encoder must be NULL if the encoder does not run");
    p->encoded = p->input.hidden;
    p->input.hidden = NULL;
    p->input.first_layer = 0;
    return MHA_OK;
}

static mha_status check_given(const mha_model *m, const mha__batch *batch, mha__cross_pass *p, mha_error *err)
{
    const mha_model_input *in = &p->input;
    if (in->cache || in->source || in->shard)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: source must not have cache, source or shard");
    if (in->batch != batch->sequences)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: batch of source must be %lld (got %lld)",
                         (long long)batch->sequences, (long long)in->batch);
    MHA__TRY(read_encoded(m, p->out, p, err));
    MHA__TRY(read_packed(m, batch, p, err));
    const int64_t max = batch->in.cache ? p->store->tokens : INT32_MAX;
    if (in->length < 1 || in->length > max)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: length of source must be from 1 to %lld (got %lld)",
                         (long long)max, (long long)in->length);
    for (int64_t b = 0; b < in->batch; b++) {
        if (real_length(in, b) < 1)
            return mha__fail(err, MHA_ERR_ARG, "mha_model_input: sequence %lld of source must have a real token",
                             (long long)b);
        if (mha__batch_past(batch, b) > 0)
            return mha__fail(err, MHA_ERR_ARG,
                             "mha_model_input: source must be NULL after the first tokens of a sequence (got %lld "
                             "cached tokens)",
                             (long long)mha__batch_past(batch, b));
    }
    return MHA_OK;
}

/* Checks that every sequence with new tokens has a cached source. */
static mha_status check_cached(const mha_model *m, const mha__batch *batch, const mha__cross_pass *p, mha_error *err)
{
    for (int64_t b = 0; b < batch->in.batch; b++) {
        const bool idle = batch->in.mask && !batch->in.mask[b * batch->in.length];
        if (!batch->in.cache || (!idle && !p->store->lengths[p->first + b]))
            return mha__fail(err, MHA_ERR_ARG,
                             "mha_model_input: source must not be NULL, since %s is an encoder-decoder",
                             m->info.family);
    }
    return MHA_OK;
}

static mha_status check_output(const mha_model *m, const mha_model_output *out, const mha__cross_pass *p,
                               mha_error *err)
{
    const char *name = out->encoder                ? "encoder"
                       : out->on_cross_attention   ? "on_cross_attention"
                       : out->on_cross_activations ? "on_cross_activations"
                                                   : NULL;
    const mha__head_list list = {"cross_",
                                 "on_cross_attention",
                                 out->cross_map_heads,
                                 out->cross_map_count,
                                 out->on_cross_attention != NULL,
                                 m->config.cross_heads};
    MHA__TRY(mha__head_list_check(m, &list, err));
    if (out->on_cross_attention && p->input.starts)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_model_output: on_cross_attention must be NULL with starts");
    if (!name || (p->used && (p->input.size || !out->encoder))) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "mha_model_output: %s must be NULL %s", name,
                     m->encoder ? "without source" : "unless the model is an encoder-decoder");
}

mha_status mha__cross_read(const mha_model *m, const mha__batch *batch, const mha_model_output *out, mha__cross_pass *p,
                           mha_error *err)
{
    const mha_model_input *in = &batch->in;
    *p = (mha__cross_pass){.used = m->encoder != NULL, .out = out};
    const char *other = in->source        ? "source"
                        : in->cross_gates ? "cross_gates"
                        : in->cross_fills ? "cross_fills"
                                          : NULL;
    if (other && !p->used)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: %s must be NULL, since %s is not an encoder-decoder",
                         other, m->info.family);
    if (p->used && in->source && in->shard)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_model_input: shard must be NULL for an encoder-decoder");
    if (in->source) MHA__TRY(mha__options_read(&p->input, sizeof p->input, in->source, "mha_model_input", err));
    MHA__TRY(check_output(m, out, p, err));
    if (!p->used) return MHA_OK;
    p->store = in->cache ? &in->cache->sources : &p->own;
    p->first = in->cache && in->batch == 1 ? in->sequence : 0;
    MHA__TRY(in->source ? check_given(m, batch, p, err) : check_cached(m, batch, p, err));
    p->own = (mha__sources){.batch = in->batch, .tokens = p->input.length};
    return MHA_OK;
}

mha_model_input mha__cross_encoder_input(const mha__cross_pass *p)
{
    mha_model_input input = p->input;
    input.batch = p->sequences;
    return input;
}

/* ---- description for the layers ---- */

/* Returns the longest source of the pass. */
static int64_t max_tokens(const mha__batch *batch, const mha__cross_pass *p)
{
    int64_t max = p->input.size ? p->input.length : 1;
    for (int64_t b = 0; !p->input.size && b < batch->in.batch; b++)
        max = mha__max64(max, p->store->lengths[p->first + b]);
    return max;
}

static bool has_holes(const mha__cross_pass *p)
{
    bool holes = !p->input.size && p->store->holes;
    for (int64_t b = 0; p->input.mask && b < p->input.batch; b++)
        for (int64_t i = 0, end = real_length(&p->input, b); i < end; i++)
            holes |= !p->input.mask[b * p->input.length + i];
    return holes;
}

void mha__cross_bind(const mha_model *m, mha__batch *batch, mha__cross_pass *p)
{
    static const int64_t some_lengths = 0;
    static const uint8_t some_mask = 0;
    if (!p->used) return;
    const mha__sources *s = p->store;
    const int64_t *lengths = s->lengths ? s->lengths + p->first : &some_lengths;
    const uint8_t *mask = s->mask ? s->mask + p->first * s->tokens : &some_mask;
    p->layer = (mha_layer_source){
        .tokens = max_tokens(batch, p), .lengths = lengths, .stride = mha__sources_stride(s, m), .plan = p->plan};
    p->layer.starts = p->input.starts;
    if (p->input.starts) p->layer.lengths = NULL;
    if (has_holes(p)) p->layer.keep = (mha_cview){mask, {s->tokens, 0, 0, 1}};
    mha__cross_turn_gates(m, batch, p, 0);
    batch->layer.source = &p->layer;
}

void mha__cross_turn_gates(const mha_model *m, const mha__batch *batch, mha__cross_pass *p, int64_t layer)
{
    const int64_t heads = m->config.heads;
    const float *gates = batch->in.cross_gates, *fills = batch->in.cross_fills;
    if (fills) p->layer.fills = fills + layer * heads * m->config.head_dim;
    if (gates) p->layer.gates = (mha_cview){gates + layer * batch->sequences * heads, {heads, 1}};
}

/* Requests the maps of a layer. */
static void turn_maps(const mha_model *m, mha__cross_pass *p, int64_t layer)
{
    const mha_model_head *list = p->out->cross_map_heads;
    int64_t first = 0;
    p->maps = !p->out->on_cross_attention ? 0 : m->config.cross_heads[layer];
    if (list) p->maps = mha__heads_of_layer(list, p->out->cross_map_count, layer, &first);
    p->layer.probs = !p->maps ? NULL : p->probs ? p->probs : &p->some_probs;
    p->layer.map_heads = !list || !p->maps ? NULL : p->heads ? p->heads + first : &p->some_heads;
    p->layer.map_count = p->layer.map_heads ? p->maps : 0;
    for (int64_t n = 0; p->heads && n < p->maps; n++)
        p->heads[first + n] = list[first + n].head;
}

mha_status mha__cross_turn(const mha_model *m, mha__batch *batch, mha__cross_pass *p, int64_t layer, mha_error *err)
{
    if (!p->used) return MHA_OK;
    p->layer.kv = mha__sources_at(p->store, m, layer, p->first);
    mha__cross_turn_gates(m, batch, p, layer);
    turn_maps(m, p, layer);
    p->layer.activations = p->out->on_cross_activations ? &p->activations : NULL;
    const mha_attn_layer *cross = m->block[layer]->cross;
    if (p->plan && p->planned_maps == p->maps && mha__attn_layer_equivalent(p->planned, cross)) return MHA_OK;
    const mha_layer_input inner = mha__block_cross_input(&batch->layer);
    mha_attn_plan_free(p->plan);
    p->layer.plan = p->plan = NULL;
    p->planned_maps = p->maps;
    p->planned = cross;
    MHA__TRY(mha__attn_plan(cross, &(mha__attn_call){.in = &inner}, &p->plan, err));
    p->layer.plan = p->plan;
    return MHA_OK;
}

mha_status mha__cross_show(const mha_model *m, const mha__batch *batch, const mha__cross_pass *p, int64_t layer,
                           mha_error *err)
{
    const mha_model_output *out = p->out;
    if (p->maps && out->on_cross_attention(out->user, layer, p->maps, p->probs))
        return mha__taps_stopped(err, "on_cross_attention", layer);
    if (!p->used || !out->on_cross_activations) return MHA_OK;
    const mha_model_activations shown = {.layer = layer,
                                         .rows = batch->in.batch * batch->in.length,
                                         .heads = m->config.cross_heads[layer],
                                         .head_dim = m->config.head_dim,
                                         .context = p->activations.context,
                                         .out = p->activations.out};
    if (!out->on_cross_activations(out->user, &shown)) return MHA_OK;
    return mha__taps_stopped(err, "on_cross_activations", layer);
}

/* ---- masks, keys and values ---- */

void mha__cross_store_masks(const mha__cross_pass *p)
{
    const mha_model_input *in = &p->input;
    mha__sources *s = p->store;
    s->holes |= has_holes(p);
    for (int64_t b = 0; b < in->batch; b++) {
        uint8_t *mask = s->mask + (p->first + b) * s->tokens;
        s->lengths[p->first + b] = real_length(in, b);
        for (int64_t i = 0; i < in->length; i++)
            mask[i] = !in->mask || in->mask[b * in->length + i];
    }
}

mha_status mha__cross_store_keys(const mha_model *m, const mha__cross_pass *p, const float *hidden, mha_error *err)
{
    const mha__sources *s = p->store;
    const int64_t B = p->input.batch, S = p->input.length, E = m->config.hidden;
    for (int64_t layer = 0; layer < m->config.layers; layer++) {
        const bool whole = m->config.cross_heads[layer] == m->config.heads; /* sequences are adjacent in the store */
        if (s->tokens == S && whole) {
            MHA__TRY(mha_block_source(m->block[layer], hidden, B * S, mha__sources_at(s, m, layer, p->first), err));
            continue;
        }
        for (int64_t b = 0; b < B; b++)
            MHA__TRY(mha_block_source(m->block[layer], hidden + b * S * E, S,
                                      mha__sources_at(s, m, layer, p->first + b), err));
    }
    return MHA_OK;
}
