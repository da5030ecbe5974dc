/* transformer_block_backward.c - a block's forward pass with a trace, and its backward pass. Values that are fast to
 * recompute are not stored: outputs of norms, and everything after the activation. */
#include "layer/block/transformer_block_backward.h"
#include "base/error.h"
#include "layer/elementwise.h"
#include "layer/linear/linear.h"
#include <string.h>

/* ---- memory ---- */

/* Allocates the trace of feed-forward from the arena. */
static void trace_feed(mha__arena *arena, const mha_block *b, size_t rows, bool learns, mha__block_trace *t)
{
    const size_t width = (size_t)b->hidden * sizeof(float), wide = (size_t)b->intermediate * sizeof(float);
    if (b->norm[MHA__BLOCK_MLP_OUT_NORM].weight || !b->pre_norm) t->mlp_branch = mha__take(arena, rows, width);
    t->up = mha__take(arena, rows, wide);
    if (b->gate) t->gate = mha__take(arena, rows, wide);
    t->slopes = !learns && !b->gate && b->activation != MHA_ACT_NONE && b->activation != MHA_ACT_RELU;
}

void mha__block_trace_take(mha__arena *arena, const mha_block *b, const mha_layer_input *in, bool learns,
                           mha__block_trace *t)
{
    const size_t rows = (size_t)(in->batch * in->length), width = (size_t)b->hidden * sizeof(float);
    *t = (mha__block_trace){0};
    t->x = learns || b->pre_norm ? mha__take(arena, rows, width) : NULL;
    if (b->norm[MHA__BLOCK_ATTN_OUT_NORM].weight) t->attn_branch = mha__take(arena, rows, width);
    if (!b->parallel && (b->up || !b->pre_norm)) t->middle = mha__take(arena, rows, width);
    if (b->up) trace_feed(arena, b, rows, learns, t);
    mha__attn_trace_take(arena, b->attn, &(mha__attn_call){.in = in, .outputs = MHA__ATTN_BOTH}, &t->attn);
}

void mha__block_scratch_take(mha__arena *arena, const mha_block *b, const mha_layer_input *in, bool drops,
                             size_t space_bytes, mha__block_scratch *s)
{
    const bool normed = b->norm[MHA__BLOCK_ATTN_OUT_NORM].weight || b->norm[MHA__BLOCK_MLP_OUT_NORM].weight;
    const int64_t rows = in->batch * in->length;
    const size_t width = (size_t)b->hidden * sizeof(float), wide = (size_t)b->intermediate * sizeof(float);
    const size_t chunk = (size_t)mha__min64(rows, MHA__CHUNK_ROWS);
    s->branch = mha__take(arena, (size_t)rows, width);
    s->normed = mha__take(arena, (size_t)rows, width);
    const bool differs = drops || normed || b->parallel || b->residual_scale != 1;
    s->outer = differs ? mha__take(arena, (size_t)rows, width) : NULL;
    s->wide = mha__take(arena, chunk, wide);
    s->other = b->gate ? mha__take(arena, chunk, wide) : NULL;
    s->dwide = mha__take(arena, chunk, wide);
    s->left = b->up ? mha__take(arena, 1, mha__linear_left(b->up, (int64_t)chunk)) : NULL;
    mha__attn_scratch_take(arena, b->attn, &(mha__attn_call){.in = in, .outputs = MHA__ATTN_BOTH}, space_bytes,
                           &s->attn);
}

/* ---- forward pass ---- */

static int64_t rows_of(const mha__block_call *c)
{
    return c->attn.in->batch * c->attn.in->length;
}

static mha_status norm(const mha__block_call *c, int which, const float *x, float *y, mha_error *err)
{
    return mha_norm_forward(c->block->ctx, &c->block->norm[which], rows_of(c), c->block->hidden, x, NULL, y, err);
}

/* Sets *input to the input of a branch in a pre-norm block: the norm of x, computed in `normed`, or x without a
 * norm. */
static mha_status branch_input(const mha__block_call *c, int which, const float *x, const float **input, mha_error *err)
{
    *input = c->block->norm[which].weight ? c->scratch.normed : x;
    return *input == x ? MHA_OK : norm(c, which, x, c->scratch.normed, err);
}

