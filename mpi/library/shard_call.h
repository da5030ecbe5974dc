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
    bool packed;
    int64_t planes;              /* first dimension of q, k, v, out and lse: B, or 1 if packed */
    int64_t sequences;           /* sequences that are computed in separate calls: B if packed, else 1 */
    mha_cluster_part *row_parts; /* [2, cp] the rows of each rank, followed by the keys of each rank */
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
/* Divides rows and keys among the ranks: sets row_parts, rows and keys. */
mha_status mha__divide_call(mha__shared_call *call, mha_error *err);

/* mha__keys_of and mha__rows_of return the keys and rows of a cp rank, mha__peer its rank in the cluster, mha__chunk
 * chunk n of a part, and mha__part_length the length of a part. */
mha_cluster_part mha__keys_of(const mha__shared_call *call, int cp_rank);
mha_cluster_part mha__rows_of(const mha__shared_call *call, int cp_rank);
int mha__peer(const mha__shared_call *call, int cp_rank);
mha__range mha__chunk(const mha_cluster_part *part, int n);
int64_t mha__part_length(const mha_cluster_part *part);

/* Returns true if causal, window and prefix allow a row of `rows` to attend to a key of `keys`. */
bool mha__any_row_attends(const mha__shared_call *call, const mha__range *rows, const mha__range *keys);

/* Describes the call for `rows` and `keys`, with the offsets, lengths, masks and per-head operands of the whole call.
 * q, out, lse and masks begin at row `rows->local` of this rank; the caller must set k and v. */
void mha__shard_call(const mha__shared_call *call, const mha__range *rows, const mha__range *keys, mha_attn_desc *desc,
                     mha_attn_args *args);
/* Like mha__shard_call, for rows and keys of sequence n, which must be 0 unless the sequences are packed. */
void mha__shard_sequence(const mha__shared_call *call, int64_t n, const mha__range *rows, const mha__range *keys,
                         mha_attn_desc *desc, mha_attn_args *args);
/* Sets *some to the rows of sequence n in `range`, and *all to the keys of the sequence; with `by_keys`, `range` and
 * *some are keys, and *all are rows. Returns false if *some is empty. */
bool mha__sequence_ranges(const mha__shared_call *call, int64_t n, bool by_keys, const mha__range *range,
                          mha__range *some, mha__range *all);
/* Returns the keys of sequence n for a backward call that computes dk and dv of `keys`: whole blocks of MHA__GRAD_KEYS
 * keys, counted from the start of the sequence, because only their gradients are bitwise identical to those of one
 * process (attn.h, shards). Without packed sequences, `keys` are whole blocks. */
enum { MHA__GRAD_KEYS = 128 };
mha__range mha__key_blocks(const mha__shared_call *call, int64_t n, const mha__range *keys);
/* Restricts a call to KV head g and its query heads. */
void mha__shard_head(const mha__shared_call *call, int64_t g, mha_attn_desc *desc, mha_attn_args *args);

/* Returns view->data advanced to an element; NULL stays NULL. */
const void *mha__moved(const mha_cview *view, size_t size, int64_t b, int64_t h, int64_t row, int64_t column);
/* mha__pack copies [B, heads, length, width] of a view, starting at head h and row `row`, to contiguous memory;
 * mha__unpack copies in the opposite direction. */
void mha__pack(void *to, const mha_cview *from, size_t size, const int64_t shape[4], int64_t h, int64_t row);
void mha__unpack(const mha_view *to, const void *from, size_t size, const int64_t shape[4], int64_t h, int64_t row);

#endif
