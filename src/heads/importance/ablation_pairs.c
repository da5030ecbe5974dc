/* ablation_pairs.c - switches off the heads of an encoder-decoder one at a time: by a gate of 0 and, for mean ablation,
 * a fill. The inputs of all layers of both sides are kept for a batch, so that each pass begins at the layer of its
 * head; the encoder runs again only for its own heads. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "heads/importance/ablation.h"
#include <string.h>

typedef struct pair_run {
    mha__ablation *a;
    const mha__pair_heads *heads;
    const mha__packed *batch;
    float *encoder, *decoder; /* [layers + 1, rows, E], [layers, rows, E] inputs of the layers; the last entry of
                               * `encoder` has its last hidden states */
    int64_t encoder_rows;     /* maximum number of tokens of the sources of a batch */
    float *gates;             /* [total, B] ones, except for the head that is switched off */
    float *fills;             /* [cells] zeros, except for that head; NULL = no means */
    void *memory;
} pair_run;

static void lay_out(mha__arena *arena, pair_run *r)
{
    const mha__head_sets *sets = r->heads->sets;
    const mha__head_set *own = &sets->set[MHA_HEADS_OWN], *encoder = &sets->set[MHA_HEADS_ENCODER];
    const size_t width = (size_t)r->a->info->hidden * sizeof(float), max = (size_t)r->a->max;
    r->encoder = mha__take(arena, (size_t)((encoder->layers + 1) * r->encoder_rows), width);
    r->decoder = mha__take(arena, (size_t)own->layers * max, width);
    r->gates = mha__take(arena, (size_t)sets->total, (size_t)r->heads->texts * sizeof *r->gates);
    r->fills = r->a->means ? mha__take(arena, (size_t)sets->cells, sizeof *r->fills) : NULL;
}

static mha_status create(pair_run *r, mha_error *err)
{
    mha__arena arena = {0};
    r->encoder_rows = mha__max64(r->a->packer->max, mha__head_data_max_source(r->a->packer->data));
    lay_out(&arena, r);
    arena.base = r->memory = arena.overflow ? NULL : mha__alloc(r->a->ctx, arena.used);
    if (!r->memory) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the layers of a pair ablation");
    arena.used = 0;
    lay_out(&arena, r);
    for (int64_t n = 0; n < r->heads->sets->total * r->heads->texts; n++)
        r->gates[n] = 1;
    if (r->fills) memset(r->fills, 0, (size_t)r->heads->sets->cells * sizeof *r->fills);
    return MHA_OK;
}

/* ---- the whole model ---- */

static int64_t source_rows(const pair_run *r)
{
    return r->batch->input.source->starts[r->batch->input.batch];
}

static float *encoder_at(const pair_run *r, int64_t entry)
{
    return r->encoder + entry * r->encoder_rows * r->a->info->hidden;
}

static float *decoder_at(const pair_run *r, int64_t entry)
{
    return r->decoder + entry * r->a->max * r->a->info->hidden;
}

static int keep_encoder(void *user, int64_t entry, const float *x)
{
    const pair_run *r = user;
    const size_t bytes = (size_t)(source_rows(r) * r->a->info->hidden) * sizeof *x;
    if (entry < r->heads->sets->set[MHA_HEADS_ENCODER].layers) memcpy(encoder_at(r, entry), x, bytes);
    return 0;
}

static int keep_decoder(void *user, int64_t entry, const float *x)
{
    const pair_run *r = user;
    const size_t bytes = (size_t)(r->batch->tokens * r->a->info->hidden) * sizeof *x;
    if (entry < r->a->info->layers) memcpy(decoder_at(r, entry), x, bytes);
    return 0;
}

