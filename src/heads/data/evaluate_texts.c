/* evaluate_texts.c - runs batches of texts through a model and stores the results in the order of the texts. */
#include "heads/data/evaluate_texts.h"

#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "heads/data/head_data.h"
#include "heads/data/partial_forward.h"
#include "layer/loss/logits_softmax.h"
#include "math/linalg.h"
#include "model/forward/pooler_logits.h"
#include <math.h>
#include <string.h>

enum { PIECE = 64 }; /* maximum number of tokens whose logits are in memory at the same time */

static void lay_out(mha__arena *arena, mha__outcome *o)
{
    const mha__config *c = &o->model->config;
    const size_t texts = (size_t)mha_head_data_count(o->data), width = (size_t)c->hidden;
    const size_t rows = (size_t)mha__head_data_batch_tokens(o->data),
                 some = (size_t)mha__head_data_batch_texts(o->data);
    o->embeddings = mha__take(arena, texts, width * sizeof *o->embeddings);
    o->losses = mha__take(arena, texts, sizeof *o->losses);
    o->hidden = mha__take(arena, rows, width * sizeof *o->hidden);
    o->logits = mha__take(arena, o->predicts ? PIECE : 0, (size_t)c->vocab * sizeof *o->logits);
    o->room = mha__take(arena, o->predicts ? PIECE : 0, width * sizeof *o->room);
    o->gates = mha__take(arena, (size_t)o->sets.total, some * sizeof *o->gates);
}

mha_status mha__outcome_create(const mha_model *model, const mha_head_data *data, mha__outcome *o, mha_error *err)
{
    mha__arena arena = {0};
    *o = (mha__outcome){.model = model,
                        .data = data,
                        .predicts = model->info.causal && model->info.logits,
                        .sets = mha__head_sets_of(model)};
    MHA__TRY(mha__head_data_no_images(data, err));
    MHA__TRY(mha__head_data_matches(model, data, err));
    lay_out(&arena, o);
    o->memory = arena.base = arena.overflow ? NULL : mha__alloc(model->ctx, arena.used);
    if (!arena.base)
        return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the embeddings and losses of texts");
    arena.used = 0;
    lay_out(&arena, o);
    memset(o->losses, 0, (size_t)mha_head_data_count(data) * sizeof *o->losses);
    return MHA_OK;
}

void mha__outcome_free(mha__outcome *o)
{
    if (o->memory) mha__free(o->model->ctx, o->memory);
    *o = (mha__outcome){0};
}

/* ---- results of one text ---- */

static void embed(const float *hidden, int64_t rows, int64_t width, double *out)
{
    for (int64_t e = 0; e < width; e++) {
        double sum = 0;
        for (int64_t i = 0; i < rows; i++)
            sum += (double)hidden[i * width + e];
        out[e] = sum / (double)rows;
    }
}

static mha_status predict(const mha__outcome *o, const float *hidden, const int32_t *ids, int64_t rows, double *loss,
                          mha_error *err)
{
    const mha_model *m = o->model;
    const mha__kernels *kernels = mha__kernels_f32(mha__ctx_isa(m->ctx));
    *loss = 0;
    for (int64_t at = 0; at + 1 < rows; at += PIECE) {
        const int64_t n = mha__min64(PIECE, rows - 1 - at);
        const float *x = NULL;
        MHA__TRY(mha__head_input(m, n, hidden + at * m->config.hidden, o->room, &x, err));
        MHA__TRY(mha__head_logits(m, n, x, o->logits, err));
        for (int64_t i = 0; i < n; i++) {
            float top;
            const float *row = o->logits + i * m->config.vocab;
            const double sum = mha__exponentials(kernels, m->config.vocab, row, &top, NULL);
            *loss += log(sum) + (double)top - (double)row[ids[at + i + 1]];
        }
    }
    return MHA_OK;
}

/* ---- forward pass of one batch ---- */

/* Copies the gates [layers, H] of a kind for each text of a batch, to o->gates; returns the copies [layers, texts,
 * H]. */
