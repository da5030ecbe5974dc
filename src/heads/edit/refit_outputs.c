/* refit_outputs.c - fits the output projections, layer by layer, so that the edited model reproduces the output of the
 * source.
 *
 * The hidden states of all tokens pass through the layers of the source and of the edited model in parallel. The
 * earlier layers of the edited model are already fitted. At each layer, X^T X and X^T (Y - X W0) are summed over the
 * batches in double (X: contexts, Y: output of the source, W0: weights before the fit). Then the new weights are
 * packed, and the hidden states of the edited model pass through the layer again.
 *
 * In an encoder-decoder, the encoder is fitted first, on the sources. Then, in each layer of the decoder, the
 * self-attention is fitted before the cross-attention, which reads the states of the fitted encoder. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "heads/data/head_data.h"
#include "heads/data/partial_forward.h"
#include "heads/edit/edit_struct.h"
#include "math/linalg.h"
#include <string.h>

typedef struct refit {
    mha_model_edit *edit;
    const mha_head_data *data;
    double ridge;
    mha_model *whole;                       /* the edited checkpoint */
    const mha_model *source;                /* the side that is fitted, unchanged */
    mha_model *edited;                      /* the same side of the edited model */
    mha_head_kind kind;                     /* the heads that are fitted */
    float *source_x, *edited_x;             /* [tokens, E] input of the current layer, batch after batch */
    float *source_encoded, *edited_encoded; /* [tokens, E] last hidden states of the encoders, batch after batch; NULL
                                             * without an encoder */
    float *x;             /* [rows, n] X of a batch: contexts of the kept heads, and ones for a bias */
    float *rest;          /* [rows, E] of a batch: output Y of the source, then Y - X W0 */
    double *gram, *cross; /* [n, n] X^T X, [n, E] X^T (Y - X W0); later a Cholesky factor, and the change of W */
    int64_t layer, n;     /* the current layer; n: number of columns of X */
    int64_t done, steps;  /* fits that are done, and all fits, for the progress */
} refit;

static int64_t width_of(const refit *r)
{
    return r->edit->model->config.hidden;
}

static mha__out_part *out_of(const refit *r)
{
    return mha__edit_out(r->edit, r->kind) + r->layer;
}

/* Returns true if another fit of the layer follows: that of its cross-attention. */
static bool has_next_kind(const refit *r)
{
    return r->kind == MHA_HEADS_OWN && r->source->encoder;
}

/* ---- forward pass of one batch through one layer ---- */

/* A forward pass of one model through the current layer. */
typedef struct pass {
    const refit *r;
    const mha_model *model;
    float *stream;        /* hidden states of the batch: read in all layers except the first, written if `onward` */
    const float *encoded; /* states of the encoder for the batch; NULL without an encoder */
    bool onward;          /* true = write the output of the layer to `stream` */
    bool wanted;          /* true = pass the activations of the layer to on_activations */
    bool stopped;         /* true = a callback stopped the pass, because later layers are not needed */
    int64_t rows;
} pass;

/* Writes a row of X from the contexts of all heads. */
static void take_row(const refit *r, const float *context, float *x)
{
    const mha__out_part *out = out_of(r);
    for (int64_t j = 0; j < out->used_count; j++)
        x[j] = context[out->used[j]];
    if (out->bias) x[out->used_count] = 1;
}

/* Reads the activations of the current layer: Y from the source, which runs first, then X and Y - X W0 from the edited
 * model. */
static int on_activations(void *user, const mha_model_activations *a)
{
    pass *s = user;
    const refit *r = s->r;
    const int64_t numbers = a->rows * width_of(r), width = a->heads * a->head_dim;
    if (s->model == r->source) {
        memcpy(r->rest, a->out, (size_t)numbers * sizeof *a->out);
        return 0;
    }
    for (int64_t n = 0; n < numbers; n++)
        r->rest[n] -= a->out[n];
    for (int64_t i = 0; i < a->rows; i++)
        take_row(r, a->context + i * width, r->x + i * r->n);
    s->stopped = true;
    return 1;
}

static int on_hidden(void *user, int64_t entry, const float *x)
{
    pass *s = user;
    if (entry <= s->r->layer) return 0;
    if (s->onward) memcpy(s->stream, x, (size_t)(s->rows * width_of(s->r)) * sizeof *x);
    s->stopped = true;
    return 1;
}

static mha_status run(pass *s, mha_model_input input, mha_error *err)
{
    const bool cross = s->r->kind == MHA_HEADS_CROSS;
    const mha_model_output output = {.size = sizeof output,
                                     .on_activations = s->wanted && !cross ? on_activations : NULL,
                                     .on_cross_activations = s->wanted && cross ? on_activations : NULL,
                                     .on_hidden = on_hidden,
                                     .user = s};
    mha_model_input source;
    input.first_layer = s->r->layer;
    input.hidden = s->r->layer ? s->stream : NULL;
    if (s->encoded) {
        source = *input.source;
        source.hidden = s->encoded;
        source.first_layer = s->model->encoder->config.layers;
        input.source = &source;
    }
    return mha__forward_until(s->model, &input, &output, &s->stopped, err);
}