static void add(const mha__block_call *c, const float *y, float *x)
{
    mha__join(c->block->ctx, MHA__ADD, rows_of(c) * c->block->hidden, y, x);
}

static void copy(const mha__block_call *c, const float *x, float *y)
{
    memcpy(y, x, (size_t)(rows_of(c) * c->block->hidden) * sizeof *x);
}

static void drop(const mha__block_call *c, const mha__drop *of, float *x)
{
    mha__drop_rows(c->block->ctx, of, c->attn.in, c->block->hidden, x);
}

/* Computes the input of `down` from the stored up and gate: act(up), or act(gate) * up. Copies act(gate) to `gated`
 * unless it is NULL. */
static mha_status middle_of(const mha_block *b, int64_t rows, const float *up, const float *gate, float *wide,
                            float *gated, mha_error *err)
{
    const int64_t count = rows * b->intermediate;
    memcpy(wide, gate ? gate : up, (size_t)count * sizeof *wide);
    MHA__TRY(mha_activation_forward(b->ctx, b->activation, rows, b->intermediate, wide, err));
    if (!gate) return MHA_OK;
    if (gated) memcpy(gated, wide, (size_t)count * sizeof *gated);
    mha__join(b->ctx, MHA__MULTIPLY, count, up, wide);
    return MHA_OK;
}

/* Replaces the activation's input in `up` with the activation's derivative. */
static mha_status keep_slopes(const mha__block_call *c, int64_t rows, float *up, mha_error *err)
{
    const mha_block *b = c->block;
    float *ones = c->scratch.dwide; /* scratch memory that is unused at this point */
    for (int64_t i = 0; i < rows * b->intermediate; i++)
        ones[i] = 1;
    return mha_activation_backward(b->ctx, b->activation, rows, b->intermediate, up, ones, up, err);
}

/* Runs feed-forward and stores its trace; computes the output only if y is not NULL. */
static mha_status feed_keep(const mha__block_call *c, const float *x, float *y, mha_error *err)
{
    const mha_block *b = c->block;
    const mha__block_trace *t = &c->trace;
    for (int64_t r = 0; r < rows_of(c); r += MHA__CHUNK_ROWS) {
        const int64_t chunk = mha__min64(MHA__CHUNK_ROWS, rows_of(c) - r);
        float *up = t->up + r * b->intermediate, *gate = b->gate ? t->gate + r * b->intermediate : NULL;
        mha__linear_call call = {
            .x = x + r * b->hidden, .rows = chunk, .y = up, .linear = true, .left = c->scratch.left};
        mha__linear_run(b->up, &call);
        call.y = gate;
        if (gate) mha__linear_run(b->gate, &call);
        if (y) MHA__TRY(middle_of(b, chunk, up, gate, c->scratch.wide, NULL, err));
        if (t->slopes) MHA__TRY(keep_slopes(c, chunk, up, err));
        if (y) MHA__TRY(mha_linear_forward(b->down, c->scratch.wide, chunk, y + r * b->hidden, err));
    }
    return MHA_OK;
}

static mha_status attend(const mha__block_call *c, const float *x, float *y, mha_error *err)
{
    const mha_attn_layer *attn = c->block->attn;
    MHA__TRY(mha__attn_attend(attn, &c->attn, x, &c->trace.attn, &c->scratch.attn, err));
    mha__attn_output(attn, &c->attn, &c->trace.attn, &c->scratch.attn, 0, rows_of(c), y);
    return MHA_OK;
}

static mha_status keep_post_norm(const mha__block_call *c, float *x, mha_error *err)
{
    const mha__block_trace *t = &c->trace;
    MHA__TRY(attend(c, x, t->middle, err));
    drop(c, &c->attn_drop, t->middle);
    add(c, x, t->middle);
    MHA__TRY(norm(c, MHA__BLOCK_ATTN_NORM, t->middle, x, err));
    if (!c->block->up) return MHA_OK;
    MHA__TRY(feed_keep(c, x, t->mlp_branch, err));
    drop(c, &c->mlp_drop, t->mlp_branch);
    add(c, x, t->mlp_branch);
    return c->again ? MHA_OK : norm(c, MHA__BLOCK_MLP_NORM, t->mlp_branch, x, err);
}

