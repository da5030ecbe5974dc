/* recorded_forward.c - runs the forward pass of model_forward.c, and records the activations for the backward pass. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "math/rng_draws.h"
#include "model/backward/model_grads.h"
#include "model/forward/pooler_logits.h"
#include <string.h>

/* ---- plans ---- */

/* Sets g->plan to the plan of this layer; reuses the previous plan if the shapes are the same. */
static mha_status plan_layer(mha_model_grads *g, int64_t layer, mha_error *err)
{
    const mha_attn_layer *attn = mha__block_attn(g->model->block[layer]);
    if (g->plan && mha__attn_layer_equivalent(g->planned, attn)) return MHA_OK;
    mha_attn_plan_free(g->plan);
    g->plan = NULL;
    g->planned = attn;
    const mha__attn_call call = {.in = &g->batch.layer, .outputs = MHA__ATTN_BOTH, .dropout = g->dropout.attention};
    return mha__attn_plan(attn, &call, &g->plan, err);
}

mha__drop mha__grads_drop(const mha_model_grads *g, int64_t layer, mha__drop_site site)
{
    const mha_model_dropout *d = &g->dropout;
    const double share = site == MHA__DROP_EMBEDDINGS ? d->embedding
                         : site == MHA__DROP_PROBS    ? d->attention
                                                      : d->residual;
    return (mha__drop){share, mha__splitmix_at(d->seed, 4 * (uint64_t)layer + site + 1)};
}

mha_status mha__grads_call(mha_model_grads *g, int64_t layer, const mha_model_gradient *wanted, mha__block_call *call,
                           mha_error *err)
{
    const int64_t heads = g->model->config.heads, at = layer * g->batch.sequences * heads;
    float *dgates = wanted && wanted->gates ? wanted->gates + at : NULL;
    mha__batch_turn(&g->batch, g->model, layer);
    if (g->taps.out) mha__taps_turn(&g->taps, g->model, &g->batch, layer);
    MHA__TRY(plan_layer(g, layer, err));
    MHA__TRY(mha__grads_source_plan(g, layer, err));
    if (g->sites) g->sites->layer = layer;
    *call = (mha__block_call){.block = g->model->block[layer],
                              .attn = {.plan = g->plan,
                                       .in = &g->batch.layer,
                                       .outputs = MHA__ATTN_BOTH,
                                       .dropout = g->dropout.attention,
                                       .dropout_seed = mha__grads_drop(g, layer, MHA__DROP_PROBS).key,
                                       .also.dgates = {dgates, {heads, 1}}},
                              .gradients = g->sites,
                              .attn_drop = mha__grads_drop(g, layer, MHA__DROP_ATTN),
                              .mlp_drop = mha__grads_drop(g, layer, MHA__DROP_MLP),
                              .convolution_drop = mha__grads_drop(g, layer, MHA__DROP_CONVOLUTION),
                              .trace = g->saved.trace[layer],
                              .scratch = g->saved.scratch[layer]};
    call->attn.also.dtable = g->saved.dtable;
    mha__grads_source_call(g, layer, wanted, call);
    const int64_t M = mha__batch_map_rows(&g->batch);
    if (mha__grads_slot(g, MHA__RELATIVE, -1).dweight)
        call->attn.also.dbias = (mha_view){g->saved.dbias + M - 1, {0, 2 * M - 1, -1, 1}};
    return MHA_OK;
}

/* ---- memory ---- */

/* Allocates the traces of all layers. With recompute, the traces overlap: only the trace of one layer is used at a
 * time. */
static void take_traces(mha__arena *arena, mha_model_grads *g)
{
    mha__saved_activations *k = &g->saved;
    const int64_t layers = g->model->config.layers;
    const size_t rows = (size_t)(g->batch.in.batch * g->batch.in.length), width = (size_t)g->model->config.hidden;
    k->trace = mha__take(arena, (size_t)layers, sizeof *k->trace);
    size_t start = arena->used, end = start;
    arena->overlaps = g->recompute;
    for (int64_t layer = 0; layer < layers; layer++) {
        mha__block_trace trace;
        if (g->recompute) arena->used = start;
        mha__block_trace_take(arena, g->model->block[layer], &g->batch.layer, mha__grads_parameters(g), &trace);
        if (k->trace) k->trace[layer] = trace;
        if (arena->used > end) end = arena->used;
    }
    arena->used = end;
    arena->overlaps = false;
    for (int64_t layer = 0; g->recompute && layer < layers; layer++) {
        float *x = mha__take(arena, rows, width * sizeof *x);
        if (k->trace) k->trace[layer].x = x;
    }
}