/* Runs the whole model on the batch, and keeps the inputs of all layers. */
static mha_status run_whole(pair_run *r, mha_error *err)
{
    mha__ablation *a = r->a;
    const int64_t last = r->heads->sets->set[MHA_HEADS_ENCODER].layers, width = a->info->hidden;
    const mha_model_output encoder = {
        .size = sizeof encoder, .last_hidden = encoder_at(r, last), .on_hidden = keep_encoder, .user = r};
    const mha_model_output output = {
        .size = sizeof output, .last_hidden = a->last, .on_hidden = keep_decoder, .user = r, .encoder = &encoder};
    MHA__TRY(mha_model_forward(a->model, &r->batch->input, &output, err));
    MHA__TRY(mha__ablation_take(a, r->batch, err));
    for (int64_t b = 0; a->full && b < r->batch->input.batch; b++) {
        const int64_t at = r->batch->place[b] * width;
        memcpy(a->full + at, a->unit + at, (size_t)width * sizeof *a->full);
    }
    return MHA_OK;
}

/* ---- one head ---- */

/* Sets the gate of a head, and its fill to its mean (gate 0) or to 0. */
static void turn(const pair_run *r, const mha__head_set *set, int64_t at, float gate)
{
    const int64_t B = r->batch->input.batch, H = set->heads, D = set->width;
    float *gates = r->gates + set->first * B;
    for (int64_t b = 0; b < B; b++)
        gates[(at / H * B + b) * H + at % H] = gate;
    for (int64_t d = set->cell + at * D; r->fills && d < set->cell + (at + 1) * D; d++)
        r->fills[d] = gate == 0 ? (float)r->a->means[d] : 0;
}

/* Describes a pass that begins at a layer of a kind of heads. */
static void begin_at(const pair_run *r, const mha__head_set *set, int64_t layer, mha_model_input *input,
                     mha_model_input *source)
{
    const float *gates = r->gates + set->first * r->batch->input.batch, *fills = r->fills ? r->fills + set->cell : NULL;
    const bool encoder = set->kind == MHA_HEADS_ENCODER, cross = set->kind == MHA_HEADS_CROSS;
    *input = r->batch->input;
    *source = *input->source;
    input->source = source;
    source->first_layer = encoder ? layer : r->heads->sets->set[MHA_HEADS_ENCODER].layers;
    source->hidden = encoder_at(r, source->first_layer);
    *(encoder ? &source->gates : cross ? &input->cross_gates : &input->gates) = gates;
    *(encoder ? &source->fills : cross ? &input->cross_fills : &input->fills) = fills;
    if (encoder) return;
    input->first_layer = layer;
    input->hidden = decoder_at(r, layer);
}

static mha_status run_without(pair_run *r, int64_t n, mha_error *err)
{
    const mha__head_set *set = mha__head_set_at(r->heads->sets, n);
    const mha_model_output output = {.size = sizeof output, .last_hidden = r->a->last};
    const int64_t at = n - set->first;
    mha_model_input input, source;
    turn(r, set, at, 0);
    begin_at(r, set, at / set->heads, &input, &source);
    MHA__TRY(mha_model_forward(r->a->model, &input, &output, err));
    turn(r, set, at, 1);
    return mha__ablation_take(r->a, r->batch, err);
}

static mha_status run_batch(pair_run *r, mha_error *err)
{
    const mha__pair_heads *heads = r->heads;
    MHA__TRY(run_whole(r, err));
    MHA__TRY(heads->take(heads->user, r->batch, -1, err));
    for (int64_t n = 0; n < heads->sets->total; n++) {
        if (!mha__head_set_has(mha__head_set_at(heads->sets, n), n)) continue;
        MHA__TRY(run_without(r, n, err));
        MHA__TRY(heads->take(heads->user, r->batch, n, err));
    }
    return MHA_OK;
}

mha_status mha__ablation_pairs(mha__ablation *a, const int64_t *text, const mha__pair_heads *heads, mha_error *err)
{
    pair_run r = {.a = a, .heads = heads};
    mha__packed batch;
    a->text = text;
    a->texts = heads->texts;
    mha_status status = create(&r, err);
    if (status == MHA_OK) mha__packer_begin(a->packer, text, heads->texts);
    r.batch = &batch;
    while (status == MHA_OK && mha__packer_next(a->packer, &batch))
        status = run_batch(&r, err);
    mha__free(a->ctx, r.memory);
    return status;
}
