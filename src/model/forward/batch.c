/* batch.c - checks token ids and prepares the input of the first layer.
 *
 * Padding at the end of a sequence becomes a length; any other mask becomes the operator's keep mask, with bitwise
 * identical results. */
#include "model/forward/batch.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "model/forward/model_cache.h"
#include <math.h>
#include <string.h>

/* ---- input ---- */

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

/* Returns the number of cached tokens of sequence b of the call. */
static int64_t past_of(const mha__batch *p, int64_t b)
{
    if (!p->in.cache) return 0;
    return mha_model_cache_length(p->in.cache, p->in.batch == 1 ? p->in.sequence : b);
}

/* Checks that every sequence has room for its new tokens, so that no layer fails after others have stored theirs. */
static mha_status check_cache(const mha_model *m, const mha__batch *p, int64_t most, mha_error *err)
{
    const mha_model_cache *c = p->in.cache;
    if (!c) return MHA_OK;
    if (c->model != m) return mha__fail(err, MHA_ERR_ARG, "mha_model_input: cache must be one of this model");
    if (p->in.batch == 1 && (p->in.sequence < 0 || p->in.sequence >= c->batch))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_input: sequence must be below the cache's %lld sequences (got %lld)",
                         (long long)c->batch, (long long)p->in.sequence);
    if (c->batch != p->in.batch && p->in.batch != 1)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: batch must be 1 or the cache's %lld sequences (got %lld)",
                         (long long)c->batch, (long long)p->in.batch);
    if (!p->right_padded)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: mask must be ones, then zeros, with cache");
    for (int64_t b = 0; b < p->in.batch; b++) {
        const int64_t L = p->in.length, past = past_of(p, b);
        const int64_t fresh = p->in.mask ? leading_ones(p->in.mask + b * L, L) : L;
        if (past + fresh > c->tokens || past + fresh > most)
            return mha__fail(err, MHA_ERR_ARG,
                             "sequence %lld: number of tokens must be at most %lld, including those in the cache (got "
                             "%lld after %lld)",
                             (long long)b, (long long)(c->tokens < most ? c->tokens : most), (long long)fresh,
                             (long long)past);
    }
    return MHA_OK;
}

/* Concatenates packed sequences into one row of tokens. */
static mha_status read_starts(mha__batch *p, int64_t most, mha_error *err)
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
        if (starts[b + 1] <= starts[b] || starts[b + 1] - starts[b] > most || starts[b + 1] > INT32_MAX)
            return mha__fail(err, MHA_ERR_ARG,
                             "mha_model_input: sequence %lld must have 1 to %lld tokens (got tokens %lld to %lld)",
                             (long long)b, (long long)most, (long long)starts[b], (long long)starts[b + 1]);
    p->in.length = starts[p->in.batch];
    p->in.batch = 1;
    return MHA_OK;
}

/* Checks the hidden states and the layer that the pass starts from. */
static mha_status check_hidden(const mha_model *m, const mha_model_input *in, mha_error *err)
{
    if (!in->hidden && in->first_layer != 0)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_input: hidden must not be NULL with first_layer = %lld: it holds the states",
                         (long long)in->first_layer);
    if (in->first_layer < 0 || in->first_layer >= m->config.layers)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: first_layer must be from 0 to %lld (got %lld)",
                         (long long)m->config.layers - 1, (long long)in->first_layer);
    if (in->context && (!in->hidden || in->cache))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: context %s",
                         in->cache ? "with a cache" : "without hidden");
    if (in->cache && in->first_layer > 0)
        return mha__fail(
            err, MHA_ERR_ARG,
            "mha_model_input: first_layer must be 0 with cache, whose lower layers would lack these tokens (got %lld)",
            (long long)in->first_layer);
    if (!in->ids && !in->hidden) return mha__fail(err, MHA_ERR_ARG, "mha_model_input: ids must not be NULL");
    return MHA_OK;
}

/* Checks the token types. A model without a type table has one type, 0, which tokenizers assign to every token of a
 * text. */
