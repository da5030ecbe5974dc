/* transformer_block.c - a transformer block: attention and feed-forward, each with a residual connection and a norm; or
 * attention alone.
 *
 * The steps after attention process one chunk of MHA__CHUNK_ROWS rows at a time. Therefore the input of each step is
 * still in the CPU cache, and the workspace does not grow with the number of rows. `branch` is the output of a branch
 * before it is added to x. If linear layers multiply bf16, each step writes bf16 for the next step. */
#include "layer/block/transformer_block.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "layer/arena.h"
#include "layer/elementwise.h"
#include "layer/linear/linear.h"
#include "layer/norm.h"
#include "layer/repack.h"
#include <math.h>
#include <string.h>

static const char *const norm_names[MHA__BLOCK_NORMS] = {"block: attn_norm", "block: mlp_norm", "block: attn_out_norm",
                                                         "block: mlp_out_norm"};

/* ---- creation ---- */

static bool feeds(const mha_block_options *o)
{
    return o->intermediate || o->up.weight || o->down.weight || o->gate.weight;
}

/* Checks that options that require pre_norm are not set without it, and that residual_scale is finite. */
static mha_status check_pre_norm(const mha_block_options *o, mha_error *err)
{
    const char *name = o->attn_out_norm.weight    ? "attn_out_norm"
                       : o->mlp_out_norm.weight   ? "mlp_out_norm"
                       : o->parallel              ? "parallel"
                       : o->residual_scale != 0.0 ? "residual_scale"
                                                  : NULL;
    if (!o->pre_norm && name) return mha__fail(err, MHA_ERR_ARG, "block: pre_norm must be set with %s", name);
    if (isfinite(o->residual_scale) && isfinite((float)o->residual_scale)) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "block: residual_scale must be finite (got %g)", o->residual_scale);
}

static mha_status check_options(const mha_block_options *o, mha_error *err)
{
    if (o->attn.hidden < 1 || o->attn.hidden > INT32_MAX)
        return mha__fail(err, MHA_ERR_ARG, "block: attn.hidden must be from 1 to 2^31-1 (got %lld)",
                         (long long)o->attn.hidden);
    const mha_norm *norms[MHA__BLOCK_NORMS] = {&o->attn_norm, &o->mlp_norm, &o->attn_out_norm, &o->mlp_out_norm};
    for (int i = 0; i < MHA__BLOCK_NORMS; i++) {
        const bool needed = !o->pre_norm && (i == MHA__BLOCK_ATTN_NORM || (i == MHA__BLOCK_MLP_NORM && feeds(o)));
        if (needed || norms[i]->weight) MHA__TRY(mha__norm_check(norm_names[i], norms[i], err));
    }
    return check_pre_norm(o, err);
}

void mha__block_keep_norms(mha_block *b, const mha_block_options *o)
{
    const mha_norm *from[MHA__BLOCK_NORMS] = {&o->attn_norm, &o->mlp_norm, &o->attn_out_norm, &o->mlp_out_norm};
    const size_t bytes = (size_t)b->hidden * sizeof *b->norms;
    for (int i = 0; i < MHA__BLOCK_NORMS; i++) {
        float *copy = b->norms + 2 * i * b->hidden;
        b->norm[i] = *from[i];
        if (from[i]->weight) b->norm[i].weight = memcpy(copy, from[i]->weight, bytes);
        if (from[i]->weight && from[i]->bias) b->norm[i].bias = memcpy(copy + b->hidden, from[i]->bias, bytes);
    }
}

static mha__feed_options feed_of(const mha_block_options *o)
{
    return (mha__feed_options){
        .width = o->intermediate, .activation = o->activation, .gate = o->gate, .up = o->up, .down = o->down};
}

static mha_status create_parts(mha_block *b, const mha_block_options *o, const mha__experts_options *experts,
                               bool latent, mha_error *err)
{
    const mha__feed_options feed = feed_of(o);
    const unsigned without = (latent ? MHA__WITHOUT_QKV : 0) | (b->o_sum ? MHA__WITHOUT_OUTPUT : 0);
    MHA__TRY(mha__attn_layer_create(b->ctx, &o->attn, without, &b->attn, err));
    if (b->down_sum) return mha__feed_create_middle(b->ctx, b->hidden, &feed, &b->feed, err);
    if (feeds(o)) MHA__TRY(mha__feed_create(b->ctx, b->hidden, &feed, &b->feed, err));
    return experts ? mha__experts_create(b->ctx, b->hidden, experts, &b->experts, err) : MHA_OK;
}

