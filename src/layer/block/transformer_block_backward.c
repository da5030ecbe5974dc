/* transformer_block_backward.c - a block's forward pass with a trace, and its backward pass. Values that are fast to
 * recompute are not stored: outputs of norms, and everything after the activation. */
#include "layer/block/transformer_block_backward.h"

#include "base/error.h"
#include "layer/block/block_convolution.h"
#include "layer/elementwise.h"
#include "layer/linear/linear.h"

/* ---- memory ---- */

void mha__block_trace_take(mha__arena *arena, const mha_block *b, const mha_layer_input *in, bool learns,
                           mha__block_trace *t)
{
    const size_t rows = (size_t)(in->batch * in->length), width = (size_t)b->hidden * sizeof(float);
    *t = (mha__block_trace){0};
    t->x = learns || b->pre_norm ? mha__take(arena, rows, width) : NULL;
    if (b->norm[MHA__BLOCK_ATTN_OUT_NORM].weight) t->attn_branch = mha__take(arena, rows, width);
    if (!b->parallel && (mha__block_feeds(b) || !b->pre_norm)) t->middle = mha__take(arena, rows, width);
    if (mha__block_feeds(b) && (b->norm[MHA__BLOCK_MLP_OUT_NORM].weight || !b->pre_norm))
        t->mlp_branch = mha__take(arena, rows, width);
    mha__feed_trace_take(arena, &b->feed, b->experts, rows, learns, &t->feed, &t->experts);
    mha__attn_trace_take(arena, b->attn, &(mha__attn_call){.in = in, .outputs = MHA__ATTN_BOTH}, &t->attn);
    mha__cross_trace_take(arena, b, in, t);
    if (b->convolution) mha__convolution_trace_take(arena, rows, width, t);
}

void mha__block_scratch_take(mha__arena *arena, const mha_block *b, const mha_layer_input *in, bool drops,
                             size_t space_bytes, mha__block_scratch *s)
{
    const bool normed = b->norm[MHA__BLOCK_ATTN_OUT_NORM].weight || b->norm[MHA__BLOCK_MLP_OUT_NORM].weight;
    const int64_t rows = in->batch * in->length;
    const size_t width = (size_t)b->hidden * sizeof(float);
    s->branch = mha__take(arena, (size_t)rows, width);
    s->normed = mha__take(arena, (size_t)rows, width);
    const bool differs = drops || normed || b->parallel || b->residual_scale != 1;
    s->outer = differs ? mha__take(arena, (size_t)rows, width) : NULL;
    mha__feed_work_take(arena, &b->feed, b->experts, (size_t)mha__block_chunk(b, rows), &s->feed);
    mha__attn_scratch_take(arena, b->attn, &(mha__attn_call){.in = in, .outputs = MHA__ATTN_BOTH}, space_bytes,
                           &s->attn);
    mha__cross_scratch_take(arena, b, in, space_bytes, s);
    if (b->convolution) mha__convolution_scratch_take(arena, b, rows, s);
}

/* ---- forward pass ---- */

static void drop(const mha__block_call *c, const mha__drop *of, float *x)
{
    mha__drop_rows(c->block->ctx, of, c->attn.in, c->block->hidden, x);
}

static mha__feed_call feed_call(const mha__block_call *c, int64_t first)
{
    const mha_block *b = c->block;
    return (mha__feed_call){.ctx = b->ctx,
                            .feed = &b->feed,
                            .experts = b->experts,
                            .hidden = b->hidden,
                            .first = first,
                            .rows = mha__block_chunk(b, mha__block_rows(c) - first),
                            .trace = &c->trace.feed,
                            .experts_trace = &c->trace.experts,
                            .work = &c->scratch.feed};
}

/* Runs feed-forward and stores its trace; computes the output only if y is not NULL. */
static mha_status feed_keep(const mha__block_call *c, const float *x, float *y, mha_error *err)
{
    const int64_t E = c->block->hidden;
    for (int64_t r = 0; r < mha__block_rows(c);) {
        const mha__feed_call call = feed_call(c, r);
        MHA__TRY(mha__feed_keep(&call, x + r * E, y ? y + r * E : NULL, err));
        r += call.rows;
    }
    return MHA_OK;
}

static mha_status attend(const mha__block_call *c, const float *x, float *y, mha_error *err)
{
    const mha_attn_layer *attn = c->block->attn;
    MHA__TRY(mha__attn_attend(attn, &c->attn, x, &c->trace.attn, &c->scratch.attn, err));
    mha__attn_output(attn, &c->attn, &c->trace.attn, &c->scratch.attn, 0, mha__block_rows(c), y);
    return MHA_OK;
}