static mha_status check_types(const mha_model *m, const mha_model_input *in, mha_error *err)
{
    for (int64_t i = 0; in->type_ids && !in->hidden && !m->types.weight && i < in->batch * in->length; i++)
        if (in->type_ids[i] != 0)
            return mha__fail(err, MHA_ERR_ARG,
                             "mha_model_input: type_ids[%lld] must be 0: %s has no token types (got %d)", (long long)i,
                             m->info.family, in->type_ids[i]);
    return MHA_OK;
}

static mha_status check_input(const mha_model *m, const mha__batch *p, int64_t most, mha_error *err)
{
    size_t bytes = 0;
    if (!m->packed) return mha__fail(err, MHA_ERR_ARG, "model must have weights (opened with no_weights)");
    if (p->in.batch < 1)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: batch must be at least 1 (got %lld)",
                         (long long)p->in.batch);
    if (p->in.length < 1 || (p->in.length > most && !p->in.starts))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: length must be from 1 to %lld (got %lld)", (long long)most,
                         (long long)p->in.length);
    MHA__TRY(check_hidden(m, &p->in, err));
    MHA__TRY(mha__model_single_heads(m, p->in.gates ? "gates" : p->in.fills ? "fills" : NULL, err));
    if (!mha__bytes((int64_t[]){p->in.batch, p->in.length, m->config.hidden}, 3, 2 * sizeof(float), &bytes))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: batch must fit in memory (got %lld)",
                         (long long)p->in.batch);
    return check_types(m, &p->in, err);
}

mha_status mha__batch_read(const mha_model *m, mha__batch *batch, const mha_model_input *input, mha_error *err)
{
    const int64_t most = m->positions.weight ? m->config.max_positions : INT32_MAX;
    MHA__TRY(mha__options_read(&batch->in, sizeof batch->in, input, "mha_model_input", err));
    MHA__TRY(read_starts(batch, most, err));
    MHA__TRY(check_input(m, batch, most, err));
    batch->right_padded = is_right_padded(&batch->in);
    return check_cache(m, batch, most, err);
}

/* ---- arrays ---- */

void mha__batch_lay_out(mha__arena *arena, const mha_model *m, mha__batch *p)
{
    const size_t batch = (size_t)p->in.batch, rows = batch * (size_t)p->in.length;
    p->positions = mha__take(arena, rows, sizeof *p->positions);
    p->zeros = p->in.type_ids ? NULL : mha__take(arena, rows, sizeof *p->zeros);
    p->lengths = mha__take(arena, batch, sizeof *p->lengths);
    if (!m->config.rope.head_dim) return;
    const size_t pairs = (size_t)m->config.rope.rotary_dim / 2;
    p->turns = mha__take(arena, rows / batch, sizeof *p->turns);
    p->cos = mha__take(arena, rows, pairs * sizeof *p->cos);
    p->sin = mha__take(arena, rows, pairs * sizeof *p->sin);
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
                                 .cos = p->cos,
                                 .sin = p->sin};
    if (p->in.mask && p->right_padded) p->layer.lengths = lengths;
    if (!p->in.mask || p->right_padded) return;
    p->layer.keep = (mha_cview){p->in.mask, {p->in.length, 0, 0, 1}};
    p->layer.real = p->in.mask;
}

int64_t mha__batch_map_rows(const mha__batch *p)
{
    int64_t most = p->in.starts ? 0 : p->in.length;
    for (int64_t b = 0; p->in.starts && b < p->sequences; b++)
        most = mha__max64(most, p->in.starts[b + 1] - p->in.starts[b]);
    return most;
}

int64_t mha__batch_map_keys(const mha__batch *p)
{
    int64_t past = 0;
    for (int64_t b = 0; b < p->sequences; b++)
        past = mha__max64(past, past_of(p, b));
    return past + mha__batch_map_rows(p);
}

void mha__batch_turn(mha__batch *p, const mha_model *m, int64_t layer)
{
    const int64_t heads = m->config.heads, width = heads * m->config.head_dim;
    p->layer.context = layer == p->in.first_layer ? p->in.context : NULL;
    if (p->in.fills) p->layer.fills = p->in.fills + layer * width;
    if (p->in.cache) p->layer.cache = p->in.cache->layer[layer];
    if (p->in.gates) p->layer.gates = (mha_cview){p->in.gates + layer * p->sequences * heads, {heads, 1}};
}

