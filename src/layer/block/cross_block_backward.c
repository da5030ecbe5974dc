/* cross_block_backward.c - the cross-attention of a block in passes that record: forward with a trace, and backward.
 * Keys and values are computed from the source in the same pass, so that the source gets a gradient. */
#include "base/error.h"
#include "layer/block/cross_block.h"
#include "layer/block/transformer_block_backward.h"
#include "layer/elementwise.h"
#include <string.h>

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

/* ---- steps of both passes ---- */

static int64_t rows_of(const mha__block_call *c)
{
    return c->attn.in->batch * c->attn.in->length;
}

static size_t bytes_of(const mha__block_call *c)
{
    return (size_t)(rows_of(c) * c->block->hidden) * sizeof(float);
}

static mha_status norm(const mha__block_call *c, const float *x, float *y, mha_error *err)
{
    return mha_norm_forward(c->block->ctx, &c->block->norm[MHA__BLOCK_CROSS_NORM], rows_of(c), c->block->hidden, x,
                            NULL, y, err);
}

/* Sets *input to the input of the projection of q: cross_x, or its norm in a pre-norm block. */
static mha_status query_input(const mha__block_call *c, const float **input, mha_error *err)
{
    const bool normed = c->block->pre_norm && c->block->norm[MHA__BLOCK_CROSS_NORM].weight;
    *input = normed ? c->scratch.normed : c->trace.cross_x;
    return normed ? norm(c, c->trace.cross_x, c->scratch.normed, err) : MHA_OK;
}

static void add(const mha__block_call *c, int64_t rows, const float *y, float *x)
{
    mha__join(c->block->ctx, MHA__ADD, rows * c->block->hidden, y, x);
}

mha_status mha__cross_keep(const mha__block_call *c, float *x, mha_error *err)
{
    const mha__block_trace *t = &c->trace;
    const mha_block *b = c->block;
    const float *input = NULL;
    float *const y = b->pre_norm ? c->scratch.branch : t->cross_sum;
    memcpy(t->cross_x, x, bytes_of(c));
    MHA__TRY(query_input(c, &input, err));
    MHA__TRY(mha__attn_attend(b->cross, &c->cross, input, &t->cross, &c->scratch.cross, err));
    mha__attn_output(b->cross, &c->cross, &t->cross, &c->scratch.cross, 0, rows_of(c), y);
    if (b->pre_norm && b->residual_scale != 1) mha__scale(b->ctx, b->residual_scale, rows_of(c) * b->hidden, y);
    if (b->pre_norm) {
        add(c, rows_of(c), y, x);
        return MHA_OK;
    }
    add(c, rows_of(c), t->cross_x, y);
    return norm(c, y, x, err);
}

/* ---- backward pass ---- */

static mha_status norm_back(const mha__block_call *c, const mha__block_slots *slots, const float *x, const float *dy,
                            bool add_dx, float *dx, mha_error *err)
{
    const mha__grad_slot *slot = &slots->norm[MHA__BLOCK_CROSS_NORM];
    const mha_norm_gradient g = {.size = sizeof g,
                                 .rows = rows_of(c),
                                 .width = c->block->hidden,
                                 .x = x,
                                 .dy = dy,
                                 .dx = dx,
                                 .add = add_dx,
                                 .dweight = slot->dweight,
                                 .dbias = slot->dbias};
    return mha_norm_backward(c->block->ctx, &c->block->norm[MHA__BLOCK_CROSS_NORM], &g, err);
}

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
    if (dsource) add(c, c->attn.in->batch * c->attn.in->source->tokens, dsource, c->dsource);
    return MHA_OK;
}

static mha_status back_pre_norm(const mha__block_call *c, const mha__block_slots *slots, float *dx, mha_error *err)
{
    const mha_block *b = c->block;
    const float *dy = dx;
    if (b->residual_scale != 1) {
        memcpy(c->scratch.outer, dx, bytes_of(c));
        mha__scale(b->ctx, b->residual_scale, rows_of(c) * b->hidden, c->scratch.outer);
        dy = c->scratch.outer;
    }
    MHA__TRY(attend_back(c, slots, dy, err));
    if (b->norm[MHA__BLOCK_CROSS_NORM].weight)
        return norm_back(c, slots, c->trace.cross_x, c->scratch.branch, true, dx, err);
    add(c, rows_of(c), c->scratch.branch, dx);
    return MHA_OK;
}

mha_status mha__cross_back(const mha__block_call *c, const mha__block_slots *slots, float *dx, mha_error *err)
{
    if (c->block->pre_norm) return back_pre_norm(c, slots, dx, err);
    MHA__TRY(norm_back(c, slots, c->trace.cross_sum, dx, false, dx, err));
    MHA__TRY(attend_back(c, slots, dx, err));
    add(c, rows_of(c), c->scratch.branch, dx);
    return MHA_OK;
}
