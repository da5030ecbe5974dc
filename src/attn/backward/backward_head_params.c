/* backward_head_params.c - computes dslopes, dsinks and dgates from the sums per tile and head. Because there are few
 * sums, one thread adds them in a fixed order. */
#include "attn/backward/backward.h"
#include <stddef.h>

/* Sums one field of mha__bwd_sums over all tiles of head h of sequence b, and over all its entries in a list of
 * heads. */
static double sum_of(const mha__bwd_call *call, int64_t b, int64_t h, size_t field)
{
    const mha_attn_plan *plan = call->call.plan;
    const int32_t *list = call->call.args.head_list;
    const int64_t tiles = mha__bwd_tiles(&call->call, b);
    double sum = 0;
    for (int64_t n = list ? 0 : h; n < (list ? plan->desc.listed_heads : h + 1); n++)
        for (int64_t tile = 0; tile < tiles && (!list || list[n] == h); tile++)
            sum += *(const double *)(const void *)((const char *)mha__bwd_head_sums(call, b, n, tile) + field);
    return sum;
}

/* Writes one value per head, summed over each axis of stride 0. */
static void write(const mha__bwd_call *call, const mha_view *view, size_t field)
{
    const mha_attn_desc *d = &call->call.plan->desc;
    const size_t size = call->call.plan->kernels->real_size;
    const int64_t B = d->batch, H = d->heads;
    const int64_t batches = view->stride[0] ? B : 1, heads = view->stride[1] ? H : 1;
    if (!view->data) return;
    for (int64_t b = 0; b < batches; b++)
        for (int64_t h = 0; h < heads; h++) {
            double sum = 0;
            for (int64_t i = b; i < (batches == 1 ? B : b + 1); i++)
                for (int64_t j = h; j < (heads == 1 ? H : h + 1); j++)
                    sum += sum_of(call, i, j, field);
            mha__put_real(mha__at_out(view, size, b, h, 0, 0), 0, size, sum);
        }
}

void mha__bwd_write_heads(const mha__bwd_call *call)
{
    write(call, &call->grads.dslopes, offsetof(mha__bwd_sums, slope));
    write(call, &call->grads.dsinks, offsetof(mha__bwd_sums, sink));
    write(call, &call->grads.dgates, offsetof(mha__bwd_sums, gate));
}
