/* image_backward.c - backpropagates through the parts that only models of images and CLIP have: patches, class token,
 * pooled vectors and their projection. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/linear/linear.h"
#include "model/backward/model_grads.h"
#include "model/forward/pooler_logits.h"
#include "model/vision/image_input.h"
#include <math.h>
#include <string.h>

/* ---- patches and class token ---- */

mha_status mha__grads_image(const mha_model_grads *g, const float *dx, mha_error *err)
{
    const mha__config *c = &g->model->config;
    const int64_t width = c->hidden, length = c->max_positions;
    const int64_t pixels = c->channels * c->image_height * c->image_width;
    const mha__grad_slot patches = mha__grads_slot(g, MHA__PATCHES, -1);
    float *token = mha__grads_slot(g, MHA__CLASS_TOKEN, -1).dweight;
    for (int64_t b = 0; token && b < g->batch.sequences; b++) {
        const float *row = dx + b * length * width;
        for (int64_t i = 0; i < width; i++)
            token[i] += row[i];
        mha__image_patches(c, g->batch.in.pixels + b * pixels, g->batch.patches);
        const mha__linear_grad grad = {.slot = patches,
                                       .rows = length - 1,
                                       .in = mha__patch_width(c),
                                       .out = width,
                                       .x = g->batch.patches,
                                       .dy = row + width};
        MHA__TRY(mha__linear_backward(g->ctx, &grad, err));
    }
    return MHA_OK;
}

/* ---- pooled vectors of CLIP, and their projection ---- */

/* Arrays of one backward pass, with a row per sequence. */
typedef struct pooled {
    float *first, *normed, *dfirst; /* [B, E] the rows that are pooled; after their norm; and their gradient */
    float *projected, *dprojected;  /* [B, P] */
} pooled;

static void lay_out(mha__arena *arena, const mha_model_grads *g, pooled *p)
{
    const size_t rows = (size_t)g->batch.sequences, width = (size_t)g->model->config.hidden;
    const size_t narrow = (size_t)g->model->config.projection;
    p->first = mha__take(arena, rows, width * sizeof(float));
    p->normed = mha__take(arena, rows, width * sizeof(float));
    p->dfirst = mha__take(arena, rows, width * sizeof(float));
    p->projected = mha__take(arena, rows, narrow * sizeof(float));
    p->dprojected = mha__take(arena, rows, narrow * sizeof(float));
}

/* Backpropagates p->dfirst, the gradient of the pooled vectors, to the last hidden states. */
static mha_status pooled_back(mha_model_grads *g, const pooled *p, mha_error *err)
{
    const mha_model *m = g->model;
    const int64_t width = m->config.hidden, count = g->batch.sequences;
    const mha__grad_slot norm = mha__grads_slot(g, MHA__POOL_NORM, -1);
    const mha_norm_gradient gradient = {.size = sizeof gradient,
                                        .rows = count,
                                        .width = width,
                                        .x = p->first,
                                        .dy = p->dfirst,
                                        .dx = p->dfirst,
                                        .dweight = norm.dweight,
                                        .dbias = norm.dbias};
    if (m->pool_norm.weight) MHA__TRY(mha_norm_backward(g->ctx, &m->pool_norm, &gradient, err));
    for (int64_t b = 0; b < count; b++) {
        float *dx = g->saved.dx + mha__head_pooled_row(m, &g->batch, b) * width;
        for (int64_t i = 0; i < width; i++)
            dx[i] += p->dfirst[b * width + i];
    }
    return MHA_OK;
}

/* Backpropagates through y = u / |u| for each row u of p->projected. */
static void unit_back(const pooled *p, int64_t count, int64_t width, const float *dy)
{
    for (int64_t b = 0; b < count; b++) {
        const float *u = p->projected + b * width, *d = dy + b * width;
        double square = 0, along = 0;
        for (int64_t i = 0; i < width; i++)
            square += (double)u[i] * (double)u[i], along += (double)u[i] * (double)d[i];
        const double length = fmax(sqrt(square), 1e-12);
        for (int64_t i = 0; i < width; i++)
            p->dprojected[b * width + i] = (float)(((double)d[i] - (double)u[i] * along / (length * length)) / length);
    }
}

/* Backpropagates the gradient of the embedding to p->dfirst. */
static mha_status projection_back(mha_model_grads *g, const pooled *p, const float *dembedding, mha_error *err)
{
    const int64_t count = g->batch.sequences;
    mha__weights weights = g->model->outer; /* a copy with its own list of converted tensors */
    mha__linear_grad grad = {.slot = mha__grads_slot(g, MHA__PROJECTION, -1),
                             .rows = count,
                             .in = g->model->config.hidden,
                             .out = g->model->config.projection,
                             .x = p->normed,
                             .dy = p->dprojected,
                             .dx = p->dfirst};
    weights.converted = NULL;
    mha_status status = mha_linear_forward(g->model->projection, p->normed, count, p->projected, err);
    if (status == MHA_OK) status = mha__grads_weight(&weights, MHA__PROJECTION, -1, &grad.slot, err);
    if (status == MHA_OK) {
        unit_back(p, count, g->model->config.projection, dembedding);
        status = mha__linear_backward(g->ctx, &grad, err);
    }
    mha__weights_release(&weights);
    return status;
}

mha_status mha__grads_pooled(mha_model_grads *g, const float *dpooled, const float *dembedding, mha_error *err)
{
    pooled p;
    mha__arena arena = {0};
    lay_out(&arena, g, &p);
    arena.base = arena.overflow ? NULL : mha__alloc(g->ctx, arena.used);
    if (!arena.base)
        return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the gradient of pooled vectors");
    arena.used = 0;
    lay_out(&arena, g, &p);
    mha_status status = mha__head_pool(g->model, &g->batch, g->saved.last, p.first, p.normed, err);
    if (status == MHA_OK && dembedding) status = projection_back(g, &p, dembedding, err);
    if (!dembedding)
        memcpy(p.dfirst, dpooled, (size_t)(g->batch.sequences * g->model->config.hidden) * sizeof *dpooled);
    if (status == MHA_OK) status = pooled_back(g, &p, err);
    mha__free(g->ctx, arena.base);
    return status;
}
