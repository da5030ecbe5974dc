/* map_lists.c - checks the lists of heads and rows of maps. */
#include "attn/plan/map_lists.h"

#include "base/error.h"
#include <inttypes.h>

void mha__maps_shape(const mha_attn_desc *d, int64_t shape[4])
{
    shape[0] = d->batch;
    shape[1] = d->inputs & MHA_ATTN_MAP_HEADS ? d->map_heads : d->listed_heads;
    shape[2] = d->inputs & MHA_ATTN_MAP_ROWS ? d->map_rows : d->max_q_len;
    shape[3] = d->max_kv_len;
}

static mha_status check_heads(const mha__call *call, mha_error *err)
{
    const mha_attn_desc *d = &call->plan->desc;
    const int32_t *list = call->args.map_heads;
    for (int64_t n = 0; n < d->map_heads; n++)
        if (list[n] < 0 || list[n] >= d->listed_heads)
            return mha__fail(err, MHA_ERR_ARG,
                             "map_heads[%" PRId64 "] must be from 0 to %" PRId64 ", a head of out (got %" PRId32 ")", n,
                             d->listed_heads - 1, list[n]);
    return MHA_OK;
}

static mha_status check_rows(const mha__call *call, mha_error *err)
{
    const mha_attn_desc *d = &call->plan->desc;
    if (d->max_q_len == 0) return MHA_OK; /* no map is written, so every entry is valid */
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t n = 0; n < d->map_rows; n++) {
            const int64_t row = mha__map_row(call, b, n);
            if (row < -d->max_q_len || row >= d->max_q_len)
                return mha__fail(err, MHA_ERR_ARG,
                                 "map_rows[%" PRId64 "][%" PRId64 "] must be from %" PRId64 " to %" PRId64
                                 " (got %" PRId64 ")",
                                 b, n, -d->max_q_len, d->max_q_len - 1, row);
        }
    return MHA_OK;
}

mha_status mha__maps_check(const mha__call *call, mha_error *err)
{
    const uint32_t inputs = call->plan->desc.inputs;
    if (inputs & MHA_ATTN_MAP_HEADS) MHA__TRY(check_heads(call, err));
    return inputs & MHA_ATTN_MAP_ROWS ? check_rows(call, err) : MHA_OK;
}
