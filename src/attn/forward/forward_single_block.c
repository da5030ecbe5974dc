/* forward_single_block.c - the forward pass of short sequences: all keys form one block, and each row attends to one
 * interval of keys. One kernel call per panel of queries computes the result. For 16 keys, calls of several kernels
 * would take longer than the computation itself. Results are bitwise identical to online_softmax.c. */
#include "attn/forward/online_softmax.h"
#include "attn/forward/query_tile.h"
#include "attn/forward/task_rows.h"
#include "attn/mask/block_mask.h"
#include "attn/mask/mask.h"
#include "attn/plan/operand_table.h"
#include "attn/plan/rotary.h"
#include "base/size.h"

const char *mha__fwd_why_not_single_block(const mha_attn_plan *plan)
{
    const mha_attn_desc *d = &plan->desc;
    /* block_q and block_k are 0 without a block mask; the heads of a folded tile may have different masks */
    const bool whole = d->block_q >= d->max_q_len && d->block_k >= d->max_kv_len && !plan->folded;
    const uint32_t inputs = mha__inputs_with(MHA__SINGLE_BLOCK) | (whole ? MHA_ATTN_BLOCK_KEEP : 0u);
    const uint32_t outputs = MHA_ATTN_LSE | MHA_ATTN_GRADS;
    if (d->kv_len == 0) return "kv_len is 0";
    if (d->max_kv_len > MHA__KEY_BLOCK) return "more keys than fit in one block";
    if (plan->q.widen || plan->kv.widen) return "types other than f32 and f64 are not supported";
    if (plan->rows > 0 && plan->rows <= plan->kernels->decode_lanes) return "fwd_decode is used for so few rows";
    if ((d->inputs & ~inputs) || (d->outputs & ~outputs) || d->softcap != 0 || d->dropout != 0)
        return "only lengths, lists of heads, masks of whole heads and lse are supported";
    return NULL;
}

/* Returns the number of elements of a rotated tile of queries, which precede the memory of the kernel. */
static int64_t turned_elements(const mha_attn_desc *d)
{
    return d->inputs & MHA_ATTN_ROPE_Q ? MHA__TILE_Q * d->head_dim : 0;
}

size_t mha__fwd_single_block_bytes(const mha_attn_plan *plan)
{
    const mha_attn_desc *d = &plan->desc;
    return (size_t)((d->head_dim + MHA__KEY_BLOCK + d->v_head_dim) * plan->kernels->nr + turned_elements(d)) *
           plan->kernels->real_size;
}

/* Initializes x for the first row of the tile and the first key. The fields are written one by one, and the struct
 * is never copied, because a copy right after partial writes stalls until they complete. */
static void open_tile(const mha__call *call, const mha__rows *r, int worker, mha__single_block *x)
{
    const mha_attn_plan *plan = call->plan;
    const mha_attn_desc *d = &plan->desc;
    const mha_attn_args *a = &call->args;
    const size_t size = plan->q.size;
    const int64_t g = r->h / plan->group;
    x->d = d->head_dim, x->dv = d->v_head_dim;
    x->scale = d->scale;
    x->q = mha__at(&a->q, size, r->b, r->h, r->first, 0);
    x->k = mha__at(&a->k, size, r->b, g, 0, 0);
    x->v = mha__at(&a->v, size, r->b, g, 0, 0);
    x->out = mha__at_out(&a->out, size, r->b, r->result, r->first, 0);
    x->lse = d->outputs & MHA_ATTN_LSE ? mha__at_out(&a->lse, size, r->b, r->result, r->first, 0) : NULL;
    x->q_row = a->q.stride[2], x->q_col = a->q.stride[3];
    x->k_row = a->k.stride[2], x->k_col = a->k.stride[3];
    x->v_row = a->v.stride[2], x->v_col = a->v.stride[3];
    x->out_row = a->out.stride[2], x->out_col = a->out.stride[3];
    x->lse_row = a->lse.stride[2];
    char *memory = call->workspace + (size_t)worker * plan->worker_bytes;
    if (d->inputs & MHA_ATTN_ROPE_Q) {
        mha__copy_queries(call, r->b, r->h, r->first, r->count, memory);
        x->q = memory, x->q_row = d->head_dim, x->q_col = 1;
    }
    x->memory = memory + (size_t)turned_elements(d) * size;
    x->first = 0;
    x->prefetch = NULL;
}

