/* observers.c - passes maps, statistics and activations to callbacks. These results are stored for one layer at a time,
 * in the memory of the forward pass. */
#include "model/forward/observers.h"

#include "base/error.h"
#include <string.h>

mha_status mha__taps_stopped(mha_error *err, const char *callback, int64_t entry)
{
    return mha__fail(err, MHA_ERR_CANCELED, "stopped by %s at layer %lld", callback, (long long)entry);
}

/* Returns true if attention maps are requested, whole or by row. */
static bool shows_maps(const mha_model_output *out)
{
    return out->on_attention || out->on_rows;
}

/* ---- requested heads and rows ---- */

int64_t mha__heads_of_layer(const mha_model_head *list, int64_t count, int64_t layer, int64_t *first)
{
    int64_t found = 0;
    *first = 0;
    while (*first < count && list[*first].layer < layer)
        ++*first;
    while (*first + found < count && list[*first + found].layer == layer)
        found++;
    return found;
}

/* Finds the range of map_heads that belongs to this layer. */
static void find_heads(mha__taps *t, const mha_model *m, int64_t layer)
{
    const mha_model_output *out = t->out;
    t->first = 0;
    t->count = m->info.heads_per_layer[layer];
    if (out->map_heads) t->count = mha__heads_of_layer(out->map_heads, out->map_count, layer, &t->first);
}

mha_status mha__head_list_check(const mha_model *m, const mha__head_list *l, mha_error *err)
{
    if (!l->heads && !l->count) return MHA_OK;
    if (!l->heads || l->count < 1 || !l->shown)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_output: %smap_count, %smap_heads and %s must be set together (got %lld, %s, %s)",
                         l->prefix, l->prefix, l->callbacks, (long long)l->count, l->heads ? "given" : "NULL",
                         l->shown ? "given" : "NULL");
    for (int64_t n = 0; n < l->count; n++) {
        const mha_model_head *h = &l->heads[n];
        if (h->layer < 0 || h->layer >= m->info.layers || h->head < 0 || h->head >= l->counts[h->layer])
            return mha__fail(
                err, MHA_ERR_ARG,
                "mha_model_output: %smap_heads[%lld] must be a head of the model (got head %d of layer %d)", l->prefix,
                (long long)n, (int)h->head, (int)h->layer);
        if (n > 0 && h->layer < h[-1].layer)
            return mha__fail(err, MHA_ERR_ARG,
                             "mha_model_output: %smap_heads[%lld] must not be in an earlier layer than the previous "
                             "entry (got layer %d after %d)",
                             l->prefix, (long long)n, (int)h->layer, (int)h[-1].layer);
    }
    return MHA_OK;
}

static mha_status check_list(const mha_model *m, const mha_model_output *out, mha_error *err)
{
    const mha__head_list list = {
        "", "one of on_attention and on_rows", out->map_heads, out->map_count, shows_maps(out), m->config.layer_heads};
    return mha__head_list_check(m, &list, err);
}

static mha_status check_rows(const mha__batch *batch, const mha_model_output *out, int64_t rows, mha_error *err)
{
    if (!out->map_rows && !out->map_row_count) return MHA_OK;
    if (!out->map_rows || out->map_row_count < 1 || !shows_maps(out))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_output: map_row_count, map_rows and one of on_attention and on_rows must be set "
                         "together (got %lld, %s, %s)",
                         (long long)out->map_row_count, out->map_rows ? "given" : "NULL",
                         shows_maps(out) ? "given" : "NULL");
    for (int64_t b = 0; b < batch->sequences; b++)
        for (int64_t n = 0; n < out->map_row_count; n++) {
            const int64_t row = out->map_rows[b * out->map_row_count + n];
            if (row < -rows || row >= rows)
                return mha__fail(err, MHA_ERR_ARG,
                                 "mha_model_output: map_rows for sequence %lld must be from %lld to %lld (got %lld)",
                                 (long long)b, (long long)-rows, (long long)rows - 1, (long long)row);
        }
    return MHA_OK;
}

