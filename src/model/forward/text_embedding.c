/* text_embedding.c - computes one vector per text.
 *
 * Texts are read WINDOW at a time and run in packed batches, so that no padding is computed. The vector of a text does
 * not depend on other texts, since rows and sums depend only on its own tokens. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "model/forward/pooler_logits.h"
#include "model/model_text.h"
#include "model/weights/sentence_modules.h"
#include <string.h>

enum {
    WINDOW = 256,        /* texts in memory at a time */
    BATCH_TOKENS = 2048, /* tokens per batch, or one longer text; the activations then nearly fit in the caches */
};

/* ---- pooling ---- */

static void mean(const float *hidden, int64_t length, int64_t width, float *out)
{
    for (int64_t e = 0; e < width; e++) {
        double sum = 0;
        for (int64_t t = 0; t < length; t++)
            sum += (double)hidden[t * width + e];
        out[e] = (float)(sum / (double)length);
    }
}

static void pool(const mha_embed_options *o, const float *hidden, int64_t length, int64_t width, float *out)
{
    if (o->pool == MHA_POOL_CLS)
        memcpy(out, hidden, (size_t)width * sizeof *out);
    else
        mean(hidden, length, width, out);
}

typedef struct buffers {
    int32_t *ids, *type_ids;
    int64_t *starts; /* [WINDOW + 1] */
    float *hidden;
    float *pooled, *room; /* [hidden] a vector before the dense layers; [mha__sentence_room] */
} buffers;

/* Computes the vector of a text from b->pooled. */
static mha_status finish(const mha_model *m, const mha_embed_options *o, const buffers *b, float *out, mha_error *err)
{
    MHA__TRY(mha__sentence_dense(m, b->pooled, b->room, out, err));
    if (!o->no_normalize) mha__head_normalize(out, 1, m->info.embedding_width);
    return MHA_OK;
}

/* ---- forward pass of one batch ---- */

/* Returns true if the caller's function pool_long computes the embedding of this text. */
static bool is_long(const mha_embed_options *o, const mha_encoding *tokens)
{
    return o->pool_long && tokens->count > o->long_tokens;
}

/* Returns how many of the first texts fit in one batch: at least one. A text that is longer than a batch runs alone. */
static int64_t batch_size(const mha_embed_options *o, mha_encoding *const *tokens, int64_t count)
{
    int64_t n = 1, total = tokens[0]->count;
    while (n < count && !is_long(o, tokens[0]) && !is_long(o, tokens[n]) && total + tokens[n]->count <= BATCH_TOKENS)
        total += tokens[n++]->count;
    return n;
}

static mha_status run_long(const mha_model *m, const mha_embed_options *o, const mha_encoding *tokens, const buffers *b,
                           float *out, mha_error *err)
{
    const mha_model_input input = {
        .size = sizeof input, .batch = 1, .length = tokens->count, .ids = tokens->ids, .type_ids = tokens->type_ids};
    MHA__TRY(o->pool_long(o->user, &input, o->pool, b->pooled, err));
    return finish(m, o, b, out, err);
}

/* Computes the vectors of CLIP: the projections of the pooled tokens. */
static mha_status run_pooled(const mha_model *m, const mha_embed_options *o, const mha_model_input *input, float *room,
                             float *out, mha_error *err)
{
    const mha_model_output output = {.size = sizeof output, .pooled = m->projection ? room : out};
    MHA__TRY(mha_model_forward(m, input, &output, err));
    if (m->projection) MHA__TRY(mha_linear_forward(m->projection, room, input->batch, out, err));
    if (!o->no_normalize) mha__head_normalize(out, input->batch, m->info.embedding_width);
    return MHA_OK;
}

static mha_status run_batch(const mha_model *m, const mha_embed_options *o, mha_encoding *const *tokens, int64_t count,
                            const buffers *b, float *out, mha_error *err)
{
    const int64_t width = m->config.hidden;
    b->starts[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        const size_t bytes = (size_t)tokens[i]->count * sizeof *b->ids;
        memcpy(b->ids + b->starts[i], tokens[i]->ids, bytes);
        memcpy(b->type_ids + b->starts[i], tokens[i]->type_ids, bytes);
        b->starts[i + 1] = b->starts[i] + tokens[i]->count;
    }
    const mha_model_input input = {
        .size = sizeof input, .batch = count, .ids = b->ids, .type_ids = b->type_ids, .starts = b->starts};
    const mha_model_output output = {.size = sizeof output, .last_hidden = b->hidden};
    if (m->config.family->pools) return run_pooled(m, o, &input, b->hidden, out, err);
    MHA__TRY(mha_model_forward(m, &input, &output, err));
    for (int64_t i = 0; i < count; i++) {
        pool(o, b->hidden + b->starts[i] * width, tokens[i]->count, width, b->pooled);
        MHA__TRY(finish(m, o, b, out + i * m->info.embedding_width, err));
    }
    return MHA_OK;
}

/* ---- processing of one window ---- */

