/* refit_outputs.c - fits the output projections, layer by layer, so that the edited model reproduces the output of the
 * source.
 *
 * The hidden states of all tokens pass through the layers of the source and of the edited model in parallel. The
 * earlier layers of the edited model are already fitted. At each layer, X^T X and X^T (Y - X W0) are summed over the
 * batches in double (X: contexts, Y: output of the source, W0: weights before the fit). Then the new weights are
 * packed, and the hidden states of the edited model pass through the layer again. */
#include "base/ctx.h"
#include "base/error.h"
#include "heads/data/head_data.h"
#include "heads/data/partial_forward.h"
#include "heads/edit/edit_struct.h"
#include "layer/arena.h"
#include "math/linalg.h"
#include <string.h>

typedef struct refit {
    mha_model_edit *edit;
    const mha_head_data *data;
    double ridge;
    mha_model *edited;
    float *source_x, *edited_x; /* [tokens, E] input of the current layer, batch after batch */
    float *x;                   /* [rows, n] X of a batch: contexts of the kept heads, and ones for a bias */
    float *rest;                /* [rows, E] of a batch: output Y of the source, then Y - X W0 */
    double *gram, *cross;       /* [n, n] X^T X, [n, E] X^T (Y - X W0); later a Cholesky factor, and the change of W */
    int64_t layer, n;           /* the current layer; n: number of columns of X */
} refit;

/* ---- forward pass of one batch through one layer ---- */

/* A forward pass of one model through the current layer. */
typedef struct pass {
    const refit *r;
    const mha_model *model;
    float *stream; /* hidden states of the batch: read in all layers except the first, written if `onward` is set */
    bool onward;   /* true = write the output of the layer to `stream` */
    bool wanted;   /* true = pass the activations of the layer to on_activations */
    bool stopped;  /* true = a callback stopped the pass, because later layers are not needed */
    int64_t rows;
} pass;

/* Writes a row of X from the contexts of all heads. */
static void take_row(const refit *r, const float *context, float *x)
{
    const mha__out_part *out = &r->edit->out[r->layer];
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
    const int64_t numbers = a->rows * r->edit->model->config.hidden, width = a->heads * a->head_dim;
    if (s->model == r->edit->model) {
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
    if (s->onward) memcpy(s->stream, x, (size_t)(s->rows * s->r->edit->model->config.hidden) * sizeof *x);
    s->stopped = true;
    return 1;
}

static mha_status run(pass *s, mha_model_input input, mha_error *err)
{
    const mha_model_output output = {
        .size = sizeof output, .on_activations = s->wanted ? on_activations : NULL, .on_hidden = on_hidden, .user = s};
    input.first_layer = s->r->layer;
    input.hidden = s->r->layer ? s->stream : NULL;
    return mha__forward_until(s->model, &input, &output, &s->stopped, err);
}

/* ---- fit of one layer ---- */

/* Runs all batches through the current layer. If `fitting`, sums X^T X and X^T (Y - X W0); otherwise only updates the
 * hidden states of the edited model. */
static mha_status run_batches(const refit *r, bool fitting, mha_error *err)
{
    const int64_t batches = mha__head_data_batches(r->data), E = r->edit->model->config.hidden;
    const bool last = r->layer == r->edit->model->config.layers - 1;
    for (int64_t b = 0, at = 0; b < batches; b++) {
        mha_model_input input;
        const int64_t *texts;
        MHA__TRY(mha__head_data_batch(r->data, b, &input, &texts, err));
        const int64_t rows = input.starts[input.batch];
        pass edited = {r, r->edited, r->edited_x + at * E, !fitting, fitting, false, rows};
        pass source = {r, r->edit->model, r->source_x + at * E, !last, true, false, rows};
        at += rows;
        if (fitting) MHA__TRY(run(&source, input, err));
        MHA__TRY(run(&edited, input, err));
        if (!fitting) continue;
        const mha__columns x = {r->x, r->n, 1, r->n}, rest = {r->rest, E, 1, E};
        MHA__TRY(mha__gram(r->edit->ctx, rows, &x, r->gram, err));
        MHA__TRY(mha__gram_cross(r->edit->ctx, rows, &x, &rest, r->cross, err));
    }
    return MHA_OK;
}

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
    mha__cholesky_solve(r->edit->ctx, r->n, r->gram, r->edit->model->config.hidden, r->cross);
    return MHA_OK;
}

static void add_change(const refit *r)
{
    const int64_t E = r->edit->model->config.hidden;
    const mha__out_part *out = &r->edit->out[r->layer];
    for (int64_t j = 0; j < out->used_count; j++)
        for (int64_t e = 0; e < E; e++) {
            const int64_t at = out->transposed ? out->used[j] * E + e : e * out->columns + out->used[j];
            out->weight[at] = (float)((double)out->weight[at] + r->cross[j * E + e]);
        }
    for (int64_t e = 0; out->bias && e < E; e++)
        out->bias[e] = (float)((double)out->bias[e] + r->cross[out->used_count * E + e]);
}

static mha_status fit_layer(refit *r, mha_error *err)
{
    const mha__config *c = &r->edit->model->config;
    const mha__out_part *out = &r->edit->out[r->layer];
    r->n = out->used_count + (out->bias != NULL);
    memset(r->gram, 0, (size_t)(r->n * r->n) * sizeof *r->gram);
    memset(r->cross, 0, (size_t)(r->n * c->hidden) * sizeof *r->cross);
    MHA__TRY(mha__progress(r->edit->ctx, "refit", r->layer, c->layers, err));
    MHA__TRY(run_batches(r, true, err));
    MHA__TRY(solve(r, err));
    add_change(r);
    if (r->layer == c->layers - 1) return MHA_OK;
    MHA__TRY(mha__model_repack(r->edited, r->layer, err));
    return run_batches(r, false, err);
}

/* ---- fit of all layers ---- */

static void lay_out(mha__arena *arena, refit *r)
{
    const mha__config *c = &r->edit->model->config;
    const size_t tokens = (size_t)mha_head_data_tokens(r->data), rows = (size_t)mha__head_data_batch_tokens(r->data);
    const size_t width = (size_t)c->hidden, most = (size_t)(c->heads * c->head_dim) + 1;
    r->source_x = mha__take(arena, tokens, width * sizeof *r->source_x);
    r->edited_x = mha__take(arena, tokens, width * sizeof *r->edited_x);
    r->x = mha__take(arena, rows, most * sizeof *r->x);
    r->rest = mha__take(arena, rows, width * sizeof *r->rest);
    r->gram = mha__take(arena, most, most * sizeof *r->gram);
    r->cross = mha__take(arena, most, width * sizeof *r->cross);
}

mha_status mha__edit_refit(mha_model_edit *edit, const mha_head_data *data, double ridge, mha_error *err)
{
    refit r = {.edit = edit, .data = data, .ridge = ridge};
    mha__arena arena = {0};
    lay_out(&arena, &r);
    void *memory = arena.base = arena.overflow ? NULL : mha__alloc(edit->ctx, arena.used);
    if (!memory) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "a refit");
    arena.used = 0;
    lay_out(&arena, &r);
    mha_model *whole = NULL;
    mha_status status = mha_model_edit_open(edit, &whole, err);
    if (status == MHA_OK) r.edited = mha__edit_side(edit, whole);
    for (; r.layer < edit->model->config.layers && status == MHA_OK; r.layer++)
        status = fit_layer(&r, err);
    mha_model_free(whole);
    mha__free(edit->ctx, memory);
    return status;
}
