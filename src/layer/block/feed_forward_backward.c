/* feed_forward_backward.c - forward pass with a trace and backward pass of a block's feed-forward part. Everything
 * after the activation is recomputed. With experts, an output is y = sum of share times expert output, so the gradient
 * of a share is the dot product of an expert's output and the gradient of y; it is computed from the input and the bias
 * of `down`. */
#include "layer/block/feed_forward_backward.h"

#include "base/error.h"
#include "layer/block/transformer_block.h"
#include "layer/elementwise.h"
#include "math/linalg.h"
#include <string.h>

/* ---- memory ---- */

static void trace_one(mha__arena *arena, const mha__mlp *f, size_t rows, bool learns, mha__feed_trace *t)
{
    const size_t wide = (size_t)f->width * sizeof(float);
    t->up = mha__take(arena, rows, wide);
    if (f->gate) t->gate = mha__take(arena, rows, wide);
    t->slopes = !learns && !f->gate && f->activation != MHA_ACT_NONE && f->activation != MHA_ACT_RELU;
}

void mha__feed_trace_take(mha__arena *arena, const mha__mlp *f, const mha__experts *x, size_t rows, bool learns,
                          mha__feed_trace *t, mha__experts_trace *e)
{
    if (f->up) trace_one(arena, f, rows, learns, t);
    if (!x) return;
    mha__routes_lay_out(arena, x, rows, &e->routes);
    trace_one(arena, &x->feed[0], rows * (size_t)x->chosen, learns, &e->feed);
    e->share = x->shared_gate ? mha__take(arena, rows, sizeof *e->share) : NULL;
}

static void work_experts(mha__arena *arena, const mha__experts *x, size_t chunk, mha__feed_work *w)
{
    const size_t width = (size_t)x->hidden * sizeof(float);
    mha__routes_group_lay_out(arena, x, chunk, &w->group);
    w->in = mha__take(arena, chunk, width);
    w->dy = mha__take(arena, chunk, width);
    w->out = mha__take(arena, chunk, width);
    w->dshare = mha__take(arena, chunk, (size_t)x->chosen * sizeof *w->dshare);
    w->part = mha__take(arena, chunk, sizeof *w->part);
    w->dlogits = mha__take(arena, chunk, (size_t)x->count * sizeof *w->dlogits);
}

void mha__feed_work_take(mha__arena *arena, const mha__mlp *f, const mha__experts *x, size_t chunk, mha__feed_work *w)
{
    const int64_t widest = mha__max64(f->up ? f->width : 0, x ? x->feed[0].width : 0);
    const size_t wide = (size_t)widest * sizeof(float), rows = chunk;
    const mha_linear *const all[] = {f->up, f->gate, x ? x->feed[0].up : NULL, x ? x->feed[0].gate : NULL};
    w->wide = mha__take(arena, rows, wide);
    w->other = f->gate || x ? mha__take(arena, rows, wide) : NULL;
    w->dwide = mha__take(arena, rows, wide);
    w->left = widest ? mha__take(arena, 1, mha__linear_max_left(all, 4, (int64_t)chunk)) : NULL;
    if (x) work_experts(arena, x, chunk, w);
}

/* ---- one feed-forward ---- */

/* One feed-forward for some rows, with the trace of these rows. */
typedef struct part {
    const mha__feed_call *call;
    const mha__mlp *feed;
    mha__feed_trace trace;
    int64_t rows;
} part;

static part part_of(const mha__feed_call *c, const mha__mlp *feed, const mha__feed_trace *all, int64_t first,
                    int64_t rows)
{
    const mha__feed_trace trace = {.up = all->up + first * feed->width,
                                   .gate = feed->gate ? all->gate + first * feed->width : NULL,
                                   .slopes = all->slopes};
    return (part){.call = c, .feed = feed, .trace = trace, .rows = rows};
}

/* Computes the input of `down` from the stored up and gate. Unless `gated` is NULL, copies act(gate) to it if the
 * product rule reads it. */
