/* cross_block_backward.c - the cross-attention of a block in passes that record: forward with a trace, and backward.
 * Keys and values are computed from the source in the same pass, so that the source gets a gradient. */
#include "base/error.h"
#include "layer/block/cross_block.h"
#include "layer/block/transformer_block_backward.h"
#include "layer/elementwise.h"

static mha__attn_call call_of(const mha_layer_input *in)
{
    return (mha__attn_call){.in = in, .outputs = MHA__ATTN_BOTH};
}

void mha__cross_trace_take(mha__arena *arena, const mha_block *b, const mha_layer_input *in, mha__block_trace *t)
{
    const size_t rows = (size_t)(in->batch * in->length), width = (size_t)b->hidden * sizeof(float);
    const mha_layer_input inner = mha__block_cross_input(in);
    const mha__attn_call call = call_of(&inner);
    if (!b->cross) return;
    t->cross_x = mha__take(arena, rows, width);
    t->cross_sum = b->pre_norm ? NULL : mha__take(arena, rows, width);
    mha__attn_trace_take(arena, b->cross, &call, &t->cross);
}

void mha__cross_scratch_take(mha__arena *arena, const mha_block *b, const mha_layer_input *in, size_t space_bytes,
                             mha__block_scratch *s)
{
    const mha_layer_input inner = mha__block_cross_input(in);
    const mha__attn_call call = call_of(&inner);
    s->dsource = NULL;
    if (!b->cross) return;
    s->dsource = mha__take(arena, (size_t)(in->batch * in->source->tokens), (size_t)b->hidden * sizeof(float));
    mha__attn_scratch_take(arena, b->cross, &call, space_bytes, &s->cross);
}

/* ---- forward pass ---- */

/* Sets *input to the input of the projection of q: cross_x, or its norm in a pre-norm block. */
static mha_status query_input(const mha__block_call *c, const float **input, mha_error *err)
{
    *input = c->trace.cross_x;
    return c->block->pre_norm ? mha__block_branch_input(c, MHA__BLOCK_CROSS_NORM, c->trace.cross_x, input, err)
                              : MHA_OK;
}

mha_status mha__cross_keep(const mha__block_call *c, float *x, mha_error *err)
{
    const mha__block_trace *t = &c->trace;
    const mha_block *b = c->block;
    const float *input = NULL;
    float *const y = b->pre_norm ? c->scratch.branch : t->cross_sum;
    mha__block_copy(c, x, t->cross_x);
    MHA__TRY(query_input(c, &input, err));
    MHA__TRY(mha__attn_attend(b->cross, &c->cross, input, &t->cross, &c->scratch.cross, err));
    mha__attn_output(b->cross, &c->cross, &t->cross, &c->scratch.cross, 0, mha__block_rows(c), y);
    if (b->pre_norm && b->residual_scale != 1) mha__scale(b->ctx, b->residual_scale, mha__block_rows(c) * b->hidden, y);
    if (b->pre_norm) {
        mha__block_add(c, y, x);
        return MHA_OK;
    }
    mha__block_add(c, t->cross_x, y);
    return mha__block_norm(c, MHA__BLOCK_CROSS_NORM, y, x, err);
}

/* ---- backward pass ---- */

/* Computes the gradient of the input of q in `branch`, and adds the gradient of the source to dsource. */
static mha_status attend_back(const mha__block_call *c, const mha__block_slots *slots, const float *dy, mha_error *err)
{
    const mha__block_scratch *s = &c->scratch;
    float *const dsource = c->dsource ? s->dsource : NULL;
    const mha__attn_inputs_grad grads = {.x = {s->branch, dsource, dsource}};
    const float *input = NULL;
    MHA__TRY(query_input(c, &input, err));
    MHA__TRY(
        mha__attn_back(c->block->cross, &c->cross, &slots->cross, input, &c->trace.cross, &s->cross, dy, &grads, err));
    const int64_t elements = c->attn.in->batch * c->attn.in->source->tokens * c->block->hidden;
    if (dsource) mha__join(c->block->ctx, MHA__ADD, elements, dsource, c->dsource);
    return MHA_OK;
}

static mha_status back_pre_norm(const mha__block_call *c, const mha__block_slots *slots, float *dx, mha_error *err)
{
    const mha_block *b = c->block;
    const float *dy = dx;
    if (b->residual_scale != 1) {
        mha__block_copy(c, dx, c->scratch.outer);
        mha__scale(b->ctx, b->residual_scale, mha__block_rows(c) * b->hidden, c->scratch.outer);
        dy = c->scratch.outer;
    }
    MHA__TRY(attend_back(c, slots, dy, err));
    return mha__block_input_back(c, slots, MHA__BLOCK_CROSS_NORM, c->trace.cross_x, dx, err);
}

mha_status mha__cross_back(const mha__block_call *c, const mha__block_slots *slots, float *dx, mha_error *err)
{
    if (c->block->pre_norm) return back_pre_norm(c, slots, dx, err);
    MHA__TRY(mha__block_norm_back(c, slots, MHA__BLOCK_CROSS_NORM, c->trace.cross_sum, dx, false, dx, err));
    MHA__TRY(attend_back(c, slots, dx, err));
    mha__block_add(c, c->scratch.branch, dx);
    return MHA_OK;
}