/* ---- batches ---- */

/* Returns the input of a side for batch b: the sources for an encoder. */
static mha_status input_of(const refit *r, int64_t b, mha_model_input *input, mha_error *err)
{
    const int64_t *texts;
    MHA__TRY(mha__head_data_any(r->data, b, input, &texts, err));
    if (r->kind == MHA_HEADS_ENCODER) *input = *input->source;
    return MHA_OK;
}

static int64_t source_rows(const mha_model_input *input)
{
    return input->source ? input->source->starts[input->source->batch] : 0;
}

/* Adds the products of a batch, whose X and Y - X W0 have `rows` rows. */
static mha_status add_products(const refit *r, int64_t rows, mha_error *err)
{
    const int64_t E = width_of(r);
    const mha__columns x = {r->x, r->n, 1, r->n}, rest = {r->rest, E, 1, E};
    MHA__TRY(mha__gram(r->edit->ctx, rows, &x, r->gram, err));
    return mha__gram_cross(r->edit->ctx, rows, &x, &rest, r->cross, err);
}

/* Runs all batches through the current layer. If `fitting`, sums X^T X and X^T (Y - X W0); otherwise only updates the
 * hidden states of the edited model. */
static mha_status run_batches(const refit *r, bool fitting, mha_error *err)
{
    const int64_t E = width_of(r);
    const bool last = r->layer == r->source->config.layers - 1;
    for (int64_t b = 0, at = 0, from = 0; b < mha__head_data_batches(r->data); b++) {
        mha_model_input input;
        MHA__TRY(input_of(r, b, &input, err));
        const int64_t rows = input.starts[input.batch];
        pass edited = {r, r->edited, r->edited_x + at * E, NULL, !fitting, fitting, false, rows};
        pass source = {r, r->source, r->source_x + at * E, NULL, !last && !has_next_kind(r), true, false, rows};
        if (input.source) edited.encoded = r->edited_encoded + from * E;
        if (input.source) source.encoded = r->source_encoded + from * E;
        at += rows;
        from += source_rows(&input);
        if (fitting) MHA__TRY(run(&source, input, err));
        MHA__TRY(run(&edited, input, err));
        if (fitting) MHA__TRY(add_products(r, rows, err));
    }
    return MHA_OK;
}

/* ---- fit of one layer ---- */

/* Computes cross = (gram + ridge mu I)^-1 cross, where mu is the mean diagonal element of gram. Does nothing if all
 * contexts are 0. */
static mha_status solve(const refit *r, mha_error *err)
{
    double trace = 0;
    for (int64_t i = 0; i < r->n; i++)
        trace += r->gram[i * r->n + i];
    if (trace == 0) return MHA_OK;
    for (int64_t i = 0; i < r->n; i++)
        r->gram[i * r->n + i] += r->ridge * (trace / (double)r->n);
    MHA__TRY(mha__cholesky(r->edit->ctx, r->n, r->gram, err));
    mha__cholesky_solve(r->edit->ctx, r->n, r->gram, width_of(r), r->cross);
    return MHA_OK;
}

static void add_change(const refit *r)
{
    const int64_t E = width_of(r);
    const mha__out_part *out = out_of(r);
    for (int64_t j = 0; j < out->used_count; j++)
        for (int64_t e = 0; e < E; e++) {
            const int64_t at = out->transposed ? out->used[j] * E + e : e * out->columns + out->used[j];
            out->weight[at] = (float)((double)out->weight[at] + r->cross[j * E + e]);
        }
    for (int64_t e = 0; out->bias && e < E; e++)
        out->bias[e] = (float)((double)out->bias[e] + r->cross[out->used_count * E + e]);
}

/* Fits the heads of the current kind in the current layer. */
static mha_status fit_heads(refit *r, mha_error *err)
{
    const mha__out_part *out = out_of(r);
    r->n = out->used_count + (out->bias != NULL);
    memset(r->gram, 0, (size_t)(r->n * r->n) * sizeof *r->gram);
    memset(r->cross, 0, (size_t)(r->n * width_of(r)) * sizeof *r->cross);
    MHA__TRY(mha__progress(r->edit->ctx, "refit", r->done++, r->steps, err));
    MHA__TRY(run_batches(r, true, err));
    MHA__TRY(solve(r, err));
    add_change(r);
    return mha__model_repack(r->edited, r->layer, err);
}

