/* cluster_attention.c - attention over a sequence distributed over ranks: the call, its ordered mode, and the backward
 * pass.
 *
 * The results of a call for some rows or head groups are bitwise identical to the same results of the whole call
 * (attn.h, shards). The same is true for dk and dv of some keys if the call has all rows. Ordered mode and the backward
 * pass therefore gather whole tensors, one KV head at a time, and merge no results. */
#include "library/attention_ring.h"
#include "library/head_gather.h"
#include <stdlib.h>
#include <string.h>

/* ---- forward pass ---- */

/* Returns the view of a gathered tensor from `row` on. */
static mha_cview gathered(const mha__head_gather *gather, int item, int64_t row)
{
    mha_cview view = mha__gather_view(gather, item);
    view.data = mha__moved(&view, gather->item[item].size, 0, 0, row, 0);
    return view;
}

static mha_status attend_head(const mha__shared_call *s, const mha__head_gather *gather, int64_t g, mha_error *err)
{
    for (int64_t n = 0; n < 2 * s->sequences; n++) {
        const mha__range chunk = mha__chunk(&s->rows, n % 2);
        mha__range rows, keys;
        mha_attn_desc d;
        mha_attn_args a;
        if (!mha__sequence_ranges(s, n / 2, false, &chunk, &rows, &keys)) continue;
        mha__shard_sequence(s, n / 2, &rows, &keys, &d, &a);
        mha__shard_head(s, g, &d, &a);
        a.k = gathered(gather, 0, keys.start);
        a.v = gathered(gather, 1, keys.start);
        MHA__TRY(mha_attention(s->ctx, &d, &a, err));
    }
    return MHA_OK;
}

static void add_keys(const mha__shared_call *s, mha__head_gather *gather)
{
    mha__gather_add(gather, s->args.k, s->kv_size, 1, s->desc.head_dim, true);
    mha__gather_add(gather, s->args.v, s->kv_size, 1, s->desc.v_head_dim, true);
}

static mha_status attend_ordered(const mha__shared_call *s, mha_error *err)
{
    mha__head_gather gather = {.call = s};
    add_keys(s, &gather);
    mha_status status = mha__gather_open(&gather, err);
    for (int64_t g = 0; g < s->desc.kv_heads && status == MHA_OK; g++) {
        status = mha__gather_head(&gather, g, err);
        if (status == MHA_OK) status = attend_head(s, &gather, g, err);
    }
    mha__gather_close(&gather);
    return status;
}

/* Adds rank and host to messages of libmha. */
static mha_status name_rank(const mha_cluster *cluster, mha_status status, const mha_error *why, mha_error *err)
{
    if (status == MHA_OK || !err) return status;
    if (strncmp(why->message, "rank ", 5) != 0) return mha__cluster_fail(cluster, err, status, "%s", why->message);
    *err = *why;
    return status;
}

mha_status mha__mode_check(const mha_cluster *cluster, mha_cluster_mode mode, mha_error *err)
{
    if (mode == MHA_CLUSTER_RING || mode == MHA_CLUSTER_TREE || mode == MHA_CLUSTER_ORDERED) return MHA_OK;
    return mha__cluster_fail(cluster, err, MHA_ERR_ARG, "mode must be one of ring, tree, ordered (got %d)", (int)mode);
}

mha_status mha_cluster_attention(mha_cluster *cluster, mha_ctx *ctx, mha_cluster_mode mode, const mha_attn_desc *desc,
                                 const mha_attn_args *args, mha_error *err)
{
    mha__shared_call call;
    mha_error why = {0};
    MHA__TRY(mha__mode_check(cluster, mode, err));
    mha_status status = mha__shared_call_open(&call, cluster, ctx, desc, args, &why);
    call.desc.outputs &= ~(uint32_t)MHA_ATTN_GRADS;
    if (status == MHA_OK) /* without keys, there is no data to move */
        status = mode == MHA_CLUSTER_ORDERED || call.packed || call.desc.kv_len == 0
                     ? attend_ordered(&call, &why)
                     : mha__attention_ring(&call, mode == MHA_CLUSTER_TREE, &why);
    mha__shared_call_free(&call);
    return name_rank(cluster, status, &why, err);
}

/* ---- backward pass ---- */

/* The gathered tensors, in this order. */
enum { K, V, Q, DOUT, OUT, LSE, DLSE };

typedef struct backward {
    mha__shared_call call;
    mha_attn_grads grads; /* with all strides set */
    mha__head_gather gather;
    char *dk, *dv; /* gradients of the key blocks of one call; NULL unless the sequences are packed */
} backward;

static void fill_strides(int64_t stride[4], int64_t heads, int64_t rows, int64_t width)
{
    static const int64_t zero[4];
    const int64_t contiguous[4] = {heads * rows * width, rows * width, width, 1};
    if (memcmp(stride, zero, sizeof zero) == 0) memcpy(stride, contiguous, sizeof contiguous);
}