mha_status mha__taps_read(const mha_model *m, const mha__batch *batch, const mha_model_output *out, mha__taps *taps,
                          mha_error *err)
{
    *taps = (mha__taps){.out = out, .rows = mha__batch_map_rows(batch), .keys = mha__batch_map_keys(batch)};
    if (batch->in.context && (shows_maps(out) || out->on_stats || out->on_activations))
        return mha__fail(
            err, MHA_ERR_ARG,
            "mha_model_output: %s must not be requested with context, because it replaces the output of attention",
            out->on_stats         ? "on_stats"
            : out->on_activations ? "on_activations"
                                  : "maps or rows");
    MHA__TRY(check_list(m, out, err));
    MHA__TRY(check_rows(batch, out, taps->rows, err));
    if (out->map_rows) taps->rows = out->map_row_count;
    MHA__TRY(mha__model_single_heads(m,
                                     shows_maps(out)       ? "maps"
                                     : out->on_stats       ? "statistics"
                                     : out->on_activations ? "activations"
                                                           : NULL,
                                     err));
    if (out->top_keys < 0 || out->top_keys > 32 || (out->top_keys && !out->on_stats))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_output: top_keys must be from 0 to 32, and 0 without on_stats (got %lld)",
                         (long long)out->top_keys);
    for (int64_t layer = 0; layer < m->info.layers; layer++) {
        find_heads(taps, m, layer);
        taps->max = mha__max64(taps->max, taps->count);
    }
    return MHA_OK;
}

/* ---- memory ---- */

/* Allocates an array [a, b, c] from the arena; elements have `bytes` bytes. */
static void *take(mha__arena *arena, int64_t a, int64_t b, int64_t c, size_t bytes)
{
    size_t all = 0;
    if (!mha__bytes((int64_t[]){a, b, c}, 3, bytes, &all)) arena->overflow = true;
    return mha__take(arena, 1, all);
}

static void lay_out_stats(mha__arena *arena, const mha_model *m, const mha__batch *batch, mha__taps *t)
{
    int64_t heads = 0;
    for (int64_t layer = 0; layer < m->info.layers; layer++)
        heads = mha__max64(heads, m->info.heads_per_layer[layer]);
    const int64_t rows = batch->in.batch * batch->in.length, top = t->out->top_keys;
    const int64_t keys = batch->in.starts ? rows : batch->sequences * t->keys;
    t->stats = (mha_attn_stats){.size = sizeof t->stats};
    t->stats.row_argmax.data = take(arena, heads, rows, 1, sizeof(int64_t));
    t->stats.row_entropy.data = take(arena, heads, rows, 1, sizeof(float));
    t->stats.row_max.data = take(arena, heads, rows, 1, sizeof(float));
    t->stats.row_distance.data = take(arena, heads, rows, 1, sizeof(float));
    t->stats.received.data = take(arena, heads, keys, 1, sizeof(float));
    if (!top) return;
    t->stats.top_key.data = take(arena, heads, rows, top, sizeof(int64_t));
    t->stats.top_prob.data = take(arena, heads, rows, top, sizeof(float));
}

static void lay_out_activations(mha__arena *arena, const mha_model *m, const mha__batch *batch, mha__taps *t)
{
    const mha__config *c = &m->config;
    const int64_t rows = batch->in.batch * batch->in.length;
    int64_t q_width = 0, qkv_width = 0;
    for (int64_t layer = batch->in.first_layer; layer < c->layers; layer++) {
        q_width = mha__max64(q_width, c->layer_heads[layer] * c->head_dim);
        qkv_width = mha__max64(qkv_width, (c->layer_heads[layer] + 2 * c->layer_kv_heads[layer]) * c->head_dim);
    }
    t->activations.input = take(arena, rows, c->hidden, 1, sizeof(float));
    t->activations.qkv = take(arena, rows, qkv_width, 1, sizeof(float));
    t->activations.context = take(arena, rows, q_width, 1, sizeof(float));
    t->activations.out = take(arena, rows, c->hidden, 1, sizeof(float));
}

void mha__taps_lay_out(mha__arena *arena, const mha_model *m, const mha__batch *batch, mha__taps *taps)
{
    const mha_model_output *out = taps->out;
    if (out->on_stats) lay_out_stats(arena, m, batch, taps);
    if (out->on_activations) lay_out_activations(arena, m, batch, taps);
    if (out->map_heads) taps->heads = mha__take(arena, (size_t)out->map_count, sizeof *taps->heads);
    if (!out->on_attention) return;
    size_t map = 0;
    if (!mha__bytes((int64_t[]){taps->rows, taps->keys}, 2, sizeof(float), &map)) arena->overflow = true;
    taps->probs = take(arena, batch->sequences, taps->max, 1, map);
}

