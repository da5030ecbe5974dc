/* task_rows.c - maps tasks to rows. A plan counts tasks before lengths are known: packed sequence b begins at tile
 * cu[b] / MHA__TILE_Q + b. This formula needs no table. It gives every sequence enough tiles, and some sequences one
 * tile too many. */
#include "attn/forward/task_rows.h"

#include "attn/stats/attention_stats.h"
#include "base/size.h"

/* Returns the sequence of tile `number`. Stores the first row of the tile within the sequence in *first. */
static int64_t sequence_of(const mha__call *call, int64_t number, int64_t *first)
{
    const int64_t *cu = call->args.cu_seqlens_q;
    int64_t low = 0, high = call->plan->desc.batch;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (cu[middle] / MHA__TILE_Q + middle <= number)
            low = middle;
        else
            high = middle;
    }
    *first = (number - cu[low] / MHA__TILE_Q - low) * MHA__TILE_Q;
    return low;
}

mha__call mha__sequence_call(const mha__call *call, int64_t b)
{
    mha__call c = *call;
    mha_attn_args *a = &c.args;
    const mha_attn_plan *plan = call->plan;
    const int64_t row = a->cu_seqlens_q[b];
    c.first_key = plan->packed_keys ? a->cu_seqlens_k[b] : b * plan->desc.kv_len;
    mha__skip_rows(&a->q, plan->q.size, row);
    if (plan->packed_keys) {
        mha__skip_rows(&a->k, plan->kv.size, c.first_key);
        mha__skip_rows(&a->v, plan->kv.size, c.first_key);
    }
    mha__skip_rows_out(&a->out, plan->q.size, row);
    mha__skip_rows_out(&a->lse, plan->kernels->real_size, row);
    mha__stats_move(&c.stats, plan->kernels->real_size, row);
    return c;
}

const mha__call *mha__task_rows(const mha__call *call, int64_t task, mha__rows *rows, mha__call *own)
{
    const mha_attn_plan *plan = call->plan;
    const int64_t heads = plan->heads, head = task / plan->tiles;
    const int64_t number = plan->tiles - 1 - task % plan->tiles;
    rows->b = head / heads;
    rows->result = head % heads;
    rows->first = number * plan->tile_rows;
    if (plan->packed) {
        rows->b = sequence_of(call, number, &rows->first);
        *own = mha__sequence_call(call, rows->b);
        call = own;
    }
    const bool listed = plan->desc.inputs & MHA_ATTN_HEAD_LIST;
    rows->h = listed ? call->args.head_list[rows->result] : rows->result;
    rows->count = mha__min64(plan->tile_rows, (plan->folded ? plan->rows : mha__rows_of(call, rows->b)) - rows->first);
    rows->position = rows->first + mha__mask_offset(call, rows->b);
    return call;
}
