/* transformer_block.c - runs a transformer block: attention, in decoders of encoder-decoders cross-attention, and
 * feed-forward, each with a residual connection and a norm; or attention alone.
 *
 * The steps after attention process one chunk of MHA__CHUNK_ROWS rows at a time. Therefore the input of each step is
 * still in the CPU cache, and the workspace does not grow with the number of rows. `branch` is the output of a branch
 * before it is added to x. If linear layers multiply bf16, each step writes bf16 for the next step. */
#include "layer/block/transformer_block.h"

#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "layer/block/block_convolution.h"
#include "layer/block/cross_block.h"
#include "layer/elementwise.h"
#include "layer/linear/linear.h"
#include "layer/norm.h"
#include <string.h>

typedef struct workspace {
    float *branch; /* [chunk, E] branch output that is added to x */
    float *normed; /* [B L, E] branch input with pre-norm; feed-forward uses only one chunk of it */
    mha__feed_scratch feed;
    mha__experts_scratch experts;
    float *convolved, *gathered; /* with a convolution: its output [B L, E], and scratch for a chunk */
    void *sum;                   /* workspace of o_sum and down_sum */
    void *attn;                  /* workspace of the attention layer */
    mha__attn_trace trace;
    mha__attn_scratch scratch;
    const mha__site_edit *edit; /* NULL = none */
} workspace;

/* Returns the bytes of workspace for the products of a divided block. */
static size_t sum_bytes(const mha_block *b, int64_t rows)
{
    const size_t o = mha__row_parallel_bytes(b->o_sum, rows);
    const size_t down = b->down_sum ? mha__row_parallel_bytes(b->down_sum, rows) : 0;
    return o > down ? o : down;
}

static workspace lay_out(mha__arena *arena, const mha_block *b, int64_t rows, size_t attn_bytes)
{
    workspace w = {0};
    const size_t wide = (size_t)mha__block_chunk(b, rows);
    w.branch = mha__take(arena, wide, (size_t)b->hidden * sizeof(float));
    if (b->pre_norm) w.normed = mha__take(arena, (size_t)rows, (size_t)b->hidden * sizeof(float));
    if (b->feed.up) mha__feed_lay_out(arena, &b->feed, wide, &w.feed);
    if (b->experts) mha__experts_lay_out(arena, b->experts, wide, &w.experts);
    if (b->convolution) {
        w.convolved = mha__take(arena, (size_t)rows, (size_t)b->hidden * sizeof(float));
        w.gathered = mha__take(arena, wide, (size_t)mha__gathered_width(b->convolution) * sizeof(float));
    }
    if (b->o_sum) w.sum = mha__take(arena, 1, sum_bytes(b, (int64_t)wide));
    w.attn = mha__take(arena, 1, attn_bytes);
    return w;
}

const mha_attn_layer *mha__block_attn(const mha_block *block)
{
    return block->attn;
}

mha_status mha__block_bytes(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in, size_t *bytes,
                            mha_error *err)
{
    mha__arena arena = {0};
    size_t attn_bytes = 0;
    MHA__TRY(mha__attn_layer_bytes(block->attn, &(mha__attn_call){.plan = plan, .in = in}, &attn_bytes, err));
    MHA__TRY(mha__block_cross_bytes(block, in, &attn_bytes, err));
    lay_out(&arena, block, in->batch * in->length, attn_bytes);
    if (arena.overflow) return mha__no_memory(err, SIZE_MAX, "a block's workspace");
    *bytes = arena.used;
    return MHA_OK;
}

static void norm(const mha_block *b, int which, int64_t rows, const float *x, const float *residual, float *y,
                 uint16_t *rounded)
{
    mha__norm_rows(b->ctx, &b->norm[which], rows, b->hidden, x, residual, y, rounded);
}

/* Returns where the norm before feed-forward writes bf16; NULL if a later step reads f32 or the norm is absent. */
static uint16_t *rounded_input(const mha_block *b, const workspace *w)
{
    return b->feed.up && !b->experts && b->norm[mha__block_feed_norm(b)].weight && mha__linear_takes_bf16(b->feed.up) &&
                   (!b->feed.gate || mha__linear_takes_bf16(b->feed.gate))
               ? w->feed.left
               : NULL;
}

/* Computes the feed-forward output of one chunk. */
static mha_status feed_forward(const mha_block *b, const workspace *w, int64_t rows, const float *x, float *y,
                               mha_error *err)
{
    const float *const in = rounded_input(b, w) ? NULL : x;
    if (b->down_sum) {
        mha__feed_middle(b->ctx, &b->feed, &w->feed, rows, in);
        return mha__row_parallel_run(b->down_sum, w->feed.wide, b->feed.width, rows, w->sum, y, err);
    }
    if (b->experts)
        mha__experts_run(b->ctx, b->experts, &w->experts, &b->feed, &w->feed, rows, x, y);
    else
        mha__feed_run(b->ctx, &b->feed, &w->feed, rows, in, y);
    return MHA_OK;
}

