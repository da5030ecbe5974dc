/* attention_dropout.c - computes the dropout mask of a panel: 0 for kept weights, -infinity for dropped ones, whether
 * dropout is sampled or given by the caller. */
#include "attn/mask/attention_dropout.h"

#include <math.h>

double mha__dropout_mask(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t first,
                         int64_t end)
{
    const mha__kernels *k = call->plan->kernels;
    const mha_attn_desc *d = &call->plan->desc;
    const mha_cview *keep = &call->args.dropout_keep;
    const int64_t keys = end - first, lanes = rows->count;
    if (d->inputs & MHA_ATTN_DROPOUT_KEEP) {
        const void *from = mha__at(keep, 1, rows->b, rows->h, rows->first, first);
        k->pack_keep(lanes, keys, from, keep->stride[2], keep->stride[3], scratch->extra);
    } else {
        const mha_shard *of = &d->shard; /* counters refer to the whole call, so that shards sample the same mask */
        const mha__draw draw = {call->args.dropout_seed,        (uint32_t)(of->batch + rows->b),
                                (uint32_t)(of->head + rows->h), (uint32_t)(of->row + rows->first),
                                (uint32_t)(of->key + first),    (uint64_t)ceil(d->dropout * 0x1p32)};
        k->draw(keys, lanes, &draw, scratch->extra);
    }
    return d->dropout < 1 ? 1 / (1 - d->dropout) : 0;
}

void mha__dropout_apply(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t first,
                        int64_t end, void *s)
{
    const double scale = mha__dropout_mask(call, scratch, rows, first, end);
    call->plan->kernels->drop(end - first, rows->count, scratch->extra, scale, s);
}