static void middle_of(const part *p, float *gated)
{
    const mha__mlp *f = p->feed;
    mha_ctx *ctx = p->call->ctx;
    float *wide = p->call->work->wide;
    const int64_t count = p->rows * f->width;
    if (f->clamped.limit > 0) {
        mha__clamped_swiglu_forward(ctx, &f->clamped, count, p->trace.gate, p->trace.up, wide);
        return;
    }
    memcpy(wide, f->gate ? p->trace.gate : p->trace.up, (size_t)count * sizeof *wide);
    mha__linear_activate(f->gate ? f->gate : f->up, count, wide);
    if (!f->gate) return;
    if (gated) memcpy(gated, wide, (size_t)count * sizeof *gated);
    mha__join(ctx, MHA__MULTIPLY, count, p->trace.up, wide);
}

/* Replaces the activation's input in `up` with the activation's derivative. */
static mha_status keep_slopes(const part *p, mha_error *err)
{
    const mha__mlp *f = p->feed;
    float *ones = p->call->work->dwide, *up = p->trace.up; /* scratch memory that is unused at this point */
    for (int64_t i = 0; i < p->rows * f->width; i++)
        ones[i] = 1;
    return mha_activation_backward(p->call->ctx, f->activation, p->rows, f->width, up, ones, up, err);
}

static mha_status keep_part(const part *p, const float *x, float *y, mha_error *err)
{
    const mha__mlp *f = p->feed;
    const mha__feed_work *w = p->call->work;
    mha__linear_call call = {.x = x, .rows = p->rows, .y = p->trace.up, .linear = true, .left = w->left};
    mha__linear_run(f->up, &call);
    call.y = p->trace.gate;
    if (f->gate) mha__linear_run(f->gate, &call);
    if (y) middle_of(p, NULL);
    if (p->trace.slopes) MHA__TRY(keep_slopes(p, err));
    return y ? mha_linear_forward(f->down, w->wide, p->rows, y, err) : MHA_OK;
}

static mha_status dense_back(const part *p, const mha__grad_slot *slot, int64_t in, int64_t out, const float *x,
                             const float *dy, bool add_dx, float *dx, mha_error *err)
{
    const mha__linear_grad g = {
        .slot = *slot, .rows = p->rows, .in = in, .out = out, .x = x, .dy = dy, .dx = dx, .add_dx = add_dx};
    return mha__linear_backward(p->call->ctx, &g, err);
}

/* Weights of the rows of an output, and where their gradients are written. `dy` is scratch memory with the gradient of
 * the weighted output. */
typedef struct weighing {
    const float *share;
    float *dshare, *dy;
} weighing;

/* Backpropagates w->dy through `down` and the weights. */
static mha_status weigh_back(const part *p, const mha__grad_slot *down, const weighing *w, mha_error *err)
{
    const int64_t E = p->call->hidden, I = p->feed->width;
    const float *wide = p->call->work->wide;
    float *dwide = p->call->work->dwide;
    const float *bias = mha__linear_bias(p->feed->down);
    mha__grad_slot frozen = *down;
    frozen.dweight = frozen.dbias = NULL;
    MHA__TRY(dense_back(p, &frozen, I, E, wide, w->dy, false, dwide, err));
    for (int64_t r = 0; r < p->rows; r++) {
        const double sum = bias ? mha__dot_f32(E, w->dy + r * E, bias) : 0;
        w->dshare[r] = (float)(sum + mha__dot_f32(I, wide + r * I, dwide + r * I));
    }
    mha__scale_rows(p->rows, I, w->share, dwide);
    mha__scale_rows(p->rows, E, w->share, w->dy);
    return dense_back(p, down, I, E, wide, w->dy, false, NULL, err);
}

/* Replaces dwide with the gradient of the output of `gate`, and act(gate) in `other` with the gradient of the output of
 * `up`. */