/* Computes attention up to the context; the output projection is applied later, chunk by chunk. */
static mha_status attend(const mha_block *b, const mha__attn_call *call, const workspace *w, const float *x,
                         mha_error *err)
{
    const int64_t rows = call->in->batch * call->in->length;
    const bool normed = b->pre_norm && b->norm[MHA__BLOCK_ATTN_NORM].weight;
    if (normed) norm(b, MHA__BLOCK_ATTN_NORM, rows, x, NULL, w->normed, NULL);
    return mha__attn_attend(b->attn, call, normed ? w->normed : x, &w->trace, &w->scratch, err);
}

/* Computes the output of attention in w->branch, for rows [first, first + rows). */
static mha_status project(const mha_block *b, const mha__attn_call *call, const workspace *w, int64_t first,
                          int64_t rows, mha_error *err)
{
    if (b->o_sum) {
        const int64_t width = mha__context_width(b->attn);
        const float *context = (const float *)w->trace.context + first * width;
        return mha__row_parallel_run(b->o_sum, context, width, rows, w->sum, w->branch, err);
    }
    mha__attn_output(b->attn, call, &w->trace, &w->scratch, first, rows, w->branch);
    return MHA_OK;
}

/* Runs the feed-forward part of one chunk of a post-norm block: rows [first, first + rows), at x. */
static mha_status feed_post_norm(const mha_block *b, const workspace *w, int64_t first, int64_t rows, float *x,
                                 mha_error *err)
{
    if (!mha__block_feeds(b)) return MHA_OK;
    MHA__TRY(feed_forward(b, w, rows, x, w->branch, err));
    mha__edited(w->edit, MHA__EDIT_MLP_OUT, first, rows, w->branch);
    norm(b, MHA__BLOCK_MLP_NORM, rows, x, w->branch, x, NULL);
    return MHA_OK;
}

/* Runs the cross-attention of a post-norm block, and the feed-forward part after it. */
static mha_status cross_post_norm(const mha_block *b, const mha_layer_input *in, const workspace *w, float *x,
                                  mha_error *err)
{
    const int64_t rows = in->batch * in->length;
    mha__cross_call c;
    MHA__TRY(mha__block_cross_attend(b, in, x, &c, err));
    for (int64_t r = 0, chunk; r < rows; r += chunk) {
        chunk = mha__block_chunk(b, rows - r);
        float *const at = x + r * b->hidden;
        mha__attn_output(b->cross, &c.call, &c.trace, &c.scratch, r, chunk, w->branch);
        norm(b, MHA__BLOCK_CROSS_NORM, chunk, at, w->branch, at, rounded_input(b, w));
        MHA__TRY(feed_post_norm(b, w, r, chunk, at, err));
    }
    return MHA_OK;
}

static mha_status post_norm(const mha_block *b, const mha__attn_call *call, const workspace *w, float *x,
                            mha_error *err)
{
    const int64_t rows = call->in->batch * call->in->length;
    MHA__TRY(attend(b, call, w, x, err));
    for (int64_t r = 0, chunk; r < rows; r += chunk) {
        chunk = mha__block_chunk(b, rows - r);
        float *const at = x + r * b->hidden;
        MHA__TRY(project(b, call, w, r, chunk, err));
        mha__edited(w->edit, MHA__EDIT_ATTN_OUT, r, chunk, w->branch);
        norm(b, MHA__BLOCK_ATTN_NORM, chunk, at, w->branch, at, b->cross ? NULL : rounded_input(b, w));
        mha__edited(w->edit, MHA__EDIT_RESID_MID, r, chunk, at);
        if (!b->cross) MHA__TRY(feed_post_norm(b, w, r, chunk, at, err));
    }
    return b->cross ? cross_post_norm(b, call->in, w, x, err) : MHA_OK;
}

/* Applies the output norm and the residual factor of the branch, if present, and adds the branch to x. */
static void join(const mha_block *b, const workspace *w, int out_norm, int64_t rows, float *x)
{
    if (b->norm[out_norm].weight) norm(b, out_norm, rows, w->branch, NULL, w->branch, NULL);
    if (b->residual_scale != 1) mha__scale(b->ctx, b->residual_scale, rows * b->hidden, w->branch);
    mha__join(b->ctx, MHA__ADD, rows * b->hidden, w->branch, x);
}

/* Computes the feed-forward input of a chunk and stores it in `normed`. */
static void feed_input(const mha_block *b, const workspace *w, int64_t rows, const float *x)
{
    const int which = mha__block_feed_norm(b);
    if (b->norm[which].weight)
        norm(b, which, rows, x, NULL, w->normed, rounded_input(b, w));
    else
        memcpy(w->normed, x, (size_t)(rows * b->hidden) * sizeof *x);
}

/* Runs the feed-forward part of one chunk of a pre-norm block: rows [first, first + rows), at x. A parallel block has
 * computed its input already. */
