/* model_forward.c - runs a batch of token ids through the whole model.
 *
 * One arena holds all arrays of the pass; blocks update x in place. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "layer/block/transformer_block.h"
#include "model/forward/encoder_source.h"
#include "model/forward/model_cache.h"
#include "model/forward/observers.h"
#include "model/forward/pooler_logits.h"
#include "model/forward/rank_gather.h"
#include "model/forward/selected_heads.h"
#include "model/forward/sequence_shard.h"
#include <string.h>

/* One forward call: validated structs and the arrays of the arena. */
typedef struct pass {
    mha__batch batch;
    mha_model_shard shard; /* a copy of the caller's struct, if there is one */
    mha_model_output out;
    mha__taps taps;
    mha__cross_pass cross;
    mha__site_edit *edit; /* NULL = none */
    float *x;             /* [B L, E] the caller's last_hidden, or memory of the arena */
    float *embedded;      /* [B L, width of the embeddings] if a linear map follows, else NULL */
    float *first;         /* [B, E] one row per sequence: the first for the pooler, or the last for logits */
    float *final;         /* [rows, E] input of the output matrix, if it is not x */
    void *block;          /* the blocks' workspace */
    mha_attn_plan *plan;  /* plan of the layer `planned` and of all layers with the same shape */
    const mha_attn_layer *planned;
    int64_t planned_maps; /* number of heads in that layer with requested maps */
    bool stores;          /* the pass has begun to store keys and values in the cache */
} pass;

/* ---- memory ---- */

static void lay_out(mha__arena *arena, const mha_model *m, pass *p, size_t block_bytes)
{
    const mha_model_input *in = &p->batch.in;
    const size_t batch = (size_t)in->batch, rows = batch * (size_t)in->length, width = (size_t)m->config.hidden;
    p->x = p->out.last_hidden ? p->out.last_hidden : mha__take(arena, rows, width * sizeof(float));
    if (m->embed_map) p->embedded = mha__take(arena, rows, (size_t)m->config.embed_width * sizeof(float));
    mha__batch_lay_out(arena, m, &p->batch);
    mha__shard_lay_out(arena, &p->batch);
    if (m->lm_dense && (p->out.logits || p->out.last_logits)) p->final = mha__take(arena, rows, width * sizeof(float));
    if (p->out.pooled || p->out.last_logits || p->out.embedding || (p->out.logits && m->config.channels))
        p->first = mha__take(arena, (size_t)p->batch.sequences, width * sizeof(float));
    mha__taps_lay_out(arena, m, &p->batch, &p->taps);
    mha__cross_lay_out(arena, m, &p->batch, &p->out, &p->cross);
    p->block = mha__take(arena, 1, block_bytes);
}

/* Sets the pass to this layer, and p->plan to its operator plan. The previous plan is reused while layers have the same
 * shape and the same number of requested maps, so most models need one plan. */
static mha_status turn(const mha_model *m, pass *p, int64_t layer, mha_error *err)
{
    const mha_attn_layer *attn = mha__block_attn(m->block[layer]);
    mha__batch_turn(&p->batch, m, layer);
    MHA__TRY(mha__cross_turn(m, &p->batch, &p->cross, layer, err));
    mha__taps_turn(&p->taps, m, &p->batch, layer);
    mha__selected_heads_begin(m, &p->batch, layer, p->out.kept);
    if (p->edit) p->edit->layer = layer;
    if (p->edit && p->edit->begin) p->edit->begin(p->edit->user, layer, &p->batch.layer);
    const int64_t maps = p->batch.layer.probs || p->batch.layer.on_rows ? p->batch.layer.map_count : 0;
    if (p->plan && p->planned_maps == maps && mha__attn_layer_equivalent(p->planned, attn)) return MHA_OK;
    mha_attn_plan_free(p->plan);
    p->plan = NULL;
    p->planned = attn;
    p->planned_maps = maps;
    return mha__attn_plan(attn, &(mha__attn_call){.in = &p->batch.layer}, &p->plan, err);
}

static mha_status block_bytes(const mha_model *m, pass *p, size_t *bytes, mha_error *err)
{
    *bytes = 0;
    for (int64_t layer = p->batch.in.first_layer; layer < m->config.layers; layer++) {
        size_t one = 0;
        MHA__TRY(turn(m, p, layer, err));
        MHA__TRY(mha__block_bytes(m->block[layer], p->plan, &p->batch.layer, &one, err));
        if (one > *bytes) *bytes = one;
    }
    return MHA_OK;
}

