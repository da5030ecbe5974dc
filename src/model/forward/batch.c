/* batch.c - checks token ids and prepares the input of the first layer.
 *
 * Padding at the end of a sequence is passed to the operator as a length, and any other mask as a keep mask; both give
 * bitwise identical results. */
#include "model/forward/batch.h"

#include "base/error.h"
#include "base/struct_size.h"
#include "model/audio/audio_stem.h"
#include "model/forward/model_cache.h"
#include "model/forward/rank_gather.h"
#include "model/forward/relative_bias.h"
#include "model/forward/sequence_shard.h"
#include "model/vision/image_input.h"
#include <string.h>

/* ---- checks of the input ---- */

static int64_t leading_ones(const uint8_t *mask, int64_t n)
{
    int64_t length = 0;
    while (length < n && mask[length])
        length++;
    return length;
}

/* Returns true if no row of the mask has a one after a zero. */
static bool is_right_padded(const mha_model_input *in)
{
    for (int64_t b = 0; in->mask && b < in->batch; b++) {
        const uint8_t *row = in->mask + b * in->length;
        for (int64_t i = leading_ones(row, in->length); i < in->length; i++)
            if (row[i]) return false;
    }
    return true;
}

/* Checks that every sequence of the cache has space for its new tokens, so that no layer fails after earlier layers
 * have stored their keys. */
static mha_status check_cache(const mha_model *m, const mha__batch *p, int64_t max, mha_error *err)
{
    const mha_model_cache *c = p->in.cache;
    if (!c) return MHA_OK;
    if (c->model != m) return mha__fail(err, MHA_ERR_ARG, "mha_model_input: cache must be a cache of this model");
    if (p->in.batch == 1 && (p->in.sequence < 0 || p->in.sequence >= c->batch))
        return mha__fail(
            err, MHA_ERR_ARG,
            "mha_model_input: sequence must be at least 0 and below the cache's sequence count %lld (got %lld)",
            (long long)c->batch, (long long)p->in.sequence);
    if (c->batch != p->in.batch && p->in.batch != 1)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_input: batch must be 1 or the cache's sequence count %lld (got %lld)",
                         (long long)c->batch, (long long)p->in.batch);
    if (!p->right_padded)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_input: mask must be right-padded (ones, then zeros in each row) if cache is set");
    for (int64_t b = 0; b < p->in.batch; b++) {
        const int64_t L = p->in.length, past = mha__batch_past(p, b);
        const int64_t fresh = p->in.mask ? leading_ones(p->in.mask + b * L, L) : L;
        if (past + fresh > c->tokens || past + fresh > max)
            return mha__fail(
                err, MHA_ERR_ARG,
                "sequence %lld: number of tokens must be at most %lld, including cached tokens (got %lld after %lld)",
                (long long)b, (long long)(c->tokens < max ? c->tokens : max), (long long)fresh, (long long)past);
    }
    return MHA_OK;
}

/* Concatenates packed sequences into one row of tokens. */
static mha_status read_starts(mha__batch *p, int64_t max, mha_error *err)
{
    const int64_t *starts = p->in.starts;
    p->sequences = p->in.batch;
    if (!starts) return MHA_OK;
    if (p->in.mask || p->in.cache)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: %s must be NULL with starts",
                         p->in.mask ? "mask" : "cache");
    if (p->in.batch < 1)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: batch must be at least 1 (got %lld)",
                         (long long)p->in.batch);
    if (starts[0] != 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: starts[0] must be 0 (got %lld)", (long long)starts[0]);
    for (int64_t b = 0; b < p->in.batch; b++)
        if (starts[b + 1] <= starts[b] || starts[b + 1] - starts[b] > max || starts[b + 1] > INT32_MAX)
            return mha__fail(err, MHA_ERR_ARG,
                             "mha_model_input: sequence %lld must have 1 to %lld tokens (got tokens %lld to %lld)",
                             (long long)b, (long long)max, (long long)starts[b], (long long)starts[b + 1]);
    p->in.length = starts[p->in.batch];
    p->in.batch = 1;
    return MHA_OK;
}