static void fill_positions(mha__batch *p)
{
    const int64_t L = p->in.length;
    if (p->zeros) memset(p->zeros, 0, (size_t)(p->in.batch * L) * sizeof *p->zeros);
    for (int64_t b = 0; b < p->in.batch; b++) {
        const int64_t past = past_of(p, b);
        p->lengths[b] = p->in.mask ? leading_ones(p->in.mask + b * L, L) : L;
        for (int64_t i = 0; i < L; i++) {
            const int64_t next = p->in.cache && i >= p->lengths[b] ? 0 : past + i; /* padding may lie past the end */
            p->positions[b * L + i] = p->in.positions ? p->in.positions[b * L + i] : (int32_t)next;
        }
    }
    for (int64_t n = 0; p->in.starts && !p->in.positions && n < p->sequences; n++)
        for (int64_t i = p->in.starts[n]; i < p->in.starts[n + 1]; i++)
            p->positions[i] = (int32_t)(i - p->in.starts[n]);
}

/* Computes the angles of each sequence separately: rotation that depends on the length uses the length of that
 * sequence. */
static mha_status fill_angles(const mha_model *m, const mha__batch *p, mha_error *err)
{
    const int64_t L = p->in.length, pairs = m->config.rope.rotary_dim / 2;
    for (int64_t b = 0; p->cos && b < p->sequences; b++) {
        const int64_t first = mha__batch_first(p, b), at = first * pairs;
        const int64_t all = p->in.starts ? p->in.starts[b + 1] - first : L;
        const int64_t rows = p->right_padded && !p->in.starts ? p->lengths[b] : all;
        for (int64_t i = 0; i < rows; i++)
            p->turns[i] = p->positions[first + i];
        MHA__TRY(mha_rope_angles(&m->config.rope, p->turns, rows, p->cos + at, p->sin + at, err));
        memset(p->cos + at + rows * pairs, 0, (size_t)((all - rows) * pairs) * sizeof *p->cos);
        memset(p->sin + at + rows * pairs, 0, (size_t)((all - rows) * pairs) * sizeof *p->sin);
    }
    return MHA_OK;
}

mha_status mha__batch_fill(const mha_model *m, mha__batch *batch, mha_error *err)
{
    fill_positions(batch);
    return fill_angles(m, batch, err);
}

/* The embeddings are added in the order of transformers, for bitwise identical sums. */
mha_status mha__batch_embed(const mha_model *m, const mha__batch *p, float *x, mha_error *err)
{
    const int64_t rows = p->in.batch * p->in.length, width = m->config.hidden;
    const int32_t *types = p->in.type_ids ? p->in.type_ids : p->zeros;
    const float scale = sqrtf((float)width);
    MHA__TRY(mha_embedding_forward("token id", m->words.weight, m->config.vocab, width, p->in.ids, rows, 0, x, err));
    if (m->types.weight)
        MHA__TRY(
            mha_embedding_forward("token type", m->types.weight, m->config.type_vocab, width, types, rows, 1, x, err));
    if (m->positions.weight)
        MHA__TRY(mha_embedding_forward("position", m->positions.weight, m->config.max_positions, width, p->positions,
                                       rows, 1, x, err));
    for (int64_t i = 0; m->config.family->embed_scaled && i < rows * width; i++)
        x[i] *= scale;
    return MHA_OK;
}

int64_t mha__batch_first(const mha__batch *p, int64_t b)
{
    return p->in.starts ? p->in.starts[b] : b * p->in.length;
}

int64_t mha__batch_last(const mha__batch *p, int64_t b)
{
    const int64_t first = mha__batch_first(p, b);
    int64_t last = p->in.starts ? p->in.starts[b + 1] - 1 : first + p->in.length - 1;
    while (p->in.mask && last > first && !p->in.mask[last])
        last--;
    return last;
}