/* ---- forward pass ---- */

static mha_status logits(const mha_model *m, const pass *p, mha_error *err)
{
    const int64_t width = m->config.head_width;
    const float *x = NULL;
    const int64_t rows = mha__head_rows(m, &p->batch, p->x, p->first, &x);
    MHA__TRY(mha__head_input(m, rows, x, p->final, &x, err));
    if (p->out.logits) MHA__TRY(mha__head_logits(m, rows, x, p->out.logits, err));
    for (int64_t b = 0; p->out.last_logits && b < p->batch.sequences; b++)
        memcpy(p->first + b * width, x + mha__batch_last(&p->batch, b) * width, (size_t)width * sizeof *x);
    return p->out.last_logits ? mha__head_logits(m, p->batch.sequences, p->first, p->out.last_logits, err) : MHA_OK;
}

/* Computes the input x of the first layer that runs. */
static mha_status enter(const mha_model *m, const pass *p, mha_error *err)
{
    const int64_t rows = p->batch.in.batch * p->batch.in.length, width = m->config.hidden;
    if (p->batch.in.hidden) {
        memmove(p->x, p->batch.in.hidden, (size_t)(rows * width) * sizeof *p->x);
        return MHA_OK;
    }
    float *x = m->embed_map ? p->embedded : p->x;
    MHA__TRY(mha__batch_embed(m, &p->batch, x, err));
    mha__edited(p->edit, MHA__EDIT_EMBEDDED, 0, rows, x);
    if (m->embed_norm.weight)
        MHA__TRY(mha_norm_forward(m->ctx, &m->embed_norm, rows, m->config.embed_width, x, NULL, x, err));
    return m->embed_map ? mha__batch_map(m, &p->batch, x, p->x, err) : MHA_OK;
}

/* Returns true if no requested output is computed after the attention of the last layer. */
static bool ends_at_attention(const mha_model_output *out)
{
    return (out->on_attention || out->on_rows || out->on_stats) && !out->on_activations && !out->on_hidden &&
           !out->on_cross_attention && !out->on_cross_activations && !out->last_hidden && !out->pooled &&
           !out->logits && !out->last_logits && !out->embedding;
}

/* Stores the masks of the sources, and the keys and values that all layers compute from their hidden states. */
static mha_status store_source(const mha_model *m, pass *p, const float *hidden, mha_error *err)
{
    p->stores = true;
    mha__cross_store_masks(&p->cross);
    return mha__cross_store_keys(m, &p->cross, hidden, err);
}

/* Runs the encoder of an encoder-decoder if the pass has a source, and stores the source. */
static mha_status encode(const mha_model *m, pass *p, mha_error *err)
{
    mha_model_output o;
    const mha_model_input input = mha__cross_encoder_input(&p->cross);
    const size_t bytes = (size_t)(p->cross.input.batch * input.length * m->config.hidden) * sizeof(float);
    if (!p->cross.used || !input.size) return MHA_OK;
    MHA__TRY(mha__options_read(&o, sizeof o, p->out.encoder, "mha_model_output", err));
    if (p->cross.encoded) return store_source(m, p, p->cross.encoded, err);
    float *own = o.last_hidden ? NULL : mha__alloc(m->ctx, bytes);
    if (!o.last_hidden && !own) return mha__no_memory(err, bytes, "the hidden states of a source");
    if (own) o.last_hidden = own;
    mha_status status = mha_model_forward(m->encoder, &input, &o, err);
    if (status == MHA_OK) status = store_source(m, p, o.last_hidden, err);
    mha__free(m->ctx, own);
    return status;
}

static mha_status final_norm(const mha_model *m, const pass *p, mha_error *err)
{
    const int64_t rows = p->batch.in.batch * p->batch.in.length;
    if (!m->final_norm.weight) return MHA_OK;
    return mha_norm_forward(m->ctx, &m->final_norm, rows, m->config.hidden, p->x, NULL, p->x, err);
}