/* Checks the hidden states and the first layer of the pass. */
static mha_status check_hidden(const mha_model *m, const mha_model_input *in, mha_error *err)
{
    if (!in->hidden && in->first_layer != 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: hidden must not be NULL with first_layer = %lld",
                         (long long)in->first_layer);
    if (in->first_layer < 0 || in->first_layer >= m->config.layers)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: first_layer must be from 0 to %lld (got %lld)",
                         (long long)m->config.layers - 1, (long long)in->first_layer);
    if (in->context && (!in->hidden || in->cache))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: context must be NULL %s",
                         in->cache ? "with cache" : "without hidden");
    if (in->cache && in->first_layer > 0)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_input: first_layer must be 0 with cache, since lower layers would not cache the "
                         "tokens (got %lld)",
                         (long long)in->first_layer);
    MHA__TRY(mha__stem_check(m, in, err));
    if (!in->ids && !in->hidden && !in->features && !m->config.channels)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: ids must not be NULL");
    return MHA_OK;
}

/* Checks the token types. A model without a type table has only type 0, which tokenizers assign to every token of a
 * text. */
static mha_status check_types(const mha_model *m, const mha_model_input *in, mha_error *err)
{
    for (int64_t i = 0; in->type_ids && !in->hidden && !m->types.weight && i < in->batch * in->length; i++)
        if (in->type_ids[i] != 0)
            return mha__fail(err, MHA_ERR_ARG,
                             "mha_model_input: type_ids[%lld] must be 0, since %s has no token types (got %d)",
                             (long long)i, m->info.family, in->type_ids[i]);
    return MHA_OK;
}

static mha_status check_input(const mha_model *m, const mha__batch *p, int64_t max, mha_error *err)
{
    size_t bytes = 0;
    if (!m->packed) return mha__fail(err, MHA_ERR_ARG, "model must have weights (got a model opened with no_weights)");
    if (p->in.batch < 1)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: batch must be at least 1 (got %lld)",
                         (long long)p->in.batch);
    if (p->in.length < 1 || (p->in.length > max && !p->in.starts))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: length must be from 1 to %lld (got %lld)", (long long)max,
                         (long long)p->in.length);
    MHA__TRY(check_hidden(m, &p->in, err));
    MHA__TRY(mha__model_single_heads(m, p->in.gates ? "gates" : p->in.fills ? "fills" : NULL, err));
    if (!mha__bytes((int64_t[]){p->in.batch, p->in.length, m->config.hidden}, 3, 2 * sizeof(float), &bytes))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: batch must fit in memory (got %lld)",
                         (long long)p->in.batch);
    return check_types(m, &p->in, err);
}

int64_t mha__batch_max_tokens(const mha_model *m)
{
    return m->positions.weight ? m->config.max_positions : INT32_MAX;
}

mha_status mha__batch_read(const mha_model *m, mha__batch *batch, const mha_model_input *input, mha_error *err)
{
    const int64_t max = mha__batch_max_tokens(m);
    MHA__TRY(mha__options_read(&batch->in, sizeof batch->in, input, "mha_model_input", err));
    MHA__TRY(mha__image_read(m, &batch->in, err));
    MHA__TRY(read_starts(batch, max, err));
    MHA__TRY(check_input(m, batch, max, err));
    batch->relative = m->relative.weight;
    batch->relative_heads = m->config.heads;
    batch->right_padded = is_right_padded(&batch->in);
    MHA__TRY(check_cache(m, batch, max, err));
    batch->max_past = 0;
    for (int64_t b = 0; b < batch->sequences; b++)
        batch->max_past = mha__max64(batch->max_past, mha__batch_past(batch, b));
    return MHA_OK;
}

/* ---- arrays of a batch ---- */

void mha__batch_lay_out(mha__arena *arena, const mha_model *m, mha__batch *p)
{
    const size_t batch = (size_t)p->in.batch, rows = batch * (size_t)p->in.length;
    p->positions = mha__take(arena, rows, sizeof *p->positions);
    p->zeros = p->in.type_ids ? NULL : mha__take(arena, rows, sizeof *p->zeros);
    p->lengths = mha__take(arena, batch, sizeof *p->lengths);
    if (m->config.channels && !p->in.hidden)
        p->patches = mha__take(arena, (size_t)m->config.max_positions,
                               (size_t)mha__patch_width(&m->config) * sizeof *p->patches);
    if (p->relative) p->bias = mha__take(arena, (size_t)mha__relative_size(m, p), sizeof *p->bias);
    if (p->relative) p->past = mha__take(arena, (size_t)p->sequences, sizeof *p->past);
    p->bias_layer = -1;
    if (!m->config.rope.head_dim) return;
    const size_t extra = p->in.shard ? 1 : 0; /* row for the last position of the whole sequence (fill_angles) */
    p->turns = mha__take(arena, rows / batch + extra, sizeof *p->turns);
    const mha_rope_options *const ropes[] = {&m->config.rope, &m->config.local_rope};
    for (int n = 0; n < 2; n++) {
        const size_t pairs = (size_t)ropes[n]->rotary_dim / 2;
        if (!pairs) continue;
        p->angles[n].cos = mha__take(arena, rows + extra, pairs * sizeof(float));
        p->angles[n].sin = mha__take(arena, rows + extra, pairs * sizeof(float));
    }
}