static mha_status check_grads(const backward *w, mha_error *err)
{
    const mha__shared_call *s = &w->call;
    const mha_attn_grads *g = &w->grads;
    const mha_attn_args *a = &s->args;
    if (!(s->desc.outputs & MHA_ATTN_GRADS))
        return mha__cluster_fail(s->cluster, err, MHA_ERR_ARG, "outputs must have MHA_ATTN_GRADS (got 0x%x)",
                                 (unsigned)s->desc.outputs);
    if (g->dslopes.data || g->dsinks.data || g->dgates.data || g->row_taylor.data)
        return mha__cluster_fail(
            s->cluster, err, MHA_ERR_UNSUPPORTED,
            "dslopes, dsinks, dgates and row_taylor must be NULL for a sequence distributed over ranks");
    if ((g->dk.data || g->dv.data) && ((a->keep.data && a->keep.stride[2]) || (a->bias.data && a->bias.stride[2])))
        return mha__cluster_fail(
            s->cluster, err, MHA_ERR_UNSUPPORTED,
            "keep and bias must have stride[2] = 0 with dk or dv of a sequence distributed over ranks");
    if (mha__part_length(&s->rows) > 0 && (!g->dout.data || !g->out.data || !g->lse.data))
        return mha__cluster_fail(s->cluster, err, MHA_ERR_ARG, "dout, out and lse must not be NULL");
    return MHA_OK;
}

static void fill_grads(backward *w)
{
    const mha__shared_call *s = &w->call;
    const mha_attn_desc *d = &s->desc;
    mha_attn_grads *g = &w->grads;
    const int64_t rows = mha__part_length(&s->rows), keys = mha__part_length(&s->keys);
    fill_strides(g->dout.stride, d->heads, rows, d->v_head_dim);
    fill_strides(g->out.stride, d->heads, rows, d->v_head_dim);
    fill_strides(g->lse.stride, d->heads, rows, 1);
    fill_strides(g->dlse.stride, d->heads, rows, 1);
    fill_strides(g->dq.stride, d->heads, rows, d->head_dim);
    fill_strides(g->dk.stride, d->kv_heads, keys, d->head_dim);
    fill_strides(g->dv.stride, d->kv_heads, keys, d->v_head_dim);
}

static mha_status open_gather(backward *w, mha_error *err)
{
    const mha__shared_call *s = &w->call;
    const mha_attn_desc *d = &s->desc;
    const mha_attn_grads *g = &w->grads;
    mha__head_gather *gather = &w->gather;
    gather->call = s;
    add_keys(s, gather);
    mha__gather_add(gather, s->args.q, s->size, s->group, d->head_dim, false);
    mha__gather_add(gather, g->dout, s->size, s->group, d->v_head_dim, false);
    mha__gather_add(gather, g->out, s->size, s->group, d->v_head_dim, false);
    mha__gather_add(gather, g->lse, s->real_size, s->group, 1, false);
    if (g->dlse.data) mha__gather_add(gather, g->dlse, s->real_size, s->group, 1, false);
    return mha__gather_open(gather, err);
}

static mha_view at(const mha_view *view, size_t size, int64_t h, int64_t row)
{
    const mha_cview from = {view->data, {view->stride[0], view->stride[1], view->stride[2], view->stride[3]}};
    mha_view to = *view;
    to.data = (void *)mha__moved(&from, size, 0, h, row, 0);
    return to;
}

static mha_cview at_const(const mha_cview *view, size_t size, int64_t h, int64_t row)
{
    mha_cview to = *view;
    to.data = mha__moved(view, size, 0, h, row, 0);
    return to;
}

/* Computes dq and dbias of the rows of sequence n in one chunk of this rank, with all keys of the sequence. */
static mha_status back_rows(const backward *w, int64_t g, int64_t n, const mha__range *chunk, mha_error *err)
{
    const mha__shared_call *s = &w->call;
    const mha_attn_grads *all = &w->grads;
    mha__range rows, keys;
    mha_attn_desc d;
    mha_attn_args a;
    if (!mha__sequence_ranges(s, n, false, chunk, &rows, &keys) || (!all->dq.data && !all->dbias.data)) return MHA_OK;
    const int64_t h = g * s->group, i = rows.local;
    mha__shard_sequence(s, n, &rows, &keys, &d, &a);
    mha__shard_head(s, g, &d, &a);
    a.k = gathered(&w->gather, K, keys.start);
    a.v = gathered(&w->gather, V, keys.start);
    const mha_attn_grads grads = {.size = sizeof grads,
                                  .dout = at_const(&all->dout, s->size, h, i),
                                  .out = at_const(&all->out, s->size, h, i),
                                  .lse = at_const(&all->lse, s->real_size, h, i),
                                  .dlse = at_const(&all->dlse, s->real_size, h, i),
                                  .dq = at(&all->dq, s->size, h, i),
                                  .dbias = at(&all->dbias, s->real_size, h, i)};
    return mha_attention_backward(s->ctx, &d, &a, &grads, err);
}

