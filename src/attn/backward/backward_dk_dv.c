/* backward_dk_dv.c - writes dk and dv, either from the memory of a task or summed over the parts of a head group. */
#include "attn/backward/backward.h"
#include "attn/plan/rotary.h"

/* Adds rows [first, end) of the sums of one part to the sums of part 0. */
static void add_rows(const mha__bwd_call *call, void *to, const void *from, int64_t first, int64_t end, int64_t stride)
{
    const mha__kernels *k = call->call.plan->kernels;
    const size_t before = (size_t)(first * stride) * k->real_size;
    k->add((end - first) * stride, (const char *)from + before, (char *)to + before);
}

void mha__bwd_turn_back(const mha__bwd_turn *turn, int64_t rows, int64_t width, void *x)
{
    const size_t size = turn->call->plan->kernels->real_size;
    for (int64_t r = 0; r < mha__min64(rows, turn->exist); r++)
        mha__rope_turn_row(&turn->call->rope, turn->position(turn->call, turn->b, turn->first + r), true, size,
                           (char *)x + (size_t)(r * width) * size);
}

/* Rotates rows of reals in a view back, one contiguous copy of a row at a time. */
static void turn_back_in_place(const mha__bwd_turn *turn, int64_t rows, int64_t width, char *x, const mha_view *view)
{
    const mha__kernels *k = turn->call->plan->kernels;
    const int64_t row = view->stride[2] * (int64_t)k->real_size, col = view->stride[3];
    double copy[MHA_HEAD_DIM_MAX]; /* or floats */
    mha__bwd_turn one = *turn;
    for (; rows > 0; rows--, one.first++, one.exist--, x += row) {
        k->gather(1, width, x, width, col, copy, width, width);
        mha__bwd_turn_back(&one, 1, width, copy);
        mha__bwd_scatter(k, 1, width, copy, x, view);
    }
}

void mha__bwd_scatter(const mha__kernels *k, int64_t rows, int64_t width, const void *from, void *to,
                      const mha_view *view)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t d = 0; d < width; d++)
            mha__put_real(to, r * view->stride[2] + d * view->stride[3], k->real_size,
                          mha__real_at(from, r * width + d, k->real_size));
}

void mha__bwd_write(const mha__kernels *k, const mha__stored *as, int64_t rows, int64_t width, const void *from,
                    int64_t stride, double scale, const mha__bwd_turn *turn, void *to, const mha_view *view,
                    const mha__scratch *x)
{
    k->fill(rows, scale, x->inverse);
    if (!as->widen) {
        k->output(rows, width, from, stride, x->inverse, to, view->stride[2], view->stride[3]);
        if (turn) turn_back_in_place(turn, rows, width, to, view);
        return;
    }
    k->output(rows, width, from, stride, x->inverse, x->wide, width, 1);
    if (turn) mha__bwd_turn_back(turn, rows, width, x->wide);
    as->narrow(rows, width, x->wide, width, to, view->stride[2], view->stride[3]);
}

static void write(const mha__bwd_call *call, const mha_view *view, int64_t b, int64_t g, int64_t first, int64_t end,
                  int64_t width, const void *sums, int64_t stride, double scale, bool turns, const mha__scratch *x)
{
    const mha_attn_plan *plan = call->call.plan;
    for (int64_t start = first; start < end; start += MHA__KEY_BLOCK) {
        const mha__bwd_turn turn = {&call->call, mha__rope_of_key, b, start, mha__mask_keys(&call->call, b) - start};
        mha__bwd_write(plan->kernels, &plan->kv, mha__min64(MHA__KEY_BLOCK, end - start), width,
                       (const char *)sums + (size_t)(start * stride) * plan->kernels->real_size, stride, scale,
                       turns ? &turn : NULL, mha__at_out(view, plan->kv.size, b, g, start, 0), view, x);
    }
}

void mha__bwd_write_keys(const mha__bwd_call *call, int64_t b, int64_t g, int64_t first, int64_t end, int64_t slot,
                         const mha__scratch *x)
{
    const mha_attn_plan *plan = call->call.plan;
    const mha_attn_grads *out = &call->grads;
    void *dk, *dv;
    mha__bwd_sums_of(call, b, g, 0, slot, &dk, &dv);
    if (out->dk.data)
        write(call, &out->dk, b, g, first, end, plan->desc.head_dim, dk, plan->bwd.q_stride, plan->desc.scale,
              plan->desc.inputs & MHA_ATTN_ROPE_K, x);
    if (out->dv.data)
        write(call, &out->dv, b, g, first, end, plan->desc.v_head_dim, dv, plan->bwd.v_stride, 1, false, x);
}

int64_t mha__bwd_merges(const mha__bwd_call *call)
{
    const mha_attn_desc *d = &call->call.plan->desc;
    return d->batch * d->kv_heads * mha__ceil_div(d->kv_len, MHA__KEY_BLOCK);
}

void mha__bwd_merge(void *arg, int64_t item, int worker)
{
    const mha__bwd_call *all = arg;
    const mha_attn_desc *d = &all->call.plan->desc;
    const mha__bwd_plan *w = &all->call.plan->bwd;
    const int64_t blocks = mha__ceil_div(d->kv_len, MHA__KEY_BLOCK), first = item % blocks * MHA__KEY_BLOCK;
    const int64_t g = item / blocks % d->kv_heads, b = item / blocks / d->kv_heads;
    mha__bwd_call own;
    const mha__bwd_call *call = mha__bwd_sequence_call(all, b, &own);
    const int64_t end = mha__min64(mha__keys_of(&call->call, b), first + MHA__KEY_BLOCK);
    mha__bwd_scratch x;
    int64_t tiles;
    void *dk, *dv, *more_dk, *more_dv;
    if (first >= end) return;
    mha__bwd_worker_scratch(call, worker, &x);
    mha__bwd_sums_of(call, b, g, 0, 0, &dk, &dv);
    const int64_t parts = mha__bwd_parts(&call->call, b, &tiles);
    for (int64_t part = 1; part < parts; part++) {
        mha__bwd_sums_of(call, b, g, part, 0, &more_dk, &more_dv);
        if (call->grads.dk.data) add_rows(call, dk, more_dk, first, end, w->q_stride);
        if (call->grads.dv.data) add_rows(call, dv, more_dv, first, end, w->v_stride);
    }
    if (!(d->inputs & MHA_ATTN_BLOCK_TABLE)) mha__bwd_write_keys(call, b, g, first, end, 0, &x.base);
}