typedef struct embedding {
    const mha_model *model;
    mha_embed_options options;
    int64_t total; /* number of texts in the whole call */
    float *out;
    mha_encoding *tokens[WINDOW];
    buffers buffers;
} embedding;

static mha_status encode(embedding *e, const char *const *texts, int64_t first, int64_t count, mha_error *err)
{
    for (int64_t i = 0; i < count; i++) {
        const mha__text text = {texts[first + i], first + i, e->total};
        MHA__TRY(mha__text_encode(e->model, &text, 0, &e->tokens[i], err));
        if (e->tokens[i]->count < 1)
            return mha__fail(err, MHA_ERR_ARG, "text %lld of %lld must have tokens", (long long)text.index + 1,
                             (long long)text.count);
    }
    return MHA_OK;
}

static mha_status run_window(embedding *e, const char *const *texts, int64_t first, int64_t count, mha_error *err)
{
    MHA__TRY(encode(e, texts, first, count, err));
    for (int64_t i = 0, n; i < count; i += n) {
        n = batch_size(&e->options, e->tokens + i, count - i);
        float *out = e->out + (first + i) * e->model->info.embedding_width;
        if (is_long(&e->options, e->tokens[i]))
            MHA__TRY(run_long(e->model, &e->options, e->tokens[i], &e->buffers, out, err));
        else
            MHA__TRY(run_batch(e->model, &e->options, e->tokens + i, n, &e->buffers, out, err));
        MHA__TRY(mha__progress(e->model->ctx, "embed", first + i + n, e->total, err));
    }
    return MHA_OK;
}

static void release(embedding *e)
{
    for (int64_t i = 0; i < WINDOW; i++) {
        mha_encoding_free(e->tokens[i]);
        e->tokens[i] = NULL;
    }
}

static embedding *lay_out(mha__arena *arena, const mha_model *m, const mha_embed_options *o, buffers *b)
{
    const int64_t longest =
        o->pool_long ? mha__min64(o->long_tokens, m->config.max_positions) : m->config.max_positions;
    const size_t cells = (size_t)mha__max64(BATCH_TOKENS, longest);
    embedding *e = mha__take(arena, 1, sizeof *e);
    b->ids = mha__take(arena, cells, sizeof *b->ids);
    b->type_ids = mha__take(arena, cells, sizeof *b->type_ids);
    b->starts = mha__take(arena, WINDOW + 1, sizeof *b->starts);
    b->hidden = mha__take(arena, cells, (size_t)m->config.hidden * sizeof *b->hidden);
    b->pooled = mha__take(arena, (size_t)m->config.hidden, sizeof *b->pooled);
    b->room = mha__take(arena, (size_t)mha__sentence_room(m), sizeof *b->room);
    return e;
}

/* Allocates the object and the buffers of the largest batch in one block. */
static embedding *create(const mha_model *m, const mha_embed_options *o, mha_error *err)
{
    mha__arena arena = {0};
    buffers b;
    lay_out(&arena, m, o, &b);
    arena.base = arena.overflow ? NULL : mha__alloc(m->ctx, arena.used);
    if (!arena.base) {
        mha__no_memory(err, arena.used, "the buffers of text embeddings");
        return NULL;
    }
    arena.used = 0;
    embedding *e = lay_out(&arena, m, o, &b);
    *e = (embedding){.model = m, .options = *o, .buffers = b};
    return e;
}

mha_status mha_model_embed(const mha_model *model, const char *const *texts, int64_t count,
                           const mha_embed_options *options, float *out, mha_error *err)
{
    mha_embed_options o;
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_embed_options", err));
    if (count < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_embed: count must be at least 0 (got %lld)", (long long)count);
    if (!model || (count && (!texts || !out)))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_embed: model, texts and out must not be NULL");
    MHA__TRY(mha__model_reads_ids(model, "mha_model_embed: model", err));
    if (model->config.family->pools && (o.pool || o.pool_long))
        return mha__fail(err, MHA_ERR_ARG, "mha_embed_options: pool and pool_long must be 0 and NULL for %s",
                         model->info.family);
    if (!model->packed)
        return mha__fail(err, MHA_ERR_ARG, "model must have weights (got a model opened with no_weights)");
    if (!model->tokenizer)
        return mha__fail(err, MHA_ERR_ARG, "model must have a tokenizer (got a model opened with no_tokenizer)");
    if (o.pool != MHA_POOL_MEAN && o.pool != MHA_POOL_CLS)
        return mha__fail(err, MHA_ERR_ARG, "mha_embed_options: pool must be a value of mha_pool (got %d)", (int)o.pool);
    MHA__TRY(mha__sentence_check(model, err));
    embedding *e = create(model, &o, err);
    if (!e) return MHA_ERR_MEMORY;
    e->total = count;
    e->out = out;
    mha_status status = MHA_OK;
    for (int64_t first = 0; first < count && status == MHA_OK; first += WINDOW) {
        status = run_window(e, texts, first, mha__min64(WINDOW, count - first), err);
        release(e);
    }
    mha__free(model->ctx, e);
    return status;
}