static mha_status gated_back(const part *p, mha_error *err)
{
    const mha__mlp *f = p->feed;
    const mha__feed_work *w = p->call->work;
    mha_ctx *ctx = p->call->ctx;
    const int64_t count = p->rows * f->width;
    if (f->clamped.limit > 0) {
        mha__clamped_swiglu_backward(ctx, &f->clamped, count, p->trace.gate, p->trace.up, w->dwide, w->dwide, w->other);
        return MHA_OK;
    }
    mha__join(ctx, MHA__MULTIPLY, count, w->dwide, w->other); /* product rule: the gradient of up is multiplied by
                                                               * act(gate) */
    mha__join(ctx, MHA__MULTIPLY, count, p->trace.up, w->dwide);
    return mha_activation_backward(ctx, f->activation, p->rows, f->width, p->trace.gate, w->dwide, w->dwide, err);
}

/* Backpropagates dwide through the activation, `up` and `gate`. */
static mha_status middle_back(const part *p, const mha__feed_slots *slots, const float *x, float *dx, mha_error *err)
{
    const mha__mlp *f = p->feed;
    const mha__feed_work *w = p->call->work;
    mha_ctx *ctx = p->call->ctx;
    const int64_t E = p->call->hidden, I = f->width, count = p->rows * I;
    if (!f->gate) {
        if (p->trace.slopes)
            mha__join(ctx, MHA__MULTIPLY, count, p->trace.up, w->dwide);
        else
            MHA__TRY(mha_activation_backward(ctx, f->activation, p->rows, I, p->trace.up, w->dwide, w->dwide, err));
        return dense_back(p, &slots->up, E, I, x, w->dwide, false, dx, err);
    }
    MHA__TRY(gated_back(p, err));
    MHA__TRY(dense_back(p, &slots->up, E, I, x, w->other, false, dx, err));
    return dense_back(p, &slots->gate, E, I, x, w->dwide, true, dx, err);
}

/* Computes dx of one feed-forward; with `w`, of its weighted output. */
static mha_status back_part(const part *p, const mha__feed_slots *slots, const float *x, const float *dy,
                            const weighing *w, float *dx, mha_error *err)
{
    const mha__feed_work *work = p->call->work;
    const int64_t E = p->call->hidden, I = p->feed->width;
    if (p->feed->gate || slots->down.dweight || w) middle_of(p, work->other);
    if (w)
        MHA__TRY(weigh_back(p, &slots->down, w, err));
    else
        MHA__TRY(dense_back(p, &slots->down, I, E, work->wide, dy, false, work->dwide, err));
    return middle_back(p, slots, x, dx, err);
}

/* ---- experts ---- */

/* The routes of a chunk: the stored choice of its rows, and the scratch memory of their groups. */
static mha__routes routes_of(const mha__feed_call *c)
{
    const mha__experts *x = c->experts;
    const mha__routes *all = &c->experts_trace->routes;
    mha__routes r = c->work->group;
    r.probs = all->probs + c->first * x->count;
    r.expert = all->expert + c->first * x->chosen;
    r.share = all->share + c->first * x->chosen;
    return r;
}

static part part_of_expert(const mha__feed_call *c, const mha__routes *r, int64_t e)
{
    const int64_t first = c->first * c->experts->chosen + r->start[e];
    return part_of(c, &c->experts->feed[e], &c->experts_trace->feed, first, r->start[e + 1] - r->start[e]);
}

static mha_status keep_shared(const mha__feed_call *c, const float *x, float *y, mha_error *err)
{
    const part shared = part_of(c, c->feed, c->trace, c->first, c->rows);
    float *share = c->experts && c->experts_trace->share ? c->experts_trace->share + c->first : NULL;
    MHA__TRY(keep_part(&shared, x, y, err));
    if (share) mha__shared_share(c->experts, c->rows, x, share);
    if (share && y) mha__scale_rows(c->rows, c->hidden, share, y);
    return MHA_OK;
}

mha_status mha__feed_keep(const mha__feed_call *c, const float *x, float *y, mha_error *err)
{
    const mha__experts *experts = c->experts;
    if (c->feed->up)
        MHA__TRY(keep_shared(c, x, y, err));
    else if (y)
        memset(y, 0, (size_t)(c->rows * c->hidden) * sizeof *y);
    if (!experts) return MHA_OK;
    const mha__routes r = routes_of(c);
    mha__experts_route(c->ctx, experts, c->rows, x, &r);
    mha__experts_group(experts, c->rows, &r);
    for (int64_t e = 0; e < experts->count; e++) {
        const part p = part_of_expert(c, &r, e);
        if (!p.rows) continue;
        mha__experts_gather(c->ctx, experts, &r, e, x, false, c->work->in);
        MHA__TRY(keep_part(&p, c->work->in, y ? c->work->out : NULL, err));
        if (y) mha__experts_scatter(c->ctx, experts, &r, e, c->work->out, true, y);
    }
    return MHA_OK;
}