static mha_status run(const mha_model *m, pass *p, mha_error *err)
{
    const mha_model_output *out = &p->out;
    const int64_t layers = m->config.layers;
    const int64_t begin = p->batch.in.first_layer;
    MHA__TRY(mha__batch_fill(m, &p->batch, err));
    MHA__TRY(enter(m, p, err));
    MHA__TRY(encode(m, p, err));
    if (out->on_hidden && out->on_hidden(out->user, begin, p->x)) return mha__taps_stopped(err, "on_hidden", begin);
    p->stores = true;
    for (int64_t layer = begin; layer < layers; layer++) {
        MHA__TRY(turn(m, p, layer, err));
        const bool ends = layer == layers - 1 && !p->edit && ends_at_attention(out);
        if (ends)
            MHA__TRY(mha__block_attend(m->block[layer], p->plan, &p->batch.layer, p->x, err));
        else
            MHA__TRY(mha__block_run_edited(m->block[layer], p->plan, &p->batch.layer, p->edit, p->x, err));
        mha__selected_heads_report(m, &p->batch, layer, out->kept);
        MHA__TRY(mha__taps_show(&p->taps, m, &p->batch, layer, err));
        MHA__TRY(mha__cross_show(m, &p->batch, &p->cross, layer, err));
        if (ends) return MHA_OK;
        const bool last = layer == layers - 1, early = m->config.family->hidden_last;
        if (last && !early) MHA__TRY(final_norm(m, p, err));
        if (out->on_hidden && out->on_hidden(out->user, layer + 1, p->x))
            return mha__taps_stopped(err, "on_hidden", layer + 1);
        if (last && early) MHA__TRY(final_norm(m, p, err));
    }
    if (out->embedding) MHA__TRY(mha__head_embed(m, &p->batch, p->x, p->first, out->embedding, err));
    if (out->pooled) MHA__TRY(mha__head_pool(m, &p->batch, p->x, p->first, out->pooled, err));
    return out->logits || out->last_logits ? logits(m, p, err) : MHA_OK;
}

/* Places the arrays of the pass in one allocation. */
static mha_status allocate(const mha_model *m, pass *p, void **memory, mha_error *err)
{
    size_t bytes = 0;
    MHA__TRY(block_bytes(m, p, &bytes, err));
    mha__arena arena = {0};
    lay_out(&arena, m, p, bytes);
    arena.base = *memory = arena.overflow ? NULL : mha__alloc(m->ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "a forward pass");
    arena.used = 0;
    lay_out(&arena, m, p, bytes);
    mha__batch_describe(&p->batch, p->batch.lengths);
    mha__cross_bind(m, &p->batch, &p->cross);
    p->batch.layer.workspace = p->block;
    p->batch.layer.workspace_bytes = bytes;
    return MHA_OK;
}

mha_status mha__model_forward_edited(const mha_model *model, const mha_model_input *input,
                                     const mha_model_output *output, mha__site_edit *edit, mha_error *err)
{
    const int64_t some_lengths = 0; /* placeholder for an array that is not allocated yet; not read */
    pass p = {.edit = edit};
    void *memory = NULL;
    if (!model) return mha__fail(err, MHA_ERR_ARG, "mha_model_forward: model must not be NULL");
    MHA__TRY(mha__options_read(&p.out, sizeof p.out, output, "mha_model_output", err));
    MHA__TRY(mha__batch_read(model, &p.batch, input, err));
    MHA__TRY(mha__head_check(model, p.out.pooled != NULL, p.out.logits || p.out.last_logits, err));
    MHA__TRY(mha__head_check_vision(model, &p.batch, p.out.pooled != NULL, p.out.last_logits != NULL,
                                    p.out.embedding != NULL, err));
    MHA__TRY(mha__rank_check(model, &p.batch.in, &p.out, err));
    MHA__TRY(mha__cross_read(model, &p.batch, &p.out, &p.cross, err));
    MHA__TRY(mha__shard_read(model, &p.batch, &p.shard, &p.out, err));
    MHA__TRY(mha__taps_read(model, &p.batch, &p.out, &p.taps, err));
    mha__batch_describe(&p.batch, &some_lengths);
    mha__cross_bind(model, &p.batch, &p.cross);
    mha_status status = allocate(model, &p, &memory, err);
    if (status == MHA_OK) status = run(model, &p, err);
    if (status != MHA_OK && p.stores && p.batch.in.cache) mha_model_cache_clear(p.batch.in.cache, MHA_CACHE_ALL, NULL);
    mha_attn_plan_free(p.plan);
    mha_attn_plan_free(p.cross.plan);
    mha__free(model->ctx, memory);
    return status;
}

mha_status mha_model_forward(const mha_model *model, const mha_model_input *input, const mha_model_output *output,
                             mha_error *err)
{
    return mha__model_forward_edited(model, input, output, NULL, err);
}