/* Restricts the call to the keys that a panel of these rows attends to. */
static void choose_keys(const mha__rows *r, const mha__span *tile, size_t size, mha__single_block *x)
{
    const bool same = tile->common_lo <= tile->lo && tile->hi <= tile->common_hi;
    const mha__span own = same ? (mha__span){.lo = tile->lo, .hi = tile->hi} : mha__mask_span(r);
    x->lo = same ? NULL : r->lo, x->hi = r->hi;
    x->k = (const char *)x->k + (own.lo - x->first) * x->k_row * (int64_t)size;
    x->v = (const char *)x->v + (own.lo - x->first) * x->v_row * (int64_t)size;
    x->first = own.lo;
    x->keys = own.hi - own.lo;
    if (x->keys == 0) x->prefetch = NULL; /* without keys, the products have no steps in which to prefetch */
}

/* Advances x to the rows of the next panel. */
static void advance_rows(mha__rows *r, size_t size, mha__single_block *x)
{
    const int64_t rows = r->count;
    r->lo += rows, r->hi += rows, r->prefix += rows;
    x->q = (const char *)x->q + rows * x->q_row * (int64_t)size;
    x->out = (char *)x->out + rows * x->out_row * (int64_t)size;
    if (x->lse) x->lse = (char *)x->lse + rows * x->lse_row * (int64_t)size;
}

/* Computes the intervals of the rows. They are empty if the block mask of the call excludes the whole head. */
static mha__span bound_rows(const mha__call *call, const mha__rows *r, int64_t *lo, int64_t *hi, int64_t *prefix)
{
    const bool blocks = call->plan->desc.inputs & MHA_ATTN_BLOCK_KEEP;
    int64_t first = 0, end = call->plan->desc.block_k;
    mha__mask_intervals(call, r->b, r->first, r->count, lo, hi, prefix);
    if (blocks) mha__blocks_narrow(call, r, &first, &end);
    for (int64_t n = 0; blocks && first >= end && n < r->count; n++)
        hi[n] = lo[n];
    return mha__mask_tile(call, r);
}

void mha__fwd_single_block(void *arg, int64_t task, int worker)
{
    int64_t lo[MHA__TILE_Q], hi[MHA__TILE_Q], prefix[MHA__TILE_Q];
    mha__rows r = {.lo = lo, .hi = hi, .prefix = prefix};
    mha__call own;
    const mha__call *call = mha__task_rows(arg, task, &r, &own);
    const mha__kernels *k = call->plan->kernels;
    if (r.count <= 0) return;
    mha__span span;
    const bool blocks = call->plan->desc.inputs & MHA_ATTN_BLOCK_KEEP;
    if (blocks || !mha__mask_shared(call, &r, &span)) span = bound_rows(call, &r, lo, hi, prefix);
    mha__single_block x;
    mha__prefetch_schedule prefetch;
    open_tile(call, &r, worker, &x);
    if (!mha__too_few_to_prefetch(call->plan)) {
        prefetch = (mha__prefetch_schedule){.products = (int)(2 * mha__ceil_div(r.count, k->nr))};
        mha__task_prefetch(call, &r, task, &prefetch);
        x.prefetch = &prefetch;
    }
    for (int64_t rows = r.count; rows > 0; rows -= r.count, advance_rows(&r, k->real_size, &x)) {
        x.rows = r.count = mha__min64(k->nr, rows);
        choose_keys(&r, &span, k->real_size, &x);
        k->single_block(&x);
    }
}