/* Allocates a block and sets everything but its parts. */
static mha_status allocate(mha_ctx *ctx, const mha_block_options *o, mha_block **block, mha_error *err)
{
    MHA__TRY(check_options(o, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    const size_t bytes = sizeof(mha_block) + 2 * MHA__BLOCK_NORMS * (size_t)o->attn.hidden * sizeof(float);
    mha_block *b = mha__calloc(ctx, 1, bytes);
    if (!b) return mha__no_memory(err, bytes, "a block");
    b->ctx = ctx;
    b->hidden = o->attn.hidden;
    b->pre_norm = o->pre_norm != 0;
    b->parallel = o->parallel != 0;
    b->residual_scale = o->residual_scale != 0 ? (float)o->residual_scale : 1;
    mha__block_keep_norms(b, o);
    *block = b;
    return MHA_OK;
}

/* Creates the parts of an allocated block, which is freed after a failure. */
static mha_status complete(mha_block *b, const mha_block_options *o, const mha__experts_options *experts, bool latent,
                           mha_block **block, mha_error *err)
{
    const mha_status status = create_parts(b, o, experts, latent, err);
    if (status != MHA_OK)
        mha_block_free(b);
    else
        *block = b;
    return status;
}

mha_status mha__block_create_part(mha_ctx *ctx, const mha_block_options *options, mha__row_parallel *o,
                                  mha__row_parallel *down, mha_block **block, mha_error *err)
{
    mha_block *b = NULL;
    *block = NULL;
    const mha_status status = allocate(ctx, options, &b, err);
    if (status != MHA_OK) {
        mha__row_parallel_free(o);
        mha__row_parallel_free(down);
        return status;
    }
    b->o_sum = o;
    b->down_sum = down;
    return complete(b, options, NULL, false, block, err);
}

mha_status mha_block_create(mha_ctx *ctx, const mha_block_options *options, mha_block **block, mha_error *err)
{
    return mha__block_create(ctx, options, NULL, false, block, err);
}

mha_status mha__block_create(mha_ctx *ctx, const mha_block_options *options, const mha__experts_options *experts,
                             bool latent, mha_block **block, mha_error *err)
{
    if (!block) return mha__fail(err, MHA_ERR_ARG, "block: the output pointer must not be NULL");
    *block = NULL;
    mha_block_options o;
    mha_block *b = NULL;
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_block_options", err));
    MHA__TRY(allocate(ctx, &o, &b, err));
    return complete(b, &o, experts, latent, block, err);
}

void mha_block_free(mha_block *block)
{
    if (!block) return;
    mha_attn_layer_free(block->attn);
    mha__feed_free(&block->feed);
    mha__experts_free(block->ctx, block->experts);
    mha__row_parallel_free(block->o_sum);
    mha__row_parallel_free(block->down_sum);
    mha__free(block->ctx, block);
}

/* ---- forward pass ---- */

typedef struct workspace {
    float *branch; /* [chunk, E] branch output that is added to x */
    float *normed; /* [B L, E] branch input with pre-norm; feed-forward uses only one chunk of it */
    mha__feed_scratch feed;
    mha__experts_scratch experts;
    void *sum;  /* workspace of o_sum and down_sum */
    void *attn; /* workspace of the attention layer */
    mha__attn_trace trace;
    mha__attn_scratch scratch;
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

static mha_status post_norm(const mha_block *b, const mha__attn_call *call, const workspace *w, float *x,
                            mha_error *err)
{
    const int64_t rows = call->in->batch * call->in->length;
    MHA__TRY(attend(b, call, w, x, err));
    for (int64_t r = 0, chunk; r < rows; r += chunk) {
        chunk = mha__block_chunk(b, rows - r);
        float *const at = x + r * b->hidden;
        MHA__TRY(project(b, call, w, r, chunk, err));
        norm(b, MHA__BLOCK_ATTN_NORM, chunk, at, w->branch, at, rounded_input(b, w));
        if (!mha__block_feeds(b)) continue;
        MHA__TRY(feed_forward(b, w, chunk, at, w->branch, err));
        norm(b, MHA__BLOCK_MLP_NORM, chunk, at, w->branch, at, NULL);
    }
    return MHA_OK;
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

static mha_status pre_norm(const mha_block *b, const mha__attn_call *call, const workspace *w, float *x, mha_error *err)
{
    const int64_t rows = call->in->batch * call->in->length;
    MHA__TRY(attend(b, call, w, x, err));
    for (int64_t r = 0, chunk; r < rows; r += chunk) {
        chunk = mha__block_chunk(b, rows - r);
        float *const at = x + r * b->hidden;
        MHA__TRY(project(b, call, w, r, chunk, err));
        if (b->parallel && mha__block_feeds(b)) feed_input(b, w, chunk, at);
        join(b, w, MHA__BLOCK_ATTN_OUT_NORM, chunk, at);
        if (!mha__block_feeds(b)) continue;
        if (!b->parallel) feed_input(b, w, chunk, at);
        MHA__TRY(feed_forward(b, w, chunk, w->normed, w->branch, err));
        join(b, w, MHA__BLOCK_MLP_OUT_NORM, chunk, at);
    }
    return MHA_OK;
}

/* Divides the workspace of `in`; the part that the block does not use becomes the workspace of `inner`, the input of
 * the attention layer. */
static mha_status place(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in, workspace *w,
                        mha_layer_input *inner, mha_error *err)
{
    size_t bytes = 0;
    MHA__TRY(mha__block_bytes(block, plan, in, &bytes, err));
    if (in->workspace_bytes < bytes)
        return mha__fail(err, MHA_ERR_ARG, "mha_layer_input: workspace_bytes must be at least %zu (got %zu)", bytes,
                         in->workspace_bytes);
    mha__arena arena = {.base = in->workspace};
    *w = lay_out(&arena, block, in->batch * in->length, 0);
    *inner = *in;
    inner->workspace_bytes -= arena.used;
    inner->workspace = w->attn;
    return mha__attn_layer_place(block->attn, &(mha__attn_call){.plan = plan, .in = inner}, &w->trace, &w->scratch,
                                 err);
}

mha_status mha__block_run(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in, float *x,
                          mha_error *err)
{
    workspace w = {0};
    mha_layer_input inner;
    MHA__TRY(place(block, plan, in, &w, &inner, err));
    const mha__attn_call call = {.plan = plan, .in = &inner};
    return (block->pre_norm ? pre_norm : post_norm)(block, &call, &w, x, err);
}

mha_status mha__block_attend(const mha_block *block, const mha_attn_plan *plan, const mha_layer_input *in,
                             const float *x, mha_error *err)
{
    workspace w = {0};
    mha_layer_input inner;
    MHA__TRY(place(block, plan, in, &w, &inner, err));
    return attend(block, &(mha__attn_call){.plan = plan, .in = &inner}, &w, x, err);
}

/* ---- public functions ---- */

mha_status mha_block_workspace(const mha_block *block, const mha_layer_input *input, size_t *bytes, mha_error *err)
{
    mha_layer_input in;
    mha_attn_plan *plan = NULL;
    if (!block || !bytes) return mha__fail(err, MHA_ERR_ARG, "block: %s must not be NULL", block ? "bytes" : "block");
    MHA__TRY(mha__layer_input(&in, input, err));
    MHA__TRY(mha__attn_plan(block->attn, &(mha__attn_call){.in = &in}, &plan, err));
    const mha_status status = mha__block_bytes(block, plan, &in, bytes, err);
    mha_attn_plan_free(plan);
    return status;
}

mha_status mha_block_forward(const mha_block *block, const mha_layer_input *input, float *x, mha_error *err)
{
    mha_layer_input in;
    mha_attn_plan *plan = NULL;
    size_t bytes = 0;
    void *own = NULL;
    if (!block || !x) return mha__fail(err, MHA_ERR_ARG, "block: %s must not be NULL", block ? "x" : "block");
    MHA__TRY(mha__layer_input(&in, input, err));
    MHA__TRY(mha__attn_plan(block->attn, &(mha__attn_call){.in = &in}, &plan, err));
    mha_status status = mha__block_bytes(block, plan, &in, &bytes, err);
    if (status == MHA_OK) status = mha__layer_workspace(block->ctx, bytes, &in, &own, "a block's workspace", err);
    if (status == MHA_OK) status = mha__block_run(block, plan, &in, x, err);
    mha_attn_plan_free(plan);
    mha__free(block->ctx, own);
    return status;
}

void mha__block_repack(mha_block *block, const mha_block_options *o, const mha__experts_options *experts)
{
    const mha__feed_options feed = feed_of(o);
    mha__attn_layer_repack(block->attn, &o->attn);
    mha__feed_repack(&block->feed, block->hidden, &feed);
    if (experts) mha__experts_repack(block->experts, experts);
    mha__block_keep_norms(block, o);
}