/* ---- observers of one layer ---- */

static void hand_on(void *user, const mha_attn_rows *rows)
{
    const mha__taps *taps = user;
    taps->out->on_rows(taps->out->user, taps->layer, rows);
}

void mha__taps_turn(mha__taps *taps, const mha_model *m, mha__batch *batch, int64_t layer)
{
    const mha_model_output *out = taps->out;
    mha_layer_input *in = &batch->layer;
    find_heads(taps, m, layer);
    if (out->on_stats) {
        in->stats = &taps->stats;
        in->top_keys = out->top_keys;
        in->rows = batch->in.mask && !batch->right_padded ? batch->in.mask : NULL;
    }
    in->activations = out->on_activations ? &taps->activations : NULL;
    in->probs = NULL;
    in->on_rows = NULL;
    if (!shows_maps(out) || taps->count == 0) return;
    taps->layer = layer;
    taps->visitor = (mha_attn_visitor){hand_on, taps};
    if (out->on_rows) in->on_rows = &taps->visitor;
    if (out->on_attention) in->probs = taps->probs ? taps->probs : &taps->some_probs;
    in->map_count = taps->count;
    in->map_rows = out->map_rows;
    in->map_row_count = out->map_row_count;
    if (out->map_heads) in->map_heads = taps->heads ? taps->heads + taps->first : &taps->some_heads;
    for (int64_t n = 0; taps->heads && n < taps->count; n++)
        taps->heads[taps->first + n] = out->map_heads[taps->first + n].head;
    if (!taps->probs) return;
    if (batch->in.starts || out->map_rows) /* the operator does not write elements past the end of a shorter sequence */
        memset(taps->probs, 0,
               (size_t)(batch->sequences * taps->count * taps->rows * taps->keys) * sizeof *taps->probs);
}

static int show_stats(const mha__taps *taps, const mha_model *m, int64_t layer)
{
    const mha_attn_stats *s = &taps->stats;
    const mha_model_stats shown = {.layer = layer,
                                   .heads = m->info.heads_per_layer[layer],
                                   .keys = taps->keys,
                                   .row_entropy = s->row_entropy.data,
                                   .row_max = s->row_max.data,
                                   .row_distance = s->row_distance.data,
                                   .row_argmax = s->row_argmax.data,
                                   .received = s->received.data,
                                   .top_prob = s->top_prob.data,
                                   .top_key = s->top_key.data};
    return taps->out->on_stats(taps->out->user, &shown);
}

static int show_activations(const mha__taps *taps, const mha_model *m, const mha__batch *batch, int64_t layer)
{
    const mha__config *c = &m->config;
    const mha_layer_activations *a = &taps->activations;
    const int64_t heads = c->layer_heads[layer], kv_heads = c->layer_kv_heads[layer], D = c->head_dim;
    const mha_model_activations shown = {.layer = layer,
                                         .rows = batch->in.batch * batch->in.length,
                                         .heads = heads,
                                         .kv_heads = kv_heads,
                                         .head_dim = D,
                                         .input = a->input,
                                         .q = a->qkv,
                                         .k = a->qkv + heads * D,
                                         .v = a->qkv + (heads + kv_heads) * D,
                                         .stride = (heads + 2 * kv_heads) * D,
                                         .context = a->context,
                                         .out = a->out};
    return taps->out->on_activations(taps->out->user, &shown);
}

mha_status mha__taps_show(const mha__taps *taps, const mha_model *m, const mha__batch *batch, int64_t layer,
                          mha_error *err)
{
    const mha_model_output *out = taps->out;
    if (out->on_attention && taps->count && out->on_attention(out->user, layer, taps->count, taps->probs))
        return mha__taps_stopped(err, "on_attention", layer);
    if (out->on_stats && show_stats(taps, m, layer)) return mha__taps_stopped(err, "on_stats", layer);
    if (out->on_activations && show_activations(taps, m, batch, layer))
        return mha__taps_stopped(err, "on_activations", layer);
    return MHA_OK;
}
