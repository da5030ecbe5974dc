/* head_gather.h - brings what all ranks hold of one KV head to all of them, the next head's while one is computed. */
#ifndef MHA_MPI_HEAD_GATHER_H
#define MHA_MPI_HEAD_GATHER_H

#include "shard_call.h"

/* One tensor, of which each rank holds its rows (or keys). */
typedef struct mha__gathered {
    mha_cview from; /* of this rank: [B, heads of all KV heads, n, width] */
    size_t size;    /* bytes of an element */
    int64_t heads;  /* per KV head: the group for queries, 1 for keys */
    int64_t width;
    bool keys;   /* the length is that of the keys */
    char *whole; /* [B, heads, length of the whole, width] of the current KV head, contiguous */
} mha__gathered;

enum { MHA__GATHERED = 7 };

typedef struct mha__head_gather {
    const mha__shared_call *call;
    mha__gathered item[MHA__GATHERED];
    int items;
    char *parts[2]; /* of all ranks, of the current KV head and the next */
    size_t bytes;   /* of each */
} mha__head_gather;

/* Adds a tensor, before the gather is opened. */
void mha__gather_add(mha__head_gather *gather, mha_cview from, size_t size, int64_t heads, int64_t width, bool keys);
/* Allocates, and starts the transfers of head 0. Free with mha__gather_close, also after a failure. */
mha_status mha__gather_open(mha__head_gather *gather, mha_error *err);
/* Waits for head g, starts the transfers of the next one, and fills `whole` of each tensor. */
mha_status mha__gather_head(mha__head_gather *gather, int64_t g, mha_error *err);
void mha__gather_close(mha__head_gather *gather);

/* `whole` of a tensor as a view. */
mha_cview mha__gather_view(const mha__head_gather *gather, int item);

#endif