/* Multiplies the branch by the residual factor, applies dropout, and adds the branch to x. */
static void join(const mha__block_call *c, const mha__drop *of, float *x)
{
    const int64_t count = rows_of(c) * c->block->hidden;
    if (c->block->residual_scale != 1) mha__scale(c->block->ctx, c->block->residual_scale, count, c->scratch.branch);
    drop(c, of, c->scratch.branch);
    add(c, c->scratch.branch, x);
}

/* Returns the input of the norm before feed-forward in a pre-norm block. */
static const float *feed_source(const mha__block_call *c)
{
    return c->block->parallel ? c->trace.x : c->trace.middle;
}

/* Runs the feed-forward part of a pre-norm block. */
static mha_status keep_feed_pre_norm(const mha__block_call *c, float *x, mha_error *err)
{
    const mha__block_trace *t = &c->trace;
    const mha__block_scratch *s = &c->scratch;
    const float *input = NULL;
    if (t->middle) copy(c, x, t->middle);
    MHA__TRY(branch_input(c, mha__block_feed_norm(c->block), feed_source(c), &input, err));
    MHA__TRY(feed_keep(c, input, t->mlp_branch ? t->mlp_branch : c->again ? NULL : s->branch, err));
    if (c->again) return MHA_OK;
    if (t->mlp_branch) MHA__TRY(norm(c, MHA__BLOCK_MLP_OUT_NORM, t->mlp_branch, s->branch, err));
    join(c, &c->mlp_drop, x);
    return MHA_OK;
}

static mha_status keep_pre_norm(const mha__block_call *c, float *x, mha_error *err)
{
    const mha__block_trace *t = &c->trace;
    const float *input = NULL;
    MHA__TRY(branch_input(c, MHA__BLOCK_ATTN_NORM, t->x, &input, err));
    MHA__TRY(attend(c, input, t->attn_branch ? t->attn_branch : c->scratch.branch, err));
    if (t->attn_branch) MHA__TRY(norm(c, MHA__BLOCK_ATTN_OUT_NORM, t->attn_branch, c->scratch.branch, err));
    join(c, &c->attn_drop, x);
    return c->block->up ? keep_feed_pre_norm(c, x, err) : MHA_OK;
}

mha_status mha__block_keep(const mha__block_call *call, float *x, mha_error *err)
{
    if (call->trace.x) copy(call, x, call->trace.x);
    return (call->block->pre_norm ? keep_pre_norm : keep_post_norm)(call, x, err);
}

/* ---- backward pass ---- */

/* Sets dx to the gradient of a norm's input, or adds the gradient to dx. */
static mha_status norm_back(const mha__block_call *c, const mha__block_slots *slots, int which, const float *x,
                            const float *dy, bool add_dx, float *dx, mha_error *err)
{
    const mha_norm_gradient g = {.size = sizeof g,
                                 .rows = rows_of(c),
                                 .width = c->block->hidden,
                                 .x = x,
                                 .dy = dy,
                                 .dx = dx,
                                 .add = add_dx,
                                 .dweight = slots->norm[which].dweight,
                                 .dbias = slots->norm[which].dbias};
    return mha_norm_backward(c->block->ctx, &c->block->norm[which], &g, err);
}

static mha_status dense_back(const mha_block *b, const mha__grad_slot *slot, int64_t rows, int64_t in, int64_t out,
                             const float *x, const float *dy, bool add_dx, float *dx, mha_error *err)
{
    const mha__linear_grad g = {
        .slot = *slot, .rows = rows, .in = in, .out = out, .x = x, .dy = dy, .dx = dx, .add_dx = add_dx};
    return mha__linear_backward(b->ctx, &g, err);
}