static mha_status keep_post_norm(const mha__block_call *c, float *x, mha_error *err)
{
    const mha__block_trace *t = &c->trace;
    MHA__TRY(attend(c, x, t->middle, err));
    drop(c, &c->attn_drop, t->middle);
    mha__block_add(c, x, t->middle);
    MHA__TRY(mha__block_norm(c, MHA__BLOCK_ATTN_NORM, t->middle, x, err));
    if (c->block->cross) MHA__TRY(mha__cross_keep(c, x, err));
    if (!mha__block_feeds(c->block)) return MHA_OK;
    MHA__TRY(feed_keep(c, x, t->mlp_branch, err));
    drop(c, &c->mlp_drop, t->mlp_branch);
    mha__block_add(c, x, t->mlp_branch);
    if (c->again && !c->block->convolution) return MHA_OK;
    return mha__block_norm(c, MHA__BLOCK_MLP_NORM, t->mlp_branch, x, err);
}

/* Multiplies the branch by the residual factor, applies dropout, and adds the branch to x. */
static void join(const mha__block_call *c, const mha__drop *of, float *x)
{
    const int64_t count = mha__block_rows(c) * c->block->hidden;
    if (c->block->residual_scale != 1) mha__scale(c->block->ctx, c->block->residual_scale, count, c->scratch.branch);
    drop(c, of, c->scratch.branch);
    mha__block_add(c, c->scratch.branch, x);
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
    if (t->middle) mha__block_copy(c, x, t->middle);
    MHA__TRY(mha__block_branch_input(c, mha__block_feed_norm(c->block), feed_source(c), &input, err));
    MHA__TRY(feed_keep(c, input, t->mlp_branch ? t->mlp_branch : c->again ? NULL : s->branch, err));
    if (c->again) return MHA_OK;
    if (t->mlp_branch) MHA__TRY(mha__block_norm(c, MHA__BLOCK_MLP_OUT_NORM, t->mlp_branch, s->branch, err));
    join(c, &c->mlp_drop, x);
    return MHA_OK;
}

static mha_status keep_pre_norm(const mha__block_call *c, float *x, mha_error *err)
{
    const mha__block_trace *t = &c->trace;
    const float *input = NULL;
    MHA__TRY(mha__block_branch_input(c, MHA__BLOCK_ATTN_NORM, t->x, &input, err));
    MHA__TRY(attend(c, input, t->attn_branch ? t->attn_branch : c->scratch.branch, err));
    if (t->attn_branch) MHA__TRY(mha__block_norm(c, MHA__BLOCK_ATTN_OUT_NORM, t->attn_branch, c->scratch.branch, err));
    join(c, &c->attn_drop, x);
    if (c->block->cross) MHA__TRY(mha__cross_keep(c, x, err));
    return mha__block_feeds(c->block) ? keep_feed_pre_norm(c, x, err) : MHA_OK;
}

mha_status mha__block_keep(const mha__block_call *call, float *x, mha_error *err)
{
    if (call->trace.x) mha__block_copy(call, x, call->trace.x);
    if (call->block->convolution) mha__convolution_keep(call, x);
    MHA__TRY((call->block->pre_norm ? keep_pre_norm : keep_post_norm)(call, x, err));
    return call->block->convolution ? mha__convolution_join(call, x, err) : MHA_OK;
}

/* ---- backward pass ---- */

static mha_status feed_back(const mha__block_call *c, const mha__block_slots *slots, const float *x, const float *dy,
                            float *dx, mha_error *err)
{
    const int64_t E = c->block->hidden;
    for (int64_t r = 0; r < mha__block_rows(c);) {
        const mha__feed_call call = feed_call(c, r);
        MHA__TRY(mha__feed_back(&call, &slots->feed, x + r * E, dy + r * E, dx + r * E, err));
        r += call.rows;
    }
    return MHA_OK;
}

/* Passes the gradient of a site to the caller's function. */
static void show(const mha__block_call *c, mha__edit_site site, const float *gradient)
{
    mha__edited(c->gradients, site, 0, mha__block_rows(c), (float *)gradient);
}

static mha_status attend_back(const mha__block_call *c, const mha__block_slots *slots, const float *x, const float *dy,
                              float *dx, mha_error *err)
{
    const mha__attn_inputs_grad grads = {.x = {dx, dx, dx}};
    show(c, MHA__EDIT_ATTN_OUT, dy);
    MHA__TRY(
        mha__attn_back(c->block->attn, &c->attn, &slots->attn, x, &c->trace.attn, &c->scratch.attn, dy, &grads, err));
    show(c, MHA__EDIT_CONTEXT, c->scratch.attn.dcontext);
    return MHA_OK;
}

/* Returns the gradient of a branch: dx itself or, with dropout or a residual factor, a copy of dx in `outer` to which
 * both are applied. */
static const float *branch_back(const mha__block_call *c, const mha__drop *of, const float *dx)
{
    const float factor = c->block->residual_scale;
    if (of->share == 0 && factor == 1) return dx;
    if (dx != c->scratch.outer) mha__block_copy(c, dx, c->scratch.outer);
    drop(c, of, c->scratch.outer);
    if (factor != 1) mha__scale(c->block->ctx, factor, mha__block_rows(c) * c->block->hidden, c->scratch.outer);
    return c->scratch.outer;
}

