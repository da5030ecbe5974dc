/* audio_stem_backward.c - gradients of the convolutions of an encoder that reads audio features. The forward pass of
 * each sequence is computed again, so that nothing is recorded. */
#include "base/ctx.h"
#include "base/error.h"
#include "model/audio/audio_stem.h"
#include "model/backward/model_grads.h"
#include <string.h>

/* Backpropagates dy [rows, E] through one convolution: its activation, whose input is `before`, and its product.
 * Overwrites `before`. */
static mha_status convolution_back(const mha_model_grads *g, mha__role role, int64_t rows, const float *x,
                                   float *before, const float *dy, float *dx, mha_error *err)
{
    const int64_t E = g->model->config.hidden;
    const int64_t channels = role == MHA__FIRST_CONVOLUTION ? g->model->config.mel_bins : E;
    mha__weights weights = g->model->outer; /* a copy with its own list of converted tensors */
    mha__linear_grad grad = {
        .slot = mha__grads_slot(g, role, -1), .rows = rows, .in = MHA__TAPS * channels, .out = E, .x = x};
    weights.converted = NULL;
    MHA__TRY(mha_activation_backward(g->ctx, MHA_ACT_GELU, rows, E, before, dy, before, err));
    grad.dy = before;
    grad.dx = dx;
    mha_status status = mha__grads_weight(&weights, role, -1, &grad.slot, err);
    if (status == MHA_OK) status = mha__linear_backward(g->ctx, &grad, err);
    mha__weights_release(&weights);
    return status;
}

static mha_status sequence_back(const mha_model_grads *g, const mha__stem *s, const float *features, const float *dx,
                                mha_error *err)
{
    const mha_model *m = g->model;
    const int64_t L = m->config.max_positions, wide = 2 * L * m->config.hidden;
    mha__convolution_gather(&s->features, 1, 0, 2 * L, features, s->first);
    mha__linear_run(m->convolution[0],
                    &(mha__linear_call){.x = s->first, .rows = 2 * L, .y = s->before, .linear = true});
    memcpy(s->wide, s->before, (size_t)wide * sizeof *s->wide);
    MHA__TRY(mha_activation_forward(m->ctx, MHA_ACT_GELU, 2 * L, m->config.hidden, s->wide, err));
    mha__convolution_gather(&s->middle, 2, 0, L, s->wide, s->second);
    mha__linear_run(m->convolution[1], &(mha__linear_call){.x = s->second, .rows = L, .y = s->after, .linear = true});
    MHA__TRY(convolution_back(g, MHA__SECOND_CONVOLUTION, L, s->second, s->after, dx, s->dsecond, err));
    memset(s->dwide, 0, (size_t)wide * sizeof *s->dwide);
    mha__convolution_scatter(&s->middle, 2, 0, L, s->dsecond, s->dwide);
    return convolution_back(g, MHA__FIRST_CONVOLUTION, 2 * L, s->first, s->before, s->dwide, NULL, err);
}

mha_status mha__grads_stem(const mha_model_grads *g, const float *dx, mha_error *err)
{
    const mha_model_input *in = &g->batch.in;
    const int64_t L = in->length;
    mha__stem s;
    mha_status status = mha__stem_create(g->model, true, &s, err);
    for (int64_t b = 0; b < in->batch && status == MHA_OK; b++)
        status = sequence_back(g, &s, in->features + b * 2 * L * g->model->config.mel_bins,
                               dx + b * L * g->model->config.hidden, err);
    mha__free(g->ctx, s.memory);
    return status;
}