void mha__batch_describe(mha__batch *p, const int64_t *lengths)
{
    p->layer = (mha_layer_input){.size = sizeof p->layer,
                                 .cache = p->in.cache ? p->in.cache->layer[0] : NULL,
                                 .sequence = p->in.sequence,
                                 .batch = p->in.batch,
                                 .length = p->in.length,
                                 .starts = p->in.starts,
                                 .sequences = p->in.starts ? p->sequences : 0,
                                 .shard = p->in.shard ? &p->shard : NULL};
    if (p->relative) mha__relative_describe(p);
    if (p->in.mask && p->right_padded) p->layer.lengths = lengths;
    if (!p->in.mask || p->right_padded) return;
    p->layer.keep = (mha_cview){p->in.mask, {p->in.length, 0, 0, 1}};
    p->layer.real = p->in.mask;
}

/* Computes the biases of the layer, unless they were computed for a layer with the same heads. */
static void turn_bias(mha__batch *p, const mha_model *m, int64_t layer)
{
    const size_t bytes = (size_t)m->config.heads * sizeof *m->head_numbers;
    const int32_t *numbers = m->head_numbers, *const now = numbers + layer * m->config.heads;
    if (!p->bias) return;
    if (p->bias_layer < 0 || memcmp(numbers + p->bias_layer * m->config.heads, now, bytes) != 0)
        mha__relative_fill(m, layer, p);
    p->bias_layer = layer;
}

void mha__batch_turn(mha__batch *p, const mha_model *m, int64_t layer)
{
    turn_bias(p, m, layer);
    const int64_t heads = m->config.heads, width = heads * m->config.head_dim;
    const int rope = m->config.attention[layer].local ? 1 : 0;
    p->layer.cos = p->angles[rope].cos;
    p->layer.sin = p->angles[rope].sin;
    p->shard.layer = layer;
    p->layer.context = layer == p->in.first_layer ? p->in.context : NULL;
    if (p->in.fills) p->layer.fills = p->in.fills + layer * width;
    if (p->in.cache) p->layer.cache = p->in.cache->layer[layer];
    if (p->in.gates) p->layer.gates = (mha_cview){p->in.gates + layer * p->sequences * heads, {heads, 1}};
}

/* Computes the positions of tokens [first, end) by counting tokens: those that are not the padding id, or real ones. */
static void count_tokens(const mha_model *m, mha__batch *p, int64_t first, int64_t end)
{
    const bool by_id = m->config.family->position_rule == MHA__POSITIONS_AFTER_PAD;
    const int32_t before = by_id ? (int32_t)m->config.padding : mha__first_position(m->config.family) - 1;
    int32_t last = before;
    for (int64_t i = first; i < end; i++)
        p->positions[i] = (by_id ? p->in.ids[i] != before : p->in.mask[i]) ? ++last : before;
}

/* Computes the positions of the tokens of a sequence: from the caller, or by the family's rule. */
static void fill_sequence(const mha_model *m, mha__batch *p, int64_t b)
{
    const int64_t L = p->in.length, past = mha__batch_past(p, b), first = mha__batch_first(p, b);
    const int64_t end = p->in.starts ? p->in.starts[b + 1] : first + L;
    const mha__position_rule rule = m->config.family->position_rule;
    for (int64_t i = first; i < end; i++) {
        const bool padding = p->in.cache && i - first >= p->lengths[b]; /* the position may exceed the table */
        p->positions[i] = p->in.positions ? p->in.positions[i] : padding ? 0 : (int32_t)(past + i - first);
        p->positions[i] += mha__first_position(m->config.family);
    }
    const bool counted = rule == MHA__POSITIONS_AFTER_PAD
                             ? p->in.ids != NULL
                             : rule == MHA__POSITIONS_OF_REAL && p->in.mask && !p->in.cache;
    if (counted && !p->in.positions) count_tokens(m, p, first, end);
}

