/* shard_call.h - one call of the operator for some rows and some keys of a sequence distributed over ranks. */
#ifndef MHA_MPI_SHARD_CALL_H
#define MHA_MPI_SHARD_CALL_H

#include "library/cluster_struct.h"

/* A shared call on one rank, with all defaults and all strides set. */
typedef struct mha__shared_call {
    mha_cluster *cluster;
    mha_ctx *ctx;
    mha_attn_desc desc; /* describes the whole call */
    mha_attn_args args; /* this rank's operands */
    int cp, me;
    int64_t group;        /* query heads per KV head */
    size_t size, kv_size; /* element size of q and out; of k and v [bytes] */
    size_t real_size;     /* element size of lse and partial results [bytes] */
    size_t bias_size;
    mha_cluster_part rows, keys; /* this rank's parts */
    int64_t *lengths;            /* [4, B] offsets, then scratch for q_lens, kv_lens and prefix_lens of one call */
    int64_t low, high;           /* smallest and largest offset */
    int64_t prefix;              /* longest prefix */
} mha__shared_call;

/* A range of rows or keys, and its position in this rank's views. */
typedef struct mha__range {
    int64_t start, length, local;
} mha__range;

/* Validates the call and sets the fields of the struct; free it with mha__shared_call_free, even after a failure. */
mha_status mha__shared_call_open(mha__shared_call *call, mha_cluster *cluster, mha_ctx *ctx, const mha_attn_desc *desc,
                                 const mha_attn_args *args, mha_error *err);
void mha__shared_call_free(mha__shared_call *call);

/* mha__keys_of and mha__rows_of return the keys and rows of a cp rank, mha__peer its rank in the cluster, mha__chunk
 * chunk n of a part, and mha__part_length the length of a part. */
mha_cluster_part mha__keys_of(const mha__shared_call *call, int cp_rank);
mha_cluster_part mha__rows_of(const mha__shared_call *call, int cp_rank);
int mha__peer(const mha__shared_call *call, int cp_rank);
mha__range mha__chunk(const mha_cluster_part *part, int n);
int64_t mha__part_length(const mha_cluster_part *part);

/* Returns true if causal, window and prefix allow a row of `rows` to attend to a key of `keys`. */
bool mha__ranges_meet(const mha__shared_call *call, const mha__range *rows, const mha__range *keys);

/* Describes the call for `rows` and `keys`, with the offsets, lengths, masks and per-head operands of the whole call.
 * q, out, lse and masks begin at row `rows->local` of this rank; the caller must set k and v. */
void mha__shard_call(const mha__shared_call *call, const mha__range *rows, const mha__range *keys, mha_attn_desc *desc,
                     mha_attn_args *args);
/* Restricts a call to KV head g and its query heads. */
void mha__shard_head(const mha__shared_call *call, int64_t g, mha_attn_desc *desc, mha_attn_args *args);

/* Returns view->data advanced to an element; NULL stays NULL. */
const void *mha__moved(const mha_cview *view, size_t size, int64_t b, int64_t h, int64_t row, int64_t column);
/* mha__pack copies [B, heads, length, width] of a view, starting at head h and row `row`, to contiguous memory;
 * mha__unpack copies in the opposite direction. */
void mha__pack(void *to, const mha_cview *from, size_t size, const int64_t shape[4], int64_t h, int64_t row);
void mha__unpack(const mha_view *to, const void *from, size_t size, const int64_t shape[4], int64_t h, int64_t row);

#endif