static mha_status feed_pre_norm(const mha_block *b, const workspace *w, int64_t first, int64_t rows, float *x,
                                mha_error *err)
{
    if (!mha__block_feeds(b)) return MHA_OK;
    if (!b->parallel) feed_input(b, w, rows, x);
    MHA__TRY(feed_forward(b, w, rows, w->normed, w->branch, err));
    mha__edited(w->edit, MHA__EDIT_MLP_OUT, first, rows, w->branch);
    join(b, w, MHA__BLOCK_MLP_OUT_NORM, rows, x);
    return MHA_OK;
}

/* Runs the cross-attention of a pre-norm block, and the feed-forward part after it. */
static mha_status cross_pre_norm(const mha_block *b, const mha_layer_input *in, const workspace *w, float *x,
                                 mha_error *err)
{
    const int64_t rows = in->batch * in->length;
    const bool normed = b->norm[MHA__BLOCK_CROSS_NORM].weight != NULL;
    mha__cross_call c;
    if (normed) norm(b, MHA__BLOCK_CROSS_NORM, rows, x, NULL, w->normed, NULL);
    MHA__TRY(mha__block_cross_attend(b, in, normed ? w->normed : x, &c, err));
    for (int64_t r = 0, chunk; r < rows; r += chunk) {
        chunk = mha__block_chunk(b, rows - r);
        float *const at = x + r * b->hidden;
        mha__attn_output(b->cross, &c.call, &c.trace, &c.scratch, r, chunk, w->branch);
        if (b->residual_scale != 1) mha__scale(b->ctx, b->residual_scale, chunk * b->hidden, w->branch);
        mha__join(b->ctx, MHA__ADD, chunk * b->hidden, w->branch, at);
        MHA__TRY(feed_pre_norm(b, w, r, chunk, at, err));
    }
    return MHA_OK;
}

static mha_status pre_norm(const mha_block *b, const mha__attn_call *call, const workspace *w, float *x, mha_error *err)
{
    const int64_t rows = call->in->batch * call->in->length;
    MHA__TRY(attend(b, call, w, x, err));
    for (int64_t r = 0, chunk; r < rows; r += chunk) {
        chunk = mha__block_chunk(b, rows - r);
        float *const at = x + r * b->hidden;
        MHA__TRY(project(b, call, w, r, chunk, err));
        mha__edited(w->edit, MHA__EDIT_ATTN_OUT, r, chunk, w->branch);
        if (b->parallel && mha__block_feeds(b)) feed_input(b, w, chunk, at);
        join(b, w, MHA__BLOCK_ATTN_OUT_NORM, chunk, at);
        mha__edited(w->edit, MHA__EDIT_RESID_MID, r, chunk, at);
        if (!b->cross) MHA__TRY(feed_pre_norm(b, w, r, chunk, at, err));
    }
    return b->cross ? cross_pre_norm(b, call->in, w, x, err) : MHA_OK;
}

/* Divides the workspace of `in`; the part that the block does not use becomes the workspace of `inner`, the input of
 * the attention layer. */
static void place(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in, workspace *w,
                  mha_layer_input *inner)
{
    mha__arena arena = {.base = in->workspace};
    *w = lay_out(&arena, block, in->batch * in->length, 0);
    *inner = *in;
    inner->workspace_bytes -= arena.used;
    inner->workspace = w->attn;
    mha__attn_layer_place(block->attn, &(mha__attn_call){.plan = plan, .in = inner}, &w->trace, &w->scratch);
}

mha_status mha__block_run_edited(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in,
                                 const mha__site_edit *edit, float *x, mha_error *err)
{
    workspace w = {0};
    mha_layer_input inner;
    const int64_t rows = in->batch * in->length;
    place(block, plan, in, &w, &inner);
    const mha__attn_call call = {.plan = plan, .in = &inner, .edit = edit};
    w.edit = edit;
    if (block->convolution) mha__block_convolve(block, in, x, false, w.gathered, w.convolved);
    MHA__TRY((block->pre_norm ? pre_norm : post_norm)(block, &call, &w, x, err));
    if (block->convolution) {
        mha__norm_rows(block->ctx, &block->convolution->norm, rows, block->hidden, x, w.convolved, x, NULL);
        mha__block_clear_padding(in, block->hidden, x);
    }
    mha__edited(edit, MHA__EDIT_RESID_POST, 0, rows, x);
    return MHA_OK;
}

mha_status mha__block_run(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in, float *x,
                          mha_error *err)
{
    return mha__block_run_edited(block, plan, in, NULL, x, err);
}

mha_status mha__block_attend(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in,
                             const float *x, mha_error *err)
{
    workspace w = {0};
    mha_layer_input inner;
    place(block, plan, in, &w, &inner);
    return attend(block, &(mha__attn_call){.plan = plan, .in = &inner}, &w, x, err);
}
