/* ablation.c - runs the forward passes of an ablation: one of the whole model, then passes with heads switched off. */
#include "heads/importance/ablation.h"

#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "heads/data/partial_forward.h"
#include <string.h>

/* ---- memory ---- */

static void lay_out_stream(mha__arena *arena, const mha__ablation *a, size_t tokens, mha__stream *s)
{
    const size_t width = (size_t)a->info->hidden, wide = (size_t)(a->info->heads * a->info->head_dim);
    s->hidden = mha__take(arena, tokens, width * sizeof *s->hidden);
    s->next = mha__take(arena, tokens, width * sizeof *s->next);
    s->context = mha__take(arena, tokens, wide * sizeof *s->context);
}

static void lay_out(mha__arena *arena, mha__ablation *a, size_t texts, size_t tokens, bool two)
{
    const size_t width = (size_t)a->info->hidden, wide = (size_t)(a->info->heads * a->info->head_dim);
    const size_t max = (size_t)a->max, chunk = (size_t)mha__ablation_chunk(a), vocab = (size_t)a->info->logit_width;
    const bool logits = a->measure == MHA__ABLATION_TOKENS;
    lay_out_stream(arena, a, tokens, &a->base);
    if (two) lay_out_stream(arena, a, tokens, &a->other);
    a->changed = mha__take(arena, max, wide * sizeof *a->changed);
    a->last = mha__take(arena, max, width * sizeof *a->last);
    a->logits = logits ? mha__take(arena, chunk, vocab * sizeof *a->logits) : NULL;
    a->room = logits ? mha__take(arena, chunk, 2 * width * sizeof *a->room) : NULL;
    a->unit = logits ? NULL : mha__take(arena, texts, width * sizeof *a->unit);
    a->full = a->measure == MHA__ABLATION_DISTANCE ? mha__take(arena, texts, width * sizeof *a->full) : NULL;
    a->value = mha__take(arena, texts, sizeof *a->value);
    a->whole = mha__take(arena, texts, sizeof *a->whole);
}

mha_status mha__ablation_create(mha__ablation *a, int64_t texts, int64_t tokens, bool two, mha_error *err)
{
    mha__arena arena = {0};
    a->max = mha__packer_room(a->packer);
    lay_out(&arena, a, (size_t)texts, (size_t)tokens, two);
    arena.base = a->memory = arena.overflow ? NULL : mha__alloc(a->ctx, arena.used);
    if (!a->memory) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the buffers of an ablation");
    arena.used = 0;
    lay_out(&arena, a, (size_t)texts, (size_t)tokens, two);
    return MHA_OK;
}

void mha__ablation_free(mha__ablation *a)
{
    mha__free(a->ctx, a->memory);
}

/* ---- forward pass of one batch ---- */

/* The results that callbacks copy from a forward pass. The pass stops once they are copied. */
typedef struct taker {
    float *hidden; /* [cells] hidden states with index `entry` */
    float *context;
    int64_t entry, layer, cells; /* cells: number of elements of `hidden` */
    bool ends;                   /* true = stop after `hidden` is copied, since later results are not needed */
    bool done;
} taker;

static int take_hidden(void *user, int64_t entry, const float *x)
{
    taker *t = user;
    if (entry != t->entry) return 0;
    memcpy(t->hidden, x, (size_t)t->cells * sizeof *x);
    t->done = t->ends;
    return t->done;
}

static int take_context(void *user, const mha_model_activations *a)
{
    taker *t = user;
    if (a->layer != t->layer) return 0;
    memcpy(t->context, a->context, (size_t)(a->rows * a->heads * a->head_dim) * sizeof *a->context);
    t->done = true;
    return 1;
}

/* Copies the context of a batch, whose rows begin at row `at` of the stream, and replaces the outputs of the heads
 * `off` by their means or by 0. */
static void change(const mha__ablation *a, const mha__stream *s, int64_t at, int64_t rows, const int64_t *off,
                   int64_t count)
{
    const int64_t D = a->info->head_dim, wide = a->info->heads_per_layer[s->layer] * D;
    memcpy(a->changed, s->context + at * wide, (size_t)(rows * wide) * sizeof *a->changed);
    for (int64_t n = 0; n < count; n++) {
        const double *mean = a->means ? a->means + (s->layer * a->info->heads + off[n]) * D : NULL;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t d = 0; d < D; d++)
                a->changed[r * wide + off[n] * D + d] = mean ? (float)mean[d] : 0;
    }
}

