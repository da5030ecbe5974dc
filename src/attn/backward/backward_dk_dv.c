/* backward_dk_dv.c - writes dk and dv, either from the memory of a task or summed over the parts of a head group. */
#include "attn/backward/backward.h"

/* Adds rows [first, end) of the sums of one part to the sums of part 0. */
static void add_rows(const mha__bwd_call *call, void *to, const void *from, int64_t first, int64_t end, int64_t stride)
{
    const mha__kernels *k = call->call.plan->kernels;
    const size_t before = (size_t)(first * stride) * k->real_size;
    k->add((end - first) * stride, (const char *)from + before, (char *)to + before);
}

void mha__bwd_write(const mha__kernels *k, const mha__stored *as, int64_t rows, int64_t width, const void *from,
                    int64_t stride, double scale, void *to, const mha_view *view, const mha__scratch *x)
{
    k->fill(rows, scale, x->inverse);
    if (!as->widen) {
        k->output(rows, width, from, stride, x->inverse, to, view->stride[2], view->stride[3]);
        return;
    }
    k->output(rows, width, from, stride, x->inverse, x->wide, width, 1);
    as->narrow(rows, width, x->wide, width, to, view->stride[2], view->stride[3]);
}

static void write(const mha__bwd_call *call, const mha_view *view, int64_t b, int64_t g, int64_t first, int64_t end,
                  int64_t width, const void *sums, int64_t stride, double scale, const mha__scratch *x)
{
    const mha_attn_plan *plan = call->call.plan;
    for (int64_t start = first; start < end; start += MHA__KEY_BLOCK)
        mha__bwd_write(plan->kernels, &plan->kv, mha__min64(MHA__KEY_BLOCK, end - start), width,
                       (const char *)sums + (size_t)(start * stride) * plan->kernels->real_size, stride, scale,
                       mha__at_out(view, plan->kv.size, b, g, start, 0), view, x);
}

void mha__bwd_write_keys(const mha__bwd_call *call, int64_t b, int64_t g, int64_t first, int64_t end, int64_t slot,
                         const mha__scratch *x)
{
    const mha_attn_plan *plan = call->call.plan;
    const mha_attn_grads *out = &call->grads;
    void *dk, *dv;
    mha__bwd_sums_of(call, b, g, 0, slot, &dk, &dv);
    if (out->dk.data)
        write(call, &out->dk, b, g, first, end, plan->desc.head_dim, dk, plan->bwd.q_stride, plan->desc.scale, x);
    if (out->dv.data) write(call, &out->dv, b, g, first, end, plan->desc.v_head_dim, dv, plan->bwd.v_stride, 1, x);
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
    const mha__bwd_call *call = mha__bwd_place(all, b, &own);
    const int64_t end = mha__min64(mha__keys_of(&call->call, b), first + MHA__KEY_BLOCK);
    mha__bwd_scratch x;
    int64_t tiles;
    void *dk, *dv, *more_dk, *more_dv;
    if (first >= end) return;
    mha__bwd_carve(call, worker, &x);
    mha__bwd_sums_of(call, b, g, 0, 0, &dk, &dv);
    const int64_t parts = mha__bwd_parts(&call->call, b, &tiles);
    for (int64_t part = 1; part < parts; part++) {
        mha__bwd_sums_of(call, b, g, part, 0, &more_dk, &more_dv);
        if (call->grads.dk.data) add_rows(call, dk, more_dk, first, end, w->q_stride);
        if (call->grads.dv.data) add_rows(call, dv, more_dv, first, end, w->v_stride);
    }
    mha__bwd_write_keys(call, b, g, first, end, 0, &x.base);
}