static mha_status fit_layer(refit *r, mha_error *err)
{
    const mha_head_kind first = r->kind;
    MHA__TRY(fit_heads(r, err));
    if (has_next_kind(r)) {
        r->kind = MHA_HEADS_CROSS;
        MHA__TRY(fit_heads(r, err));
    }
    const mha_status status = r->layer < r->source->config.layers - 1 ? run_batches(r, false, err) : MHA_OK;
    r->kind = first;
    return status;
}

/* ---- fit of all layers ---- */

static mha_status fit_side(refit *r, const mha_model *source, mha_model *edited, mha_head_kind kind, mha_error *err)
{
    r->source = source;
    r->edited = edited;
    r->kind = kind;
    for (r->layer = 0; r->layer < source->config.layers; r->layer++)
        MHA__TRY(fit_layer(r, err));
    return MHA_OK;
}

/* Computes the last hidden states of the sources with an encoder. */
static mha_status encode(const refit *r, const mha_model *encoder, float *to, mha_error *err)
{
    for (int64_t b = 0, at = 0; b < mha__head_data_batches(r->data); b++) {
        mha_model_input input;
        MHA__TRY(input_of(r, b, &input, err));
        const mha_model_output output = {.size = sizeof output, .last_hidden = to + at * width_of(r)};
        MHA__TRY(mha_model_forward(encoder, &input, &output, err));
        at += input.starts[input.batch];
    }
    return MHA_OK;
}

static mha_status fit_all(refit *r, mha_error *err)
{
    const mha_model *source = r->edit->model;
    const int64_t encoder_layers = source->encoder ? source->encoder->config.layers : 0;
    r->steps = source->config.layers * (source->encoder ? 2 : 1) + encoder_layers;
    if (source->encoder) {
        MHA__TRY(fit_side(r, source->encoder, r->whole->encoder, MHA_HEADS_ENCODER, err));
        MHA__TRY(encode(r, source->encoder, r->source_encoded, err));
        MHA__TRY(encode(r, r->whole->encoder, r->edited_encoded, err));
    }
    return fit_side(r, source, mha__edit_side(r->edit, r->whole), MHA_HEADS_OWN, err);
}

/* The sizes of the buffers: tokens of all texts, or of their sources if these are more; of the sources; and rows of a
 * batch. */
typedef struct sizes {
    int64_t tokens, sources, rows;
} sizes;

static mha_status measure(const refit *r, sizes *s, mha_error *err)
{
    *s = (sizes){.tokens = 0};
    for (int64_t b = 0; b < mha__head_data_batches(r->data); b++) {
        mha_model_input input;
        MHA__TRY(input_of(r, b, &input, err));
        s->tokens += input.starts[input.batch];
        s->sources += source_rows(&input);
        s->rows = mha__max64(s->rows, mha__max64(input.starts[input.batch], source_rows(&input)));
    }
    s->tokens = mha__max64(s->tokens, s->sources);
    return MHA_OK;
}

static void lay_out(mha__arena *arena, const sizes *s, refit *r)
{
    const mha_model *m = r->edit->model;
    const int64_t own = m->config.heads * m->config.head_dim,
                  other = m->encoder ? m->encoder->config.heads * m->encoder->config.head_dim : 0;
    const size_t max = (size_t)mha__max64(own, other) + 1, width = (size_t)width_of(r);
    r->source_x = mha__take(arena, (size_t)s->tokens, width * sizeof *r->source_x);
    r->edited_x = mha__take(arena, (size_t)s->tokens, width * sizeof *r->edited_x);
    r->source_encoded = mha__take(arena, (size_t)s->sources, width * sizeof *r->source_encoded);
    r->edited_encoded = mha__take(arena, (size_t)s->sources, width * sizeof *r->edited_encoded);
    r->x = mha__take(arena, (size_t)s->rows, max * sizeof *r->x);
    r->rest = mha__take(arena, (size_t)s->rows, width * sizeof *r->rest);
    r->gram = mha__take(arena, max, max * sizeof *r->gram);
    r->cross = mha__take(arena, max, width * sizeof *r->cross);
}

mha_status mha__edit_refit(mha_model_edit *edit, const mha_head_data *data, double ridge, mha_error *err)
{
    refit r = {.edit = edit, .data = data, .ridge = ridge};
    mha__arena arena = {0};
    sizes s;
    MHA__TRY(measure(&r, &s, err));
    lay_out(&arena, &s, &r);
    void *memory = arena.base = arena.overflow ? NULL : mha__alloc(edit->ctx, arena.used);
    if (!memory) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "a refit");
    arena.used = 0;
    lay_out(&arena, &s, &r);
    mha_status status = mha_model_edit_open(edit, &r.whole, err);
    if (status == MHA_OK) status = fit_all(&r, err);
    mha_model_free(r.whole);
    mha__free(edit->ctx, memory);
    return status;
}