/* Allocates the scratch memory that all layers share. Arrays whose size does not depend on the head count come first,
 * so that their addresses are the same for all layers. */
static void take_scratch(mha__arena *arena, mha_model_grads *g, size_t space_bytes)
{
    const mha_model *m = g->model;
    mha__block_scratch scratch, *all = mha__take(arena, (size_t)m->config.layers, sizeof *all);
    const size_t start = arena->used;
    size_t end = start;
    arena->overlaps = true;
    for (int64_t layer = 0; layer < m->config.layers; layer++) {
        arena->used = start;
        mha__block_scratch_take(arena, m->block[layer], &g->batch.layer, g->dropout.residual > 0, space_bytes,
                                &scratch);
        if (all) all[layer] = scratch;
        if (arena->used > end) end = arena->used;
    }
    arena->used = end;
    arena->overlaps = false;
    g->saved.scratch = all;
}

static void lay_out(mha__arena *arena, mha_model_grads *g, size_t space_bytes)
{
    const mha_model *m = g->model;
    mha__saved_activations *k = &g->saved;
    const size_t rows = (size_t)(g->batch.in.batch * g->batch.in.length);
    const size_t width = (size_t)m->config.hidden * sizeof *k->x;
    mha__batch_lay_out(arena, m, &g->batch);
    mha__grads_source_lay_out(arena, g);
    const size_t narrow = (size_t)m->config.embed_width * sizeof *k->x;
    k->sum = m->embed_norm.weight ? mha__take(arena, rows, narrow) : NULL;
    k->embedded = m->embed_map ? mha__take(arena, rows, narrow) : NULL;
    k->dembedded = m->embed_map ? mha__take(arena, rows, narrow) : NULL;
    k->x = mha__take(arena, rows, width);
    k->last = m->final_norm.weight ? mha__take(arena, rows, width) : k->x;
    k->dx = mha__take(arena, rows, width);
    const size_t M = (size_t)mha__batch_map_rows(&g->batch);
    k->dbias = m->relative.weight ? mha__take(arena, (size_t)m->config.heads, (2 * M - 1) * sizeof *k->dbias) : NULL;
    const bool distances = mha__grads_slot(g, MHA__DISTANCES, -1).dweight != NULL;
    const size_t table = (size_t)(m->config.distance_rows * m->config.hidden);
    k->dtable = distances ? mha__take(arena, table, sizeof *k->dtable) : NULL;
    k->again = g->recompute ? mha__take(arena, rows, width) : NULL;
    take_traces(arena, g);
    take_scratch(arena, g, space_bytes);
}

static void forget_plan(mha_model_grads *g)
{
    mha_attn_plan_free(g->plan);
    g->plan = NULL;
}

/* Enlarges *bytes to the workspace of all plans, which pass rows of probabilities to on_rows if `rows` is set. */
static mha_status find_space(mha_model_grads *g, bool rows, size_t *bytes, mha_error *err)
{
    forget_plan(g); /* the plan belongs to another batch */
    g->batch.layer.on_rows = rows ? &g->taps.visitor : NULL;
    for (int64_t layer = 0; layer < g->model->config.layers; layer++) {
        MHA__TRY(plan_layer(g, layer, err));
        MHA__TRY(mha__grads_source_plan(g, layer, err));
        if (mha_attn_plan_workspace(g->plan) > *bytes) *bytes = mha_attn_plan_workspace(g->plan);
        const size_t cross = g->cross.plan ? mha_attn_plan_workspace(g->cross.plan) : 0;
        if (cross > *bytes) *bytes = cross;
    }
    return MHA_OK;
}