static mha_model_input input_at(const mha__ablation *a, const mha__stream *s, const mha__packed *batch, int64_t at)
{
    mha_model_input in = batch->input;
    in.first_layer = s->layer;
    in.hidden = s->hidden + at * a->info->hidden;
    return in;
}

/* ---- passes over a group of texts ---- */

/* Computes the context of a stream from its hidden states. */
static mha_status find_context(mha__ablation *a, mha__stream *s, mha_error *err)
{
    const int64_t wide = a->info->heads_per_layer[s->layer] * a->info->head_dim;
    mha__packed batch;
    mha__packer_begin(a->packer, a->text, a->texts);
    for (int64_t at = 0; mha__packer_next(a->packer, &batch); at += batch.tokens) {
        taker t = {.context = s->context + at * wide, .layer = s->layer};
        const mha_model_input in = input_at(a, s, &batch, at);
        const mha_model_output out = {.size = sizeof out, .on_activations = take_context, .user = &t};
        MHA__TRY(mha__forward_until(a->model, &in, &out, &t.done, err));
    }
    return MHA_OK;
}

mha_status mha__ablation_begin(mha__ablation *a, const int64_t *text, int64_t texts, mha_error *err)
{
    const int64_t width = a->info->hidden;
    mha__packed batch;
    a->text = text;
    a->texts = texts;
    a->base.layer = 0;
    mha__packer_begin(a->packer, text, texts);
    for (int64_t at = 0; mha__packer_next(a->packer, &batch); at += batch.tokens) {
        taker t = {.hidden = a->base.hidden + at * width, .cells = batch.tokens * width};
        const mha_model_output out = {.size = sizeof out, .last_hidden = a->last, .on_hidden = take_hidden, .user = &t};
        MHA__TRY(mha__forward_until(a->model, &batch.input, &out, &t.done, err));
        MHA__TRY(mha__ablation_take(a, &batch, err));
    }
    if (a->full) memcpy(a->full, a->unit, (size_t)(texts * width) * sizeof *a->full);
    MHA__TRY(mha__ablation_finish(a, a->whole, err));
    return find_context(a, &a->base, err);
}

mha_status mha__ablation_step(mha__ablation *a, mha__stream *from, const int64_t *off, int64_t count, mha__stream *to,
                              mha_error *err)
{
    const int64_t width = a->info->hidden;
    mha__packed batch;
    mha__packer_begin(a->packer, a->text, a->texts);
    for (int64_t at = 0; mha__packer_next(a->packer, &batch); at += batch.tokens) {
        taker t = {
            .hidden = to->next + at * width, .entry = from->layer + 1, .cells = batch.tokens * width, .ends = true};
        mha_model_input in = input_at(a, from, &batch, at);
        const mha_model_output out = {.size = sizeof out, .on_hidden = take_hidden, .user = &t};
        change(a, from, at, batch.tokens, off, count);
        in.context = a->changed;
        MHA__TRY(mha__forward_until(a->model, &in, &out, &t.done, err));
    }
    float *const hidden = to->next;
    to->next = to->hidden;
    to->hidden = hidden;
    to->layer = from->layer + 1;
    return find_context(a, to, err);
}

mha_status mha__ablation_run(mha__ablation *a, const mha__stream *s, const int64_t *off, int64_t count, mha_error *err)
{
    mha__packed batch;
    mha__packer_begin(a->packer, a->text, a->texts);
    for (int64_t at = 0; mha__packer_next(a->packer, &batch); at += batch.tokens) {
        mha_model_input in = input_at(a, s, &batch, at);
        const mha_model_output out = {.size = sizeof out, .last_hidden = a->last};
        change(a, s, at, batch.tokens, off, count);
        in.context = a->changed;
        MHA__TRY(mha_model_forward(a->model, &in, &out, err));
        MHA__TRY(mha__ablation_take(a, &batch, err));
    }
    return mha__ablation_finish(a, a->value, err);
}
