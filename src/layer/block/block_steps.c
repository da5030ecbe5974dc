/* block_steps.c - steps of a block's passes with a trace: norms, residual connections and their backward passes. Used
 * by transformer_block_backward.c and cross_block_backward.c. */
#include "layer/block/transformer_block_backward.h"
#include "layer/elementwise.h"
#include <string.h>

int64_t mha__block_rows(const mha__block_call *c)
{
    return c->attn.in->batch * c->attn.in->length;
}

mha_status mha__block_norm(const mha__block_call *c, int which, const float *x, float *y, mha_error *err)
{
    return mha_norm_forward(c->block->ctx, &c->block->norm[which], mha__block_rows(c), c->block->hidden, x, NULL, y,
                            err);
}

mha_status mha__block_branch_input(const mha__block_call *c, int which, const float *x, const float **input,
                                   mha_error *err)
{
    *input = c->block->norm[which].weight ? c->scratch.normed : x;
    return *input == x ? MHA_OK : mha__block_norm(c, which, x, c->scratch.normed, err);
}

void mha__block_add(const mha__block_call *c, const float *y, float *x)
{
    mha__join(c->block->ctx, MHA__ADD, mha__block_rows(c) * c->block->hidden, y, x);
}

void mha__block_copy(const mha__block_call *c, const float *x, float *y)
{
    memcpy(y, x, (size_t)(mha__block_rows(c) * c->block->hidden) * sizeof *x);
}

mha_status mha__block_norm_back(const mha__block_call *c, const mha__block_slots *slots, int which, const float *x,
                                const float *dy, bool add_dx, float *dx, mha_error *err)
{
    const mha_norm_gradient g = {.size = sizeof g,
                                 .rows = mha__block_rows(c),
                                 .width = c->block->hidden,
                                 .x = x,
                                 .dy = dy,
                                 .dx = dx,
                                 .add = add_dx,
                                 .dweight = slots->norm[which].dweight,
                                 .dbias = slots->norm[which].dbias};
    return mha_norm_backward(c->block->ctx, &c->block->norm[which], &g, err);
}

mha_status mha__block_input_back(const mha__block_call *c, const mha__block_slots *slots, int which, const float *x,
                                 float *dx, mha_error *err)
{
    if (c->block->norm[which].weight) return mha__block_norm_back(c, slots, which, x, c->scratch.branch, true, dx, err);
    mha__block_add(c, c->scratch.branch, dx);
    return MHA_OK;
}