/* Allocates the arrays of this batch. */
static mha_status allocate(mha_model_grads *g, mha_error *err)
{
    const int64_t some_lengths = 0; /* placeholder for an array that is not allocated yet; not read */
    size_t space_bytes = 0;
    mha__arena arena = {0};
    mha__batch_describe(&g->batch, &some_lengths);
    mha__grads_source_describe(g);
    MHA__TRY(find_space(g, false, &space_bytes, err));
    if (g->out.on_rows) MHA__TRY(find_space(g, true, &space_bytes, err));
    lay_out(&arena, g, space_bytes);
    if (arena.overflow) return mha__no_memory(err, SIZE_MAX, "a pass with gradients");
    MHA__TRY(mha__grads_room(g, &g->pass, arena.used, "a pass with gradients", err));
    arena = (mha__arena){.base = g->pass.memory};
    lay_out(&arena, g, space_bytes);
    mha__batch_describe(&g->batch, g->batch.lengths);
    mha__grads_source_describe(g);
    return MHA_OK;
}

/* ---- forward pass ---- */

static mha_status check_input(const mha_model_input *in, mha_error *err)
{
    const char *other = in->cache         ? "cache"
                        : in->fills       ? "fills"
                        : in->cross_fills ? "cross_fills"
                        : in->hidden      ? "hidden"
                        : in->shard       ? "shard"
                                          : NULL;
    if (!other) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_model_grads_forward: %s must not be set", other);
}

static mha_status check_output(const mha_model *m, const mha__batch *batch, const mha_model_output *out, mha_error *err)
{
    const char *other = out->on_hidden              ? "on_hidden"
                        : out->on_attention         ? "on_attention"
                        : out->on_stats             ? "on_stats"
                        : out->on_activations       ? "on_activations"
                        : out->map_heads            ? "map_heads"
                        : out->map_rows             ? "map_rows"
                        : out->encoder              ? "encoder"
                        : out->on_cross_attention   ? "on_cross_attention"
                        : out->on_cross_activations ? "on_cross_activations"
                                                    : NULL;
    if (other)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "mha_model_grads_forward: %s must be NULL, since only mha_model_forward supports it", other);
    MHA__TRY(mha__head_check(m, out->pooled != NULL, out->logits || out->last_logits, err));
    return mha__head_check_vision(m, batch, out->pooled != NULL, out->last_logits != NULL, out->embedding != NULL, err);
}

/* Computes the input of the first layer. */
static mha_status enter(mha_model_grads *g, mha_error *err)
{
    const mha_model *m = g->model;
    const mha__saved_activations *k = &g->saved;
    const mha__drop drop = mha__grads_drop(g, 0, MHA__DROP_EMBEDDINGS);
    const int64_t rows = g->batch.in.batch * g->batch.in.length, width = m->config.embed_width;
    float *x = m->embed_map ? k->embedded : k->x;
    MHA__TRY(mha__batch_fill(m, &g->batch, err));
    if (g->start) {
        memcpy(k->x, g->start, (size_t)(rows * m->config.hidden) * sizeof *k->x);
        return MHA_OK;
    }
    MHA__TRY(mha__batch_embed(m, &g->batch, k->sum ? k->sum : x, err));
    if (k->sum) MHA__TRY(mha_norm_forward(m->ctx, &m->embed_norm, rows, width, k->sum, NULL, x, err));
    mha__drop_rows(m->ctx, &drop, &g->batch.layer, width, x);
    return m->embed_map ? mha__batch_map(m, &g->batch, x, k->x, err) : MHA_OK;
}

/* Runs the encoder of an encoder-decoder on the source of the batch. */
static mha_status encode(mha_model_grads *g, mha_error *err)
{
    if (!g->encoder) return MHA_OK;
    const mha_model_input input = mha__cross_encoder_input(&g->cross);
    mha__cross_store_masks(&g->cross);
    return mha_model_grads_forward(g->encoder, &input, NULL, err);
}