static mha_status feed_back_chunk(const mha__block_call *c, const mha__block_slots *slots, int64_t first, int64_t rows,
                                  const float *x, const float *dy, float *dx, mha_error *err)
{
    const mha_block *b = c->block;
    const mha__block_scratch *s = &c->scratch;
    const int64_t E = b->hidden, I = b->intermediate, count = rows * I;
    const float *up = c->trace.up + first * I, *gate = b->gate ? c->trace.gate + first * I : NULL;
    if (gate || slots->down.dweight) MHA__TRY(middle_of(b, rows, up, gate, s->wide, s->other, err));
    MHA__TRY(dense_back(b, &slots->down, rows, I, E, s->wide, dy + first * E, false, s->dwide, err));
    x += first * E;
    dx += first * E;
    if (!gate) {
        if (c->trace.slopes)
            mha__join(b->ctx, MHA__MULTIPLY, count, up, s->dwide);
        else
            MHA__TRY(mha_activation_backward(b->ctx, b->activation, rows, I, up, s->dwide, s->dwide, err));
        return dense_back(b, &slots->up, rows, E, I, x, s->dwide, false, dx, err);
    }
    mha__join(b->ctx, MHA__MULTIPLY, count, s->dwide, s->other); /* product rule: the gradient of up is multiplied by
                                                                  * act(gate) */
    MHA__TRY(dense_back(b, &slots->up, rows, E, I, x, s->other, false, dx, err));
    mha__join(b->ctx, MHA__MULTIPLY, count, up, s->dwide);
    MHA__TRY(mha_activation_backward(b->ctx, b->activation, rows, I, gate, s->dwide, s->dwide, err));
    return dense_back(b, &slots->gate, rows, E, I, x, s->dwide, true, dx, err);
}

static mha_status feed_back(const mha__block_call *c, const mha__block_slots *slots, const float *x, const float *dy,
                            float *dx, mha_error *err)
{
    for (int64_t r = 0; r < rows_of(c); r += MHA__CHUNK_ROWS)
        MHA__TRY(feed_back_chunk(c, slots, r, mha__min64(MHA__CHUNK_ROWS, rows_of(c) - r), x, dy, dx, err));
    return MHA_OK;
}

static mha_status attend_back(const mha__block_call *c, const mha__block_slots *slots, const float *x, const float *dy,
                              float *dx, mha_error *err)
{
    const mha__attn_inputs_grad grads = {.x = {dx, dx, dx}};
    return mha__attn_back(c->block->attn, &c->attn, &slots->attn, x, &c->trace.attn, &c->scratch.attn, dy, &grads, err);
}

/* Returns the gradient of a branch: dx itself or, with dropout or a residual factor, a copy of dx in `outer` to which
 * both are applied. */
static const float *branch_back(const mha__block_call *c, const mha__drop *of, const float *dx)
{
    const float factor = c->block->residual_scale;
    if (of->share == 0 && factor == 1) return dx;
    if (dx != c->scratch.outer) copy(c, dx, c->scratch.outer);
    drop(c, of, c->scratch.outer);
    if (factor != 1) mha__scale(c->block->ctx, factor, rows_of(c) * c->block->hidden, c->scratch.outer);
    return c->scratch.outer;
}

/* Backpropagates the gradient in `branch` through the norm of a pre-norm block, if present, and adds the result to
 * dx. */
static mha_status input_back(const mha__block_call *c, const mha__block_slots *slots, int which, const float *x,
                             float *dx, mha_error *err)
{
    if (c->block->norm[which].weight) return norm_back(c, slots, which, x, c->scratch.branch, true, dx, err);
    add(c, c->scratch.branch, dx);
    return MHA_OK;
}

/* Returns true if `up` or `gate` is trained. Only these weight gradients require the input of feed-forward. */
static bool feed_learns(const mha__block_slots *slots)
{
    return slots->up.dweight || slots->gate.dweight;
}

