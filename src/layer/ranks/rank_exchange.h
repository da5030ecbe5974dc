/* rank_exchange.h - the processes that run one model together (mha/model_ranks.h): their parts, and messages between
 * them. */
#ifndef MHA_LAYER_RANKS_RANK_EXCHANGE_H
#define MHA_LAYER_RANKS_RANK_EXCHANGE_H

#include "mha/model_ranks.h"

/* Copies and checks the caller's struct. */
mha_status mha__ranks_read(mha_model_ranks *ranks, const mha_model_ranks *given, mha_error *err);

/* Returns the first item of a group if `items` items are divided into groups; for group MHA_RANK_GROUPS, the number of
 * items. */
static inline int64_t mha__group_begin(int64_t items, int group)
{
    return items * group / MHA_RANK_GROUPS;
}
/* Returns the first group of a rank; for rank ranks->ranks, the number of groups. */
static inline int mha__rank_begin(const mha_model_ranks *ranks, int rank)
{
    return MHA_RANK_GROUPS * rank / ranks->ranks;
}
static inline mha_model_range mha__own_range(const mha_model_ranks *ranks, int64_t items)
{
    return mha_model_ranks_range(items, ranks->ranks, ranks->rank);
}

/* The messages of one exchange; entry n is for rank n. */
typedef struct mha__messages {
    const void *send[MHA_RANK_GROUPS];
    void *receive[MHA_RANK_GROUPS];
    size_t send_bytes[MHA_RANK_GROUPS], receive_bytes[MHA_RANK_GROUPS];
} mha__messages;
/* Sends and receives all messages; does nothing with one rank. Entries of this rank are ignored. */
mha_status mha__exchange(const mha_model_ranks *ranks, mha__messages *messages, mha_error *err);

#endif