static mha_status run(mha_model_grads *g, mha_error *err)
{
    const mha_model *m = g->model;
    const mha__saved_activations *k = &g->saved;
    const int64_t rows = g->batch.in.batch * g->batch.in.length, width = m->config.hidden;
    MHA__TRY(enter(g, err));
    MHA__TRY(encode(g, err));
    for (int64_t layer = 0; layer < m->config.layers; layer++) {
        mha__block_call call;
        MHA__TRY(mha__grads_call(g, layer, NULL, &call, err));
        MHA__TRY(mha__block_keep(&call, k->x, err));
    }
    if (m->final_norm.weight) return mha_norm_forward(m->ctx, &m->final_norm, rows, width, k->x, NULL, k->last, err);
    return MHA_OK;
}

/* Computes the logits of the last real token of each sequence. */
static mha_status serve_last(const mha_model_grads *g, float *logits, mha_error *err)
{
    const mha_model *m = g->model;
    const int64_t width = m->config.hidden;
    float *last = g->saved.dx; /* free until the backward pass */
    const float *input = last;
    for (int64_t b = 0; b < g->batch.sequences; b++)
        memcpy(last + b * width, g->saved.last + mha__batch_last(&g->batch, b) * width, (size_t)width * sizeof *last);
    MHA__TRY(mha__head_input(m, g->batch.sequences, last, g->saved.scratch->branch, &input, err));
    return mha__head_logits(m, g->batch.sequences, input, logits, err);
}

/* Computes the requested outputs from the last hidden states. */
static mha_status serve(const mha_model_grads *g, const mha_model_output *out, mha_error *err)
{
    const mha_model *m = g->model;
    const size_t bytes = (size_t)(g->batch.in.batch * g->batch.in.length * m->config.hidden) * sizeof(float);
    const float *input = g->saved.last;
    float *room = g->saved.scratch->branch;
    if (out->last_hidden) memcpy(out->last_hidden, g->saved.last, bytes);
    if (out->pooled) MHA__TRY(mha__head_pool(m, &g->batch, g->saved.last, room, out->pooled, err));
    if (out->embedding) MHA__TRY(mha__head_embed(m, &g->batch, g->saved.last, room, out->embedding, err));
    if (out->last_logits) MHA__TRY(serve_last(g, out->last_logits, err));
    if (!out->logits) return MHA_OK;
    const int64_t rows = mha__head_rows(m, &g->batch, g->saved.last, g->saved.dx, &input);
    MHA__TRY(mha__head_input(m, rows, input, room, &input, err));
    return mha__head_logits(m, rows, input, out->logits, err);
}

/* Starts passing rows of probabilities to out.on_rows. */
static mha_status open_rows(mha_model_grads *g, mha_error *err)
{
    g->taps = (mha__taps){0};
    return g->out.on_rows ? mha__taps_read(g->model, &g->batch, &g->out, &g->taps, err) : MHA_OK;
}

/* Stops passing rows, so that a backward pass plans its calls without them. */
static void close_rows(mha_model_grads *g)
{
    if (!g->taps.out) return;
    g->taps.out = NULL;
    g->batch.layer.on_rows = NULL;
    forget_plan(g);
}

mha_status mha_model_grads_forward(mha_model_grads *g, const mha_model_input *input, const mha_model_output *output,
                                   mha_error *err)
{
    if (!g) return mha__fail(err, MHA_ERR_ARG, "mha_model_grads_forward: grads must not be NULL");
    g->ready = false;
    g->dropout = g->next_dropout;
    MHA__TRY(mha__options_read(&g->out, sizeof g->out, output, "mha_model_output", err));
    MHA__TRY(mha__batch_read(g->model, &g->batch, input, err));
    MHA__TRY(check_input(&g->batch.in, err));
    mha_attn_plan_free(g->cross.plan); /* the plan belongs to another batch */
    MHA__TRY(mha__cross_read(g->model, &g->batch, &g->out, &g->cross, err));
    MHA__TRY(check_output(g->model, &g->batch, &g->out, err));
    MHA__TRY(check_input(&(mha_model_input){.hidden = g->cross.encoded}, err));
    MHA__TRY(open_rows(g, err));
    MHA__TRY(allocate(g, err));
    MHA__TRY(run(g, err));
    close_rows(g);
    MHA__TRY(serve(g, &g->out, err));
    g->ready = true;
    return MHA_OK;
}
