/* feed_forward.c - one feed-forward: up, an optional gate, the activation, and down. If linear layers multiply bf16,
 * each step writes bf16 for the next step. */
#include "layer/block/feed_forward.h"

#include "base/error.h"
#include "layer/block/transformer_block.h"
#include "layer/elementwise.h"
#include "layer/linear/linear.h"
#include "layer/repack.h"

mha_status mha__feed_create_middle(mha_ctx *ctx, int64_t hidden, const mha__feed_options *o, mha__mlp *feed,
                                   mha_error *err)
{
    mha_matrix gate = o->gate, up = o->up;
    gate.out = up.out = o->width;
    feed->width = o->width;
    feed->activation = o->clamped.limit > 0 ? MHA_ACT_NONE : o->activation;
    feed->clamped = o->clamped;
    if (gate.weight)
        MHA__TRY(mha__linear_create_named("block: gate", ctx, hidden, &gate, 1, feed->activation, &feed->gate, err));
    const mha_activation of_up = gate.weight ? MHA_ACT_NONE : o->activation;
    return mha__linear_create_named("block: up", ctx, hidden, &up, 1, of_up, &feed->up, err);
}

mha_status mha__feed_create(mha_ctx *ctx, int64_t hidden, const mha__feed_options *o, mha__mlp *feed, mha_error *err)
{
    mha_matrix down = o->down;
    down.out = hidden;
    MHA__TRY(mha__feed_create_middle(ctx, hidden, o, feed, err));
    return mha__linear_create_named("block: down", ctx, o->width, &down, 1, MHA_ACT_NONE, &feed->down, err);
}

void mha__feed_repack(mha__mlp *feed, int64_t hidden, const mha__feed_options *o)
{
    mha_matrix gate = o->gate, up = o->up, down = o->down;
    gate.out = up.out = o->width;
    down.out = hidden;
    if (feed->gate) mha__linear_repack(feed->gate, &gate, 1);
    if (feed->up) mha__linear_repack(feed->up, &up, 1);
    if (feed->down) mha__linear_repack(feed->down, &down, 1);
}

void mha__feed_free(mha__mlp *feed)
{
    mha_linear_free(feed->gate);
    mha_linear_free(feed->up);
    mha_linear_free(feed->down);
}

/* Returns true if `up` writes bf16 directly for `down`. */
static bool rounds_middle(const mha__mlp *f)
{
    return f->down && !f->gate && mha__linear_takes_bf16(f->down);
}

void mha__feed_lay_out(mha__arena *arena, const mha__mlp *f, size_t rows, mha__feed_scratch *s)
{
    s->wide = rounds_middle(f) ? mha__take(arena, 1, mha__linear_left(f->down, (int64_t)rows))
                               : mha__take(arena, rows, (size_t)f->width * sizeof(float));
    if (f->gate) s->gated = mha__take(arena, rows, (size_t)f->width * sizeof(float));
    s->left =
        mha__take(arena, 1, mha__linear_max_left((const mha_linear *[]){f->up, f->gate, f->down}, 3, (int64_t)rows));
}

void mha__feed_middle(mha_ctx *ctx, const mha__mlp *f, const mha__feed_scratch *s, int64_t rows, const float *x)
{
    mha__linear_call in = {.x = x, .rows = rows, .y = s->wide, .left = s->left};
    if (rounds_middle(f)) in.rounded = MHA_BF16;
    mha__linear_run(f->up, &in);
    if (f->gate) {
        in.y = s->gated;
        mha__linear_run(f->gate, &in);
        if (f->clamped.limit > 0)
            mha__clamped_swiglu_forward(ctx, &f->clamped, rows * f->width, s->gated, s->wide, s->wide);
        else
            mha__join(ctx, MHA__MULTIPLY, rows * f->width, s->gated, s->wide);
    }
}

void mha__feed_run(mha_ctx *ctx, const mha__mlp *f, const mha__feed_scratch *s, int64_t rows, const float *x, float *y)
{
    mha__linear_call out = {.x = s->wide, .rows = rows, .y = y, .left = s->left};
    if (rounds_middle(f)) {
        out.x = NULL;
        out.left = s->wide;
    }
    mha__feed_middle(ctx, f, s, rows, x);
    mha__linear_run(f->down, &out);
}
