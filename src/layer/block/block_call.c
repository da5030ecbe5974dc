/* block_call.c - public functions that run a single transformer block: its forward pass and workspace, and the keys and
 * values of its cross-attention. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/block/cross_block.h"

mha_status mha_block_workspace(const mha_block *block, const mha_layer_input *input, size_t *bytes, mha_error *err)
{
    mha_layer_input in;
    mha_layer_source source;
    mha_attn_plan *plan = NULL, *cross = NULL;
    if (!block || !bytes) return mha__fail(err, MHA_ERR_ARG, "block: %s must not be NULL", block ? "bytes" : "block");
    MHA__TRY(mha__layer_input(&in, input, err));
    MHA__TRY(mha__block_cross_plan(block, &in, &source, &cross, err));
    mha_status status = mha__attn_plan(block->attn, &(mha__attn_call){.in = &in}, &plan, err);
    if (status == MHA_OK) status = mha__block_bytes(block, plan, &in, bytes, err);
    mha_attn_plan_free(plan);
    mha_attn_plan_free(cross);
    return status;
}

mha_status mha_block_forward(const mha_block *block, const mha_layer_input *input, float *x, mha_error *err)
{
    mha_layer_input in;
    mha_layer_source source;
    mha_attn_plan *plan = NULL, *cross = NULL;
    size_t bytes = 0;
    void *own = NULL;
    if (!block || !x) return mha__fail(err, MHA_ERR_ARG, "block: %s must not be NULL", block ? "x" : "block");
    MHA__TRY(mha__layer_call_input(&in, input, err));
    MHA__TRY(mha__block_cross_plan(block, &in, &source, &cross, err));
    mha_status status = mha__attn_plan(block->attn, &(mha__attn_call){.in = &in}, &plan, err);
    if (status == MHA_OK) status = mha__block_bytes(block, plan, &in, &bytes, err);
    if (status == MHA_OK) status = mha__layer_workspace(block->ctx, bytes, &in, &own, "a block's workspace", err);
    if (status == MHA_OK) status = mha__block_run(block, plan, &in, x, err);
    mha_attn_plan_free(plan);
    mha_attn_plan_free(cross);
    mha__layer_workspace_end(block->ctx, &in, own);
    return status;
}

mha_status mha_block_source(const mha_block *block, const float *x, int64_t rows, float *kv, mha_error *err)
{
    if (!block || !block->cross)
        return mha__fail(err, MHA_ERR_ARG, "block: %s must not be NULL", block ? "cross" : "block");
    return mha_attn_layer_source(block->cross, x, rows, kv, err);
}