static const float *spread_gates(const mha__outcome *o, mha_head_kind kind, const float *gates, int64_t texts)
{
    const mha__head_set *set = &o->sets.set[kind];
    float *to = o->gates + set->first * texts;
    for (int64_t l = 0; gates && l < set->layers; l++)
        for (int64_t b = 0; b < texts; b++)
            memcpy(to + (l * texts + b) * set->heads, gates + set->first + l * set->heads,
                   (size_t)set->heads * sizeof *gates);
    return gates ? to : NULL;
}

static const float *fills_of(const mha__outcome *o, mha_head_kind kind, const float *fills)
{
    return fills ? fills + o->sets.set[kind].cell : NULL;
}

/* Prepares the input of a batch, with its gates and fills; `source` receives that of the encoder. */
static mha_status begin_batch(const mha__outcome *o, int64_t batch, const float *gates, const float *fills,
                              mha_model_input *input, mha_model_input *source, const int64_t **texts, mha_error *err)
{
    MHA__TRY(mha__head_data_any(o->data, batch, input, texts, err));
    input->gates = spread_gates(o, MHA_HEADS_OWN, gates, input->batch);
    input->fills = fills_of(o, MHA_HEADS_OWN, fills);
    input->first_layer = o->layer;
    input->hidden = o->layer ? o->stream : NULL;
    if (!input->source) return MHA_OK;
    *source = *input->source;
    input->source = source;
    input->cross_gates = spread_gates(o, MHA_HEADS_CROSS, gates, input->batch);
    input->cross_fills = fills_of(o, MHA_HEADS_CROSS, fills);
    source->gates = spread_gates(o, MHA_HEADS_ENCODER, gates, input->batch);
    source->fills = fills_of(o, MHA_HEADS_ENCODER, fills);
    return MHA_OK;
}

mha_status mha__outcome_batch(const mha__outcome *o, int64_t batch, const float *gates, const float *fills,
                              mha_error *err)
{
    mha_model_input input, source;
    const int64_t *texts, width = o->model->config.hidden;
    const mha_model_output output = {.size = sizeof output, .last_hidden = o->hidden};
    MHA__TRY(begin_batch(o, batch, gates, fills, &input, &source, &texts, err));
    MHA__TRY(mha_model_forward(o->model, &input, &output, err));
    for (int64_t b = 0; b < input.batch; b++) {
        const int64_t first = input.starts[b], rows = input.starts[b + 1] - first;
        embed(o->hidden + first * width, rows, width, o->embeddings + texts[b] * width);
        if (o->predicts)
            MHA__TRY(predict(o, o->hidden + first * width, input.ids + first, rows, &o->losses[texts[b]], err));
    }
    return MHA_OK;
}

/* ---- starting runs at a later layer ---- */

typedef struct advance {
    float *to;
    int64_t numbers, entry;
    bool done;
} advance;

static int on_hidden(void *user, int64_t entry, const float *x)
{
    advance *a = user;
    if (entry != a->entry) return 0;
    memcpy(a->to, x, (size_t)a->numbers * sizeof *x);
    a->done = true;
    return 1;
}

mha_status mha__outcome_advance(mha__outcome *o, int64_t batch, const float *gates, const float *fills, mha_error *err)
{
    mha_model_input input, source;
    const int64_t *texts;
    advance a = {.to = o->stream, .entry = o->layer + 1};
    const mha_model_output output = {.size = sizeof output, .on_hidden = on_hidden, .user = &a};
    MHA__TRY(begin_batch(o, batch, gates, fills, &input, &source, &texts, err));
    a.numbers = input.starts[input.batch] * o->model->config.hidden;
    MHA__TRY(mha__forward_until(o->model, &input, &output, &a.done, err));
    o->layer++;
    return MHA_OK;
}

double mha__cosine(int64_t width, const double *a, const double *b)
{
    const double aa = mha__dot(width, a, a), bb = mha__dot(width, b, b);
    if (aa == 0 || bb == 0) return aa == bb;
    return mha__dot(width, a, b) / sqrt(aa * bb);
}
