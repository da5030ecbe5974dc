/* head_gather.c - gathers the tensors of KV heads from all ranks. Each rank sends its part to the other cp - 1
 * ranks. */
#include "library/head_gather.h"

#include <stdlib.h>
#include <string.h>

void mha__gather_add(mha__head_gather *gather, mha_cview from, size_t size, int64_t heads, int64_t width, bool keys)
{
    gather->item[gather->items++] =
        (mha__gathered){.from = from, .size = size, .heads = heads, .width = width, .keys = keys};
}

static mha_cluster_part part_of(const mha__head_gather *g, const mha__gathered *item, int cp_rank)
{
    return item->keys ? mha__keys_of(g->call, cp_rank) : mha__rows_of(g->call, cp_rank);
}

static size_t item_bytes(const mha__head_gather *g, const mha__gathered *item, int cp_rank)
{
    const mha_cluster_part part = part_of(g, item, cp_rank);
    return (size_t)(g->call->planes * item->heads * mha__part_length(&part) * item->width) * item->size;
}

static size_t rank_bytes(const mha__head_gather *g, int cp_rank)
{
    size_t bytes = 0;
    for (int n = 0; n < g->items; n++)
        bytes += item_bytes(g, &g->item[n], cp_rank);
    return bytes;
}

/* Returns the start of a rank's part in the buffer of a head. */
static char *rank_part(const mha__head_gather *g, int64_t head, int cp_rank)
{
    char *at = g->parts[head % 2];
    for (int rank = 0; rank < cp_rank; rank++)
        at += rank_bytes(g, rank);
    return at;
}

static mha_status allocate(mha__head_gather *g, mha_error *err)
{
    const mha_attn_desc *d = &g->call->desc;
    g->bytes = 1;
    for (int rank = 0; rank < g->call->cp; rank++)
        g->bytes += rank_bytes(g, rank);
    for (int n = 0; n < 2; n++)
        if (!(g->parts[n] = malloc(g->bytes)))
            return mha__cluster_no_memory(g->call->cluster, err, g->bytes, "the tensors of one KV head on all ranks");
    for (int n = 0; n < g->items; n++) {
        mha__gathered *item = &g->item[n];
        const int64_t length = item->keys ? d->kv_len : d->q_len;
        const size_t bytes = (size_t)(g->call->planes * item->heads * length * item->width) * item->size;
        item->whole = malloc(bytes + 1);
        if (!item->whole)
            return mha__cluster_no_memory(g->call->cluster, err, bytes,
                                          "the tensors of one KV head for the full sequence");
    }
    return MHA_OK;
}

static mha_status start(const mha__head_gather *g, int64_t head, mha_error *err)
{
    const mha__shared_call *s = g->call;
    char *own = rank_part(g, head, s->me), *to = own;
    for (int n = 0; n < g->items; n++) {
        const mha__gathered *item = &g->item[n];
        const int64_t shape[4] = {s->planes, item->heads,
                                  item->keys ? mha__part_length(&s->keys) : mha__part_length(&s->rows), item->width};
        if (shape[2] > 0) mha__pack(to, &item->from, item->size, shape, head * item->heads, 0);
        to += item_bytes(g, item, s->me);
    }
    for (int rank = 0; rank < s->cp; rank++) {
        if (rank == s->me) continue;
        MHA__TRY(
            mha__cluster_receive(s->cluster, rank_part(g, head, rank), rank_bytes(g, rank), mha__peer(s, rank), err));
        MHA__TRY(mha__cluster_send(s->cluster, own, rank_bytes(g, s->me), mha__peer(s, rank), err));
    }
    return MHA_OK;
}

/* Copies the two chunks of each rank to their positions in the whole tensors. */
static void assemble(const mha__head_gather *g, int64_t head)
{
    const mha_attn_desc *d = &g->call->desc;
    for (int rank = 0; rank < g->call->cp; rank++) {
        const char *from = rank_part(g, head, rank);
        for (int n = 0; n < g->items; n++) {
            const mha__gathered *item = &g->item[n];
            const mha_cluster_part part = part_of(g, item, rank);
            const int64_t length = item->keys ? d->kv_len : d->q_len;
            const size_t row = (size_t)item->width * item->size;
            for (int64_t plane = 0; plane < g->call->planes * item->heads; plane++)
                for (int c = 0; c < 2; c++) {
                    const size_t bytes = (size_t)part.length[c] * row;
                    if (bytes > 0) memcpy(item->whole + (size_t)(plane * length + part.start[c]) * row, from, bytes);
                    from += bytes;
                }
        }
    }
}

mha_status mha__gather_open(mha__head_gather *gather, mha_error *err)
{
    MHA__TRY(allocate(gather, err));
    return start(gather, 0, err);
}

mha_status mha__gather_head(mha__head_gather *gather, int64_t g, mha_error *err)
{
    MHA__TRY(mha__cluster_wait(gather->call->cluster, "gathering a KV head", err));
    if (g + 1 < gather->call->desc.kv_heads) MHA__TRY(start(gather, g + 1, err));
    assemble(gather, g);
    return MHA_OK;
}

void mha__gather_close(mha__head_gather *gather)
{
    for (int n = 0; n < gather->items; n++)
        free(gather->item[n].whole);
    if (gather->call->cluster->pending > 0) return; /* pending transfers still use the buffers */
    free(gather->parts[0]);
    free(gather->parts[1]);
}

mha_cview mha__gather_view(const mha__head_gather *gather, int item)
{
    const mha__gathered *i = &gather->item[item];
    const int64_t length = i->keys ? gather->call->desc.kv_len : gather->call->desc.q_len;
    return (mha_cview){i->whole, {i->heads * length * i->width, length * i->width, i->width, 1}};
}
