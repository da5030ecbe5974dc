/* partial_exchange.h - merges the partial results of one token over the keys of all ranks of a cp group.
 *
 * Ranks exchange lists of partial results with the ranks at distance 1, 2, 4 ...; after each exchange, adjacent results
 * that form a subtree of the operator's tree are merged. A single call makes the same merges, so on every rank the
 * result is bitwise identical to the result of a single call. */
#ifndef MHA_MPI_PARTIAL_EXCHANGE_H
#define MHA_MPI_PARTIAL_EXCHANGE_H

#include "library/model/key_layout.h"

/* Partial results in ascending order of their keys; part n has the rows at memory + n * bytes. */
typedef struct mha__part_list {
    int64_t count;
    mha_attn_partial *parts;
    char *memory;
} mha__part_list;

typedef struct mha__exchange {
    mha__range *ranges; /* scratch of mha__list_keys */
    mha__part_list own, other, merged;
    int64_t room;      /* capacity of the lists [parts] */
    size_t bytes;      /* capacity of the memory of each list */
    size_t part_bytes; /* size of a part in this call */
} mha__exchange;

/* Allocates memory for the parts of a layout, each of `part_bytes` bytes, and lists this rank's keys in
 * exchange->own. */
mha_status mha__exchange_begin(mha__exchange *exchange, mha_cluster *cluster, const mha__key_layout *layout,
                               size_t part_bytes, mha_error *err);
/* Collective over the cp group. The rows of exchange->own must have been computed. Replaces exchange->own with the
 * merged parts of all ranks. `call` specifies the sizes and dtype of the rows. */
mha_status mha__exchange_merge(mha__exchange *exchange, mha_cluster *cluster, mha_ctx *ctx,
                               const mha__key_layout *layout, const mha_attn_merge_partials_args *call, mha_error *err);
void mha__exchange_free(mha__exchange *exchange);

#endif
