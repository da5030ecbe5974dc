/* encoder_backward.c - passes with gradients of encoder-decoders: the encoder records its own pass, the cross-attention
 * of every decoder layer adds to the gradient of its last hidden states, and then the encoder runs backward. */
#include "base/error.h"
#include "layer/block/cross_block.h"
#include "model/backward/model_grads.h"
#include <string.h>

mha_status mha__grads_source_describe(mha_model_grads *g, mha_error *err)
{
    if (!g->encoder) return MHA_OK;
    mha__cross_bind(g->model, &g->batch, &g->cross);
    g->cross_in = mha__block_cross_input(&g->batch.layer);
    if (g->cross.plan) return MHA_OK;
    const mha__attn_call call = {.in = &g->cross_in, .outputs = MHA__ATTN_BOTH};
    return mha__attn_plan(g->model->block[0]->cross, &call, &g->cross.plan, err);
}

void mha__grads_source_lay_out(mha__arena *arena, mha_model_grads *g)
{
    g->saved.dsource = NULL;
    if (!g->encoder) return;
    const size_t rows = (size_t)(g->cross.input.batch * g->cross.input.length);
    mha__sources_lay_out(arena, g->model, false, &g->cross.own);
    g->saved.dsource = mha__take(arena, rows, (size_t)g->model->config.hidden * sizeof *g->saved.dsource);
}

void mha__grads_source_call(const mha_model_grads *g, mha__block_call *call)
{
    if (!g->encoder) return;
    call->cross = (mha__attn_call){.plan = g->cross.plan,
                                   .in = &g->cross_in,
                                   .outputs = MHA__ATTN_BOTH,
                                   .key = g->encoder->saved.last,
                                   .value = g->encoder->saved.last};
    call->dsource = mha__grads_parameters(g) ? g->saved.dsource : NULL;
}

void mha__grads_source_begin(const mha_model_grads *g)
{
    const int64_t rows = g->cross.input.batch * g->cross.input.length;
    if (g->encoder) memset(g->saved.dsource, 0, (size_t)(rows * g->model->config.hidden) * sizeof *g->saved.dsource);
}
