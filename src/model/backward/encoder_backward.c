/* encoder_backward.c - passes with gradients of encoder-decoders: the encoder records its own pass, the cross-attention
 * of every decoder layer adds to the gradient of its last hidden states, and then the encoder runs backward. */
#include "base/error.h"
#include "layer/block/cross_block.h"
#include "model/backward/model_grads.h"
#include <string.h>

void mha__grads_source_describe(mha_model_grads *g)
{
    if (!g->encoder) return;
    mha__cross_bind(g->model, &g->batch, &g->cross);
    g->cross_in = mha__block_cross_input(&g->batch.layer);
}

mha_status mha__grads_source_plan(mha_model_grads *g, int64_t layer, mha_error *err)
{
    const mha_attn_layer *cross = g->model->block[layer]->cross;
    if (!g->encoder || (g->cross.plan && mha__attn_layer_equivalent(g->cross.planned, cross))) return MHA_OK;
    mha_attn_plan_free(g->cross.plan);
    g->cross.plan = NULL;
    g->cross.planned = cross;
    const mha__attn_call call = {.in = &g->cross_in, .outputs = MHA__ATTN_BOTH};
    return mha__attn_plan(cross, &call, &g->cross.plan, err);
}

void mha__grads_source_lay_out(mha__arena *arena, mha_model_grads *g)
{
    g->saved.dsource = NULL;
    if (!g->encoder) return;
    const size_t rows = (size_t)(g->cross.input.batch * g->cross.input.length);
    mha__sources_lay_out(arena, g->model, false, &g->cross.own);
    g->saved.dsource = mha__take(arena, rows, (size_t)g->model->config.hidden * sizeof *g->saved.dsource);
}

void mha__grads_source_call(mha_model_grads *g, int64_t layer, const mha_model_gradient *wanted, mha__block_call *call)
{
    if (!g->encoder) return;
    const int64_t heads = g->model->config.heads, at = layer * g->batch.sequences * heads;
    float *dgates = wanted && wanted->cross_gates ? wanted->cross_gates + at : NULL;
    mha__cross_turn_gates(g->model, &g->batch, &g->cross, layer);
    g->cross_in = mha__block_cross_input(&g->batch.layer);
    call->cross = (mha__attn_call){.plan = g->cross.plan,
                                   .in = &g->cross_in,
                                   .outputs = MHA__ATTN_BOTH,
                                   .key = g->encoder->saved.last,
                                   .value = g->encoder->saved.last,
                                   .also.dgates = {dgates, {heads, 1}}};
    call->dsource = wanted && mha__grads_source_wanted(g, wanted) ? g->saved.dsource : NULL;
}

bool mha__grads_source_wanted(const mha_model_grads *g, const mha_model_gradient *wanted)
{
    return g->encoder && (mha__grads_parameters(g) || wanted->encoder_gates);
}

void mha__grads_source_begin(const mha_model_grads *g)
{
    const int64_t rows = g->cross.input.batch * g->cross.input.length;
    if (g->encoder) memset(g->saved.dsource, 0, (size_t)(rows * g->model->config.hidden) * sizeof *g->saved.dsource);
}