/* Backpropagates dx through the feed-forward part of a post-norm block. */
static mha_status feed_back_post_norm(const mha__block_call *c, const mha__block_slots *slots, float *dx,
                                      mha_error *err)
{
    const mha__block_trace *t = &c->trace;
    const mha__block_scratch *s = &c->scratch;
    MHA__TRY(mha__block_norm_back(c, slots, MHA__BLOCK_MLP_NORM, t->mlp_branch, dx, false, dx, err));
    if (mha__feed_learns(&slots->feed) && c->block->cross)
        MHA__TRY(mha__block_norm(c, MHA__BLOCK_CROSS_NORM, t->cross_sum, s->normed, err));
    else if (mha__feed_learns(&slots->feed))
        MHA__TRY(mha__block_norm(c, MHA__BLOCK_ATTN_NORM, t->middle, s->normed, err));
    const float *of_mlp = branch_back(c, &c->mlp_drop, dx);
    show(c, MHA__EDIT_MLP_OUT, of_mlp);
    MHA__TRY(feed_back(c, slots, s->normed, of_mlp, s->branch, err));
    mha__block_add(c, s->branch, dx);
    return MHA_OK;
}

static mha_status back_post_norm(const mha__block_call *c, const mha__block_slots *slots, float *dx, mha_error *err)
{
    const mha__block_trace *t = &c->trace;
    const mha__block_scratch *s = &c->scratch;
    if (mha__block_feeds(c->block)) MHA__TRY(feed_back_post_norm(c, slots, dx, err));
    if (c->block->cross) MHA__TRY(mha__cross_back(c, slots, dx, err));
    show(c, MHA__EDIT_RESID_MID, dx);
    MHA__TRY(mha__block_norm_back(c, slots, MHA__BLOCK_ATTN_NORM, t->middle, dx, false, dx, err));
    const float *of_attn = branch_back(c, &c->attn_drop, dx);
    if (c->ends) return attend_back(c, slots, t->x, of_attn, NULL, err);
    MHA__TRY(attend_back(c, slots, t->x, of_attn, s->branch, err));
    mha__block_add(c, s->branch, dx);
    return MHA_OK;
}

/* Backpropagates *dy through the output norm, if present: *dy becomes the gradient of the norm's input, in `outer`. */
static mha_status outer_norm_back(const mha__block_call *c, const mha__block_slots *slots, int which,
                                  const float *branch, const float **dy, mha_error *err)
{
    const float *from = *dy;
    if (!branch) return MHA_OK;
    *dy = c->scratch.outer;
    return mha__block_norm_back(c, slots, which, branch, from, false, c->scratch.outer, err);
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
    show(c, MHA__EDIT_MLP_OUT, of_mlp);
    if (mha__feed_learns(&slots->feed)) MHA__TRY(mha__block_branch_input(c, which, feed_source(c), &input, err));
    MHA__TRY(feed_back(c, slots, input ? input : c->scratch.normed, of_mlp, c->scratch.branch, err));
    if (c->block->parallel) {
        mha__block_copy(c, dx, c->scratch.outer);
        *sum = c->scratch.outer;
    }
    return mha__block_input_back(c, slots, which, feed_source(c), dx, err);
}

static mha_status back_pre_norm(const mha__block_call *c, const mha__block_slots *slots, float *dx, mha_error *err)
{
    const mha__block_trace *t = &c->trace;
    const mha__block_scratch *s = &c->scratch;
    const float *sum = dx, *input = s->normed;
    if (mha__block_feeds(c->block)) MHA__TRY(feed_back_pre_norm(c, slots, dx, &sum, err));
    if (c->block->cross) MHA__TRY(mha__cross_back(c, slots, dx, err));
    show(c, MHA__EDIT_RESID_MID, dx);
    const float *of_attn = branch_back(c, &c->attn_drop, sum);
    MHA__TRY(outer_norm_back(c, slots, MHA__BLOCK_ATTN_OUT_NORM, t->attn_branch, &of_attn, err));
    if (mha__attn_learns(&slots->attn)) MHA__TRY(mha__block_branch_input(c, MHA__BLOCK_ATTN_NORM, t->x, &input, err));
    if (c->ends) return attend_back(c, slots, input, of_attn, NULL, err);
    MHA__TRY(attend_back(c, slots, input, of_attn, s->branch, err));
    return mha__block_input_back(c, slots, MHA__BLOCK_ATTN_NORM, t->x, dx, err);
}

mha_status mha__block_back(const mha__block_call *call, const mha__block_slots *slots, float *dx, mha_error *err)
{
    const bool convolved = call->block->convolution != NULL;
    show(call, MHA__EDIT_RESID_POST, dx);
    if (convolved) MHA__TRY(mha__convolution_split(call, slots, dx, err));
    MHA__TRY((call->block->pre_norm ? back_pre_norm : back_post_norm)(call, slots, dx, err));
    if (convolved && !call->ends) MHA__TRY(mha__convolution_back(call, slots, dx, err));
    show(call, MHA__EDIT_EMBEDDED, dx);
    return MHA_OK;
}