/* Adds the gradient of the router's input to dx. */
static mha_status router_back(const mha__feed_call *c, const mha__grad_slot *slot, const mha__routes *r, const float *x,
                              float *dx, mha_error *err)
{
    const mha__experts *experts = c->experts;
    const mha__feed_work *w = c->work;
    const part all = {.call = c, .rows = c->rows};
    for (int64_t row = 0; row < c->rows; row++)
        mha__experts_route_back(experts, r, row, w->dshare + row * experts->chosen, w->dlogits + row * experts->count);
    return dense_back(&all, slot, c->hidden, experts->count, x, w->dlogits, true, dx, err);
}

/* Backpropagates through the shared feed-forward and its gate. */
static mha_status shared_back(const mha__feed_call *c, const mha__feed_part_slots *slots, const float *x,
                              const float *dy, float *dx, mha_error *err)
{
    const part shared = part_of(c, c->feed, c->trace, c->first, c->rows);
    const mha__feed_work *w = c->work;
    if (!c->experts || !c->experts_trace->share) return back_part(&shared, &slots->feed, x, dy, NULL, dx, err);
    const float *share = c->experts_trace->share + c->first;
    memcpy(w->dy, dy, (size_t)(c->rows * c->hidden) * sizeof *dy);
    MHA__TRY(back_part(&shared, &slots->feed, x, dy, &(weighing){share, w->part, w->dy}, dx, err));
    for (int64_t r = 0; r < c->rows; r++)
        w->part[r] *= share[r] * (1 - share[r]);
    return dense_back(&shared, &slots->shared_gate, c->hidden, 1, x, w->part, true, dx, err);
}

static mha_status expert_back(const mha__feed_call *c, const mha__feed_slots *slots, const mha__routes *r, int64_t e,
                              const float *x, const float *dy, float *dx, mha_error *err)
{
    const mha__feed_work *w = c->work;
    const part p = part_of_expert(c, r, e);
    const int32_t *order = r->order + r->start[e];
    if (!p.rows) return MHA_OK;
    float *shares = w->out; /* unused until dx is computed */
    for (int64_t n = 0; n < p.rows; n++)
        shares[n] = r->share[order[n]];
    if (slots->up.dweight || slots->gate.dweight) mha__experts_gather(c->ctx, c->experts, r, e, x, false, w->in);
    mha__experts_gather(c->ctx, c->experts, r, e, dy, false, w->dy);
    MHA__TRY(back_part(&p, slots, w->in, w->dy, &(weighing){shares, w->part, w->dy}, w->out, err));
    for (int64_t n = 0; n < p.rows; n++)
        w->dshare[order[n]] = w->part[n];
    mha__experts_scatter(c->ctx, c->experts, r, e, w->out, false, dx);
    return MHA_OK;
}

mha_status mha__feed_back(const mha__feed_call *c, const mha__feed_part_slots *slots, const float *x, const float *dy,
                          float *dx, mha_error *err)
{
    if (c->feed->up)
        MHA__TRY(shared_back(c, slots, x, dy, dx, err));
    else
        memset(dx, 0, (size_t)(c->rows * c->hidden) * sizeof *dx);
    if (!c->experts) return MHA_OK;
    const mha__routes r = routes_of(c);
    mha__experts_group(c->experts, c->rows, &r);
    for (int64_t e = 0; e < c->experts->count; e++)
        MHA__TRY(expert_back(c, &slots->expert[e], &r, e, x, dy, dx, err));
    return router_back(c, &slots->router, &r, x, dx, err);
}

bool mha__feed_learns(const mha__feed_part_slots *s)
{
    return s->feed.up.dweight || s->feed.gate.dweight || s->router.dweight;
}