/* Allocates memory for the gradients of the key blocks that overlap a chunk of keys. */
static mha_status open_blocks(backward *w, mha_error *err)
{
    const mha__shared_call *s = &w->call;
    const mha_cluster_part *keys = &s->keys;
    const int64_t chunk = keys->length[0] > keys->length[1] ? keys->length[0] : keys->length[1];
    const size_t row = (size_t)(s->desc.head_dim + s->desc.v_head_dim) * s->kv_size;
    const size_t rows = (size_t)(chunk + 2 * MHA__GRAD_KEYS);
    if (!s->packed) return MHA_OK;
    w->dk = malloc(rows * row);
    if (!w->dk) return mha__cluster_no_memory(s->cluster, err, rows * row, "the gradients of a chunk of keys");
    w->dv = w->dk + rows * (size_t)s->desc.head_dim * s->kv_size;
    return MHA_OK;
}

/* Copies the gradients of `keys` from those of whole blocks. */
static void copy_blocks(const backward *w, int64_t g, const mha__range *keys, const mha__range *blocks)
{
    const mha__shared_call *s = &w->call;
    const int64_t k[4] = {1, 1, keys->length, s->desc.head_dim}, v[4] = {1, 1, keys->length, s->desc.v_head_dim};
    const size_t skip = (size_t)(keys->start - blocks->start) * s->kv_size;
    if (w->grads.dk.data) mha__unpack(&w->grads.dk, w->dk + skip * (size_t)k[3], s->kv_size, k, g, keys->local);
    if (w->grads.dv.data) mha__unpack(&w->grads.dv, w->dv + skip * (size_t)v[3], s->kv_size, v, g, keys->local);
}

/* Computes dk and dv of the keys of sequence n in one chunk of this rank, with all rows of the sequence. */
static mha_status back_keys(const backward *w, int64_t g, int64_t n, const mha__range *chunk, mha_error *err)
{
    const mha__shared_call *s = &w->call;
    const mha_attn_grads *all = &w->grads;
    mha__range rows, keys;
    mha_attn_desc d;
    mha_attn_args a;
    if (!mha__sequence_ranges(s, n, true, chunk, &keys, &rows) || (!all->dk.data && !all->dv.data)) return MHA_OK;
    const mha__range blocks = mha__key_blocks(s, n, &keys);
    mha__shard_sequence(s, n, &rows, &blocks, &d, &a);
    mha__shard_head(s, g, &d, &a);
    mha_attn_grads grads = {.size = sizeof grads,
                            .dout = gathered(&w->gather, DOUT, rows.start),
                            .out = gathered(&w->gather, OUT, rows.start),
                            .lse = gathered(&w->gather, LSE, rows.start),
                            .dk = at(&all->dk, s->kv_size, g, keys.local),
                            .dv = at(&all->dv, s->kv_size, g, keys.local)};
    if (all->dlse.data) grads.dlse = gathered(&w->gather, DLSE, rows.start);
    a.q = gathered(&w->gather, Q, rows.start);
    a.k = gathered(&w->gather, K, blocks.start);
    a.v = gathered(&w->gather, V, blocks.start);
    if (s->packed && all->dk.data) grads.dk = (mha_view){.data = w->dk};
    if (s->packed && all->dv.data) grads.dv = (mha_view){.data = w->dv};
    memcpy(&a.out, &grads.out, sizeof a.out); /* outputs of the forward pass are not written */
    memcpy(&a.lse, &grads.lse, sizeof a.lse);
    MHA__TRY(mha_attention_backward(s->ctx, &d, &a, &grads, err));
    if (s->packed) copy_blocks(w, g, &keys, &blocks);
    return MHA_OK;
}

static mha_status run_backward(backward *w, mha_error *err)
{
    MHA__TRY(check_grads(w, err));
    fill_grads(w);
    MHA__TRY(open_blocks(w, err));
    MHA__TRY(open_gather(w, err));
    for (int64_t g = 0; g < w->call.desc.kv_heads; g++) {
        MHA__TRY(mha__gather_head(&w->gather, g, err));
        for (int64_t n = 0; n < 2 * w->call.sequences; n++) {
            const mha__range rows = mha__chunk(&w->call.rows, n % 2), keys = mha__chunk(&w->call.keys, n % 2);
            MHA__TRY(back_rows(w, g, n / 2, &rows, err));
            MHA__TRY(back_keys(w, g, n / 2, &keys, err));
        }
    }
    return MHA_OK;
}

mha_status mha_cluster_attention_backward(mha_cluster *cluster, mha_ctx *ctx, const mha_attn_desc *desc,
                                          const mha_attn_args *args, const mha_attn_grads *grads, mha_error *err)
{
    backward w = {.gather = {.call = NULL}};
    mha_error why = {0};
    if (!grads) return mha__cluster_fail(cluster, err, MHA_ERR_ARG, "grads must not be NULL");
    MHA__TRY(mha__cluster_read(cluster, &w.grads, sizeof w.grads, grads, "mha_attn_grads", err));
    mha_status status = mha__shared_call_open(&w.call, cluster, ctx, desc, args, &why);
    if (status == MHA_OK) status = run_backward(&w, &why);
    if (w.gather.call) mha__gather_close(&w.gather);
    free(w.dk);
    mha__shared_call_free(&w.call);
    return name_rank(cluster, status, &why, err);
}