static void fill_positions(const mha_model *m, mha__batch *p)
{
    const int64_t L = p->in.length;
    if (p->zeros) memset(p->zeros, 0, (size_t)(p->in.batch * L) * sizeof *p->zeros);
    for (int64_t b = 0; b < p->in.batch; b++)
        p->lengths[b] = p->in.mask ? leading_ones(p->in.mask + b * L, L) : L;
    if (p->in.shard) {
        mha__shard_fill(m, p);
        return;
    }
    for (int64_t b = 0; b < p->sequences; b++)
        fill_sequence(m, p, b);
    for (int64_t b = 0; p->past && b < p->sequences; b++)
        p->past[b] = mha__batch_past(p, b);
}

/* Computes the angles of one rotation for each sequence separately, since some rotations depend on the length of the
 * sequence. A shard has an additional row at the last position of the sequence, so that the length is known. */
static mha_status fill_angles(const mha__batch *p, const mha_rope_options *rope, float *cos, float *sin, mha_error *err)
{
    const int64_t L = p->in.length, pairs = rope->rotary_dim / 2;
    for (int64_t b = 0; cos && b < p->sequences; b++) {
        const int64_t first = mha__batch_first(p, b), at = first * pairs;
        const int64_t all = p->in.starts ? p->in.starts[b + 1] - first : L;
        const int64_t rows = p->right_padded && !p->in.starts ? p->lengths[b] : all;
        for (int64_t i = 0; i < rows; i++)
            p->turns[i] = p->positions[first + i];
        if (p->in.shard) p->turns[rows] = p->shard_end;
        MHA__TRY(mha_rope_angles(rope, p->turns, rows + (p->in.shard != NULL), cos + at, sin + at, err));
        memset(cos + at + rows * pairs, 0, (size_t)((all - rows) * pairs) * sizeof *cos);
        memset(sin + at + rows * pairs, 0, (size_t)((all - rows) * pairs) * sizeof *sin);
    }
    return MHA_OK;
}

mha_status mha__batch_fill(const mha_model *m, mha__batch *batch, mha_error *err)
{
    const mha__config *c = &m->config;
    fill_positions(m, batch);
    MHA__TRY(fill_angles(batch, &c->rope, batch->angles[0].cos, batch->angles[0].sin, err));
    return fill_angles(batch, &c->local_rope, batch->angles[1].cos, batch->angles[1].sin, err);
}

static mha_status add_positions(const mha_model *m, const mha__batch *p, float *x, mha_error *err)
{
    if (!m->positions.weight) return MHA_OK;
    return mha_embedding_forward("positions", m->positions.weight, m->config.position_rows, m->config.position_width,
                                 p->positions, p->in.batch * p->in.length, 1, x, err);
}

/* Adds the embeddings in the same order as Hugging Face transformers, so that the sums are bitwise identical. */
mha_status mha__batch_embed(const mha_model *m, const mha__batch *p, float *x, mha_error *err)
{
    const int64_t rows = p->in.batch * p->in.length, width = m->config.embed_width;
    const int32_t *types = p->in.type_ids ? p->in.type_ids : p->zeros;
    const float scale = m->config.embed_scale;
    if (m->config.channels)
        MHA__TRY(mha__image_embed(m, p->in.pixels, p->sequences, p->patches, x, err));
    else if (m->convolution[0])
        MHA__TRY(mha__stem_forward(m, &p->in, x, err));
    else
        MHA__TRY(mha__words_forward(m, p->in.ids, rows, x, err));
    for (int64_t i = 0; scale != 1 && i < rows * width; i++)
        x[i] *= scale;
    if (m->types.weight)
        MHA__TRY(
            mha_embedding_forward("type_ids", m->types.weight, m->config.type_vocab, width, types, rows, 1, x, err));
    return m->config.positions_late ? MHA_OK : add_positions(m, p, x, err);
}

mha_status mha__batch_map(const mha_model *m, const mha__batch *p, const float *x, float *y, mha_error *err)
{
    MHA__TRY(mha_linear_forward(m->embed_map, x, p->in.batch * p->in.length, y, err));
    return m->config.positions_late ? add_positions(m, p, y, err) : MHA_OK;
}
