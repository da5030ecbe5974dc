/* tile_ahead.c - what to fetch while a block is computed. */
#include "attn/tile.h"

#include "base/q8.h"

/* True if a task is the first to read its keys and values: the tasks before it read others. */
static bool is_first_reader(const mha_attn_plan *plan, int64_t task)
{
    return task < plan->tasks && task % (plan->tiles * plan->group) == 0;
}

static mha__ahead rows_ahead(const mha_cview *v, const mha__stored *as, int64_t b, int64_t h, int64_t first,
                             int64_t end, int64_t width)
{
    const int64_t size = (int64_t)as->size;
    if (v->stride[3] != 1) return (mha__ahead){NULL, 0, 0, 0};
    return (mha__ahead){mha__at(v, as->size, b, h, first, 0), mha__min64(MHA__KEY_BLOCK, end - first),
                        v->stride[2] * size, mha__element_count(as->dtype, width) * size};
}

/* First the values of this block, then the keys of the next one; at the last block the keys and queries of the next
 * task, which most likely comes next on this thread. In a batch of short sequences, which no cache holds, this is worth
 * 20 %. Keys in pages, packed sequences and listed heads are left to the machine. */
mha__ahead mha__tile_ahead(const mha__tile *t, int64_t start, int64_t index)
{
    const mha_attn_desc *d = &t->plan->desc;
    const mha_attn_args *a = &t->call->args;
    const mha__stored *kv = &t->plan->kv;
    const int64_t next_block = start + MHA__KEY_BLOCK, next = t->task + 1, head = next / t->plan->tiles;
    const int64_t b = head / t->plan->heads, h = head % t->plan->heads;
    const bool dense = !(d->inputs & MHA_ATTN_BLOCK_TABLE);
    if (d->inputs & (MHA_ATTN_CU_SEQLENS | MHA_ATTN_HEAD_LIST)) return (mha__ahead){NULL, 0, 0, 0};
    const bool first = dense && is_first_reader(t->plan, t->task), last = next_block >= t->span.hi;
    if (index == 0 && first) return rows_ahead(&a->v, kv, t->rows.b, t->kv_head, start, t->span.hi, d->v_head_dim);
    if (index == 1 && first && !last)
        return rows_ahead(&a->k, kv, t->rows.b, t->kv_head, next_block, t->span.hi, d->head_dim);
    if (index == 1 && last && dense && is_first_reader(t->plan, next))
        return rows_ahead(&a->k, kv, b, h / t->plan->group, 0, d->kv_len, d->head_dim);
    if (index == 2 && last && next < t->plan->tasks) {
        const int64_t row = (t->plan->tiles - 1 - next % t->plan->tiles) * MHA__TILE_Q;
        return rows_ahead(&a->q, &t->plan->q, b, h, row, t->plan->rows, d->head_dim);
    }
    return (mha__ahead){NULL, 0, 0, 0};
}
