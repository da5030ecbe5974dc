/* head_gather.h - gathers the tensors of one KV head from all ranks on every rank. The transfers of the next head
 * overlap with the computation. */
#ifndef MHA_MPI_HEAD_GATHER_H
#define MHA_MPI_HEAD_GATHER_H

#include "library/shard_call.h"

/* A tensor whose rows or keys are divided among the ranks. */
typedef struct mha__gathered {
    mha_cview from; /* [B, heads of all KV heads, n, width] this rank's part */
    size_t size;    /* size of an element [bytes] */
    int64_t heads;  /* heads per KV head: the group size for queries, 1 for keys */
    int64_t width;
    bool keys;   /* true = the keys are divided among the ranks, false = the rows */
    char *whole; /* [B, heads, full length, width] the current KV head, contiguous */
} mha__gathered;

enum { MHA__GATHERED = 7 };

typedef struct mha__head_gather {
    const mha__shared_call *call;
    mha__gathered item[MHA__GATHERED];
    int items;
    char *parts[2]; /* the parts of all ranks, for the current KV head and the next */
    size_t bytes;   /* size of each buffer */
} mha__head_gather;

/* Adds a tensor; must be called before mha__gather_open. */
void mha__gather_add(mha__head_gather *gather, mha_cview from, size_t size, int64_t heads, int64_t width, bool keys);
/* Allocates the buffers, and starts the transfers of head 0. Free with mha__gather_close, also after a failure. */
mha_status mha__gather_open(mha__head_gather *gather, mha_error *err);
/* Waits for head g, starts the transfers of the next head, and writes `whole` of each tensor. */
mha_status mha__gather_head(mha__head_gather *gather, int64_t g, mha_error *err);
void mha__gather_close(mha__head_gather *gather);

/* Returns a view of a gathered tensor. */
mha_cview mha__gather_view(const mha__head_gather *gather, int item);

#endif
