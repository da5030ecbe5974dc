/* shard_call.h - one call of the operator for some rows and some keys of a sequence that several ranks share. */
#ifndef MHA_MPI_SHARD_CALL_H
#define MHA_MPI_SHARD_CALL_H

#include "cluster_struct.h"

/* The whole problem as one rank sees it: descriptions with defaults filled in, views with strides. */
typedef struct mha__shared_call {
    mha_cluster *cluster;
    mha_ctx *ctx;
    mha_attn_desc desc; /* of the whole */
    mha_attn_args args; /* of this rank */
    int cp, me;
    int64_t group;        /* query heads per KV head */
    size_t size, kv_size; /* bytes of an element of q and out, and of k and v */
    size_t real_size;     /* of lse and partial results */
    size_t bias_size;
    mha_cluster_part rows, keys; /* of this rank */
    int64_t *lengths;            /* [4, B] offsets, then room for q_lens, kv_lens and prefix_lens of a call */
    int64_t low, high;           /* smallest and largest offset */
    int64_t prefix;              /* longest prefix */
} mha__shared_call;

/* Some rows, and where they are among the rows that the views have. */
typedef struct mha__range {
    int64_t start, length, local;
} mha__range;

/* Checks the call and fills the struct; free its memory with mha__shared_call_free, also after a failure. */
mha_status mha__shared_call_open(mha__shared_call *call, mha_cluster *cluster, mha_ctx *ctx, const mha_attn_desc *desc,
                                 const mha_attn_args *args, mha_error *err);
void mha__shared_call_free(mha__shared_call *call);

/* The part of any rank; the rank of the cluster that a cp rank is; a rank's chunk n of rows or keys. */
mha_cluster_part mha__keys_of(const mha__shared_call *call, int cp_rank);
mha_cluster_part mha__rows_of(const mha__shared_call *call, int cp_rank);
int mha__peer(const mha__shared_call *call, int cp_rank);
mha__range mha__chunk(const mha_cluster_part *part, int n);
int64_t mha__part_length(const mha_cluster_part *part);

/* Does a row of `rows` attend to a key of `keys`, as far as causal, window and prefix tell? */
bool mha__ranges_meet(const mha__shared_call *call, const mha__range *rows, const mha__range *keys);

/* Describes the call for `rows` and `keys`: offsets, lengths, masks and everything per head of the whole. q, out, lse
 * and masks begin at row `rows->local` of this rank; k and v are for the caller to set. */
void mha__shard_call(const mha__shared_call *call, const mha__range *rows, const mha__range *keys, mha_attn_desc *desc,
                     mha_attn_args *args);
/* Narrows a call to KV head g and its query heads. */
void mha__shard_head(const mha__shared_call *call, int64_t g, mha_attn_desc *desc, mha_attn_args *args);

/* `data` moved by whole strides, NULL stays NULL. */
const void *mha__moved(const mha_cview *view, size_t size, int64_t b, int64_t h, int64_t row, int64_t column);
/* Copies [B, heads, length, width] of a view, from head h and row `row` on, to contiguous memory; and back. */
void mha__pack(void *to, const mha_cview *from, size_t size, const int64_t shape[4], int64_t h, int64_t row);
void mha__unpack(const mha_view *to, const void *from, size_t size, const int64_t shape[4], int64_t h, int64_t row);

#endif