/* Backpropagates dx through the feed-forward part of a post-norm block. */
static mha_status feed_back_post_norm(const mha__block_call *c, const mha__block_slots *slots, float *dx,
                                      mha_error *err)
{
    const mha__block_trace *t = &c->trace;
    const mha__block_scratch *s = &c->scratch;
    MHA__TRY(norm_back(c, slots, MHA__BLOCK_MLP_NORM, t->mlp_branch, dx, false, dx, err));
    if (feed_learns(slots)) MHA__TRY(norm(c, MHA__BLOCK_ATTN_NORM, t->middle, s->normed, err));
    MHA__TRY(feed_back(c, slots, s->normed, branch_back(c, &c->mlp_drop, dx), s->branch, err));
    add(c, s->branch, dx);
    return MHA_OK;
}

static mha_status back_post_norm(const mha__block_call *c, const mha__block_slots *slots, float *dx, mha_error *err)
{
    const mha__block_trace *t = &c->trace;
    const mha__block_scratch *s = &c->scratch;
    if (c->block->up) MHA__TRY(feed_back_post_norm(c, slots, dx, err));
    MHA__TRY(norm_back(c, slots, MHA__BLOCK_ATTN_NORM, t->middle, dx, false, dx, err));
    const float *of_attn = branch_back(c, &c->attn_drop, dx);
    if (c->ends) return attend_back(c, slots, t->x, of_attn, NULL, err);
    MHA__TRY(attend_back(c, slots, t->x, of_attn, s->branch, err));
    add(c, s->branch, dx);
    return MHA_OK;
}

/* Backpropagates *dy through the output norm, if present: *dy becomes the gradient of the norm's input, in `outer`. */
static mha_status outer_norm_back(const mha__block_call *c, const mha__block_slots *slots, int which,
                                  const float *branch, const float **dy, mha_error *err)
{
    const float *from = *dy;
    if (!branch) return MHA_OK;
    *dy = c->scratch.outer;
    return norm_back(c, slots, which, branch, from, false, c->scratch.outer, err);
}

/* Backward pass of the feed-forward part of a pre-norm block; updates dx. In a parallel block, first saves the gradient
 * of the block's output and sets *sum to the copy. */
static mha_status feed_back_pre_norm(const mha__block_call *c, const mha__block_slots *slots, float *dx,
                                     const float **sum, mha_error *err)
{
    const mha__block_trace *t = &c->trace;
    const int which = mha__block_feed_norm(c->block);
    const float *of_mlp = branch_back(c, &c->mlp_drop, dx), *input = NULL;
    MHA__TRY(outer_norm_back(c, slots, MHA__BLOCK_MLP_OUT_NORM, t->mlp_branch, &of_mlp, err));
    if (feed_learns(slots)) MHA__TRY(branch_input(c, which, feed_source(c), &input, err));
    MHA__TRY(feed_back(c, slots, input ? input : c->scratch.normed, of_mlp, c->scratch.branch, err));
    if (c->block->parallel) {
        copy(c, dx, c->scratch.outer);
        *sum = c->scratch.outer;
    }
    return input_back(c, slots, which, feed_source(c), dx, err);
}

static mha_status back_pre_norm(const mha__block_call *c, const mha__block_slots *slots, float *dx, mha_error *err)
{
    const mha__block_trace *t = &c->trace;
    const mha__block_scratch *s = &c->scratch;
    const float *sum = dx, *input = s->normed;
    if (c->block->up) MHA__TRY(feed_back_pre_norm(c, slots, dx, &sum, err));
    const float *of_attn = branch_back(c, &c->attn_drop, sum);
    MHA__TRY(outer_norm_back(c, slots, MHA__BLOCK_ATTN_OUT_NORM, t->attn_branch, &of_attn, err));
    if (mha__attn_learns(&slots->attn)) MHA__TRY(branch_input(c, MHA__BLOCK_ATTN_NORM, t->x, &input, err));
    if (c->ends) return attend_back(c, slots, input, of_attn, NULL, err);
    MHA__TRY(attend_back(c, slots, input, of_attn, s->branch, err));
    return input_back(c, slots, MHA__BLOCK_ATTN_NORM, t->x, dx, err);
}

mha_status mha__block_back(const mha__block_call *call, const mha__block_slots *slots, float *dx, mha_error *err)
{
    return (call->block->pre_norm ? back_pre_norm : back_post_norm)(call, slots, dx, err);
}
