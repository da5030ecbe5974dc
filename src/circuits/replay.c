/* replay.c - repeats a recorded run from a layer on: copies in one batch, each with its own changes, and the metrics of
 * each copy. Only the row of the measured token passes through the output matrix. */
#include "base/ctx.h"
#include "base/error.h"
#include "circuits/prompt_pair.h"
#include "model/forward/observers.h"
#include "model/forward/pooler_logits.h"
#include <string.h>

typedef struct arrays {
    float *hidden;  /* [count, T, E] input of the layer, then the last hidden states */
    float *context; /* [count, T, width]; NULL unless from_context */
    float *rows;    /* [count, E] last hidden states of the measured token */
    float *room;    /* [count, mha__head_room] input of the output matrix, if it is not `rows` */
    float *logits;  /* [count, vocab] */
} arrays;

int64_t mha__pair_batch(const mha_prompt_pair *pair)
{
    enum { ROWS = 512, MAX = 128 };
    const int64_t count = ROWS / pair->length;
    return count < 1 ? 1 : count > MAX ? MAX : count;
}

static int64_t context_width(const mha__replay *r)
{
    return mha__context_width(mha__pair_attn(r->pair, r->layer));
}

static void lay_out(mha__arena *arena, const mha__replay *r, arrays *a)
{
    const mha_prompt_pair *p = r->pair;
    const size_t rows = (size_t)(r->count * p->length), wide = (size_t)p->width * sizeof(float);
    a->hidden = mha__take(arena, rows, wide);
    a->context = r->from_context ? mha__take(arena, rows, (size_t)context_width(r) * sizeof(float)) : NULL;
    a->rows = mha__take(arena, (size_t)r->count, wide);
    a->room = mha__take(arena, (size_t)r->count, (size_t)mha__head_room(p) * sizeof(float));
    a->logits = mha__take(arena, (size_t)r->count, (size_t)p->info->vocab * sizeof(float));
}

/* Copies the recorded input of the layer, and its context, to every copy. */
static void fill(const mha__replay *r, const arrays *a)
{
    const mha_prompt_pair *p = r->pair;
    const int64_t T = p->length, E = p->width, width = r->from_context ? context_width(r) : 0;
    const float *hidden = r->base->resid + r->layer * T * E, *z = r->base->z + r->layer * T * p->z_width;
    for (int64_t n = 0; n < r->count; n++) {
        memcpy(a->hidden + n * T * E, hidden, (size_t)(T * E) * sizeof *hidden);
        for (int64_t t = 0; a->context && t < T; t++)
            memcpy(a->context + (n * T + t) * width, z + t * p->z_width, (size_t)width * sizeof *z);
    }
    if (r->start) r->start(r->edit.user, a->hidden, a->context);
}

static int ignore_maps(void *user, int64_t layer, int64_t heads, const float *probs)
{
    (void)user, (void)layer, (void)heads, (void)probs;
    return 0;
}

static mha_status forward(const mha__replay *r, const arrays *a, mha_error *err)
{
    mha__site_edit edit = r->edit;
    const mha_model_input in = {.size = sizeof in,
                                .batch = r->count,
                                .length = r->pair->length,
                                .first_layer = r->layer,
                                .hidden = a->hidden,
                                .context = a->context};
    const mha_model_output out = {
        .size = sizeof out, .last_hidden = a->hidden, .on_attention = r->maps ? ignore_maps : NULL};
    return mha__model_forward_edited(r->pair->model, &in, &out, &edit, err);
}

static mha_status measure(const mha__replay *r, const arrays *a, double *metrics, int64_t stride, mha_error *err)
{
    const mha_prompt_pair *p = r->pair;
    const int64_t E = p->width;
    const float *input = NULL;
    for (int64_t n = 0; n < r->count; n++)
        memcpy(a->rows + n * E, a->hidden + (n * p->length + p->position) * E, (size_t)E * sizeof *a->rows);
    MHA__TRY(mha__head_input(p->model, r->count, a->rows, a->room, &input, err));
    MHA__TRY(mha__head_logits(p->model, r->count, input, a->logits, err));
    mha__pair_metrics(p, r->count, a->logits, metrics, stride);
    return MHA_OK;
}

mha_status mha__replay_run(const mha__replay *r, double *metrics, int64_t stride, mha_error *err)
{
    arrays a = {0};
    mha__arena arena = {0};
    lay_out(&arena, r, &a);
    void *memory = arena.overflow ? NULL : mha__alloc(r->pair->ctx, arena.used);
    if (!memory) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "copies of a run");
    arena = (mha__arena){.base = memory};
    lay_out(&arena, r, &a);
    fill(r, &a);
    mha_status status = forward(r, &a, err);
    if (status == MHA_OK) status = measure(r, &a, metrics, stride, err);
    mha__free(r->pair->ctx, memory);
    return status;
}
