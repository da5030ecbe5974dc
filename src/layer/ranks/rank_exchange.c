/* rank_exchange.c - see rank_exchange.h. */
#include "layer/ranks/rank_exchange.h"

#include "base/error.h"
#include "base/struct_size.h"

mha_status mha__ranks_read(mha_model_ranks *ranks, const mha_model_ranks *given, mha_error *err)
{
    MHA__TRY(mha__options_need(ranks, sizeof *ranks, given, "mha_model_ranks", err));
    if (ranks->ranks < 1 || ranks->ranks > MHA_RANK_GROUPS)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_ranks: ranks must be from 1 to %d (got %d)", MHA_RANK_GROUPS,
                         ranks->ranks);
    if (ranks->rank < 0 || ranks->rank >= ranks->ranks)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_ranks: rank must be from 0 to %d (got %d)", ranks->ranks - 1,
                         ranks->rank);
    if (ranks->ranks > 1 && !ranks->exchange)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_ranks: exchange must not be NULL with %d ranks", ranks->ranks);
    return MHA_OK;
}

mha_model_range mha_model_ranks_range(int64_t items, int ranks, int rank)
{
    if (items < 0 || items > INT64_MAX / MHA_RANK_GROUPS || ranks < 1 || ranks > MHA_RANK_GROUPS || rank < 0 ||
        rank >= ranks)
        return (mha_model_range){0};
    const mha_model_ranks r = {.ranks = ranks};
    const int64_t first = mha__group_begin(items, mha__rank_begin(&r, rank));
    return (mha_model_range){first, mha__group_begin(items, mha__rank_begin(&r, rank + 1)) - first};
}

mha_status mha__exchange(const mha_model_ranks *ranks, mha__messages *messages, mha_error *err)
{
    mha_error why = {0};
    if (ranks->ranks == 1) return MHA_OK;
    messages->send_bytes[ranks->rank] = messages->receive_bytes[ranks->rank] = 0;
    const mha_status status = ranks->exchange(ranks->user, messages->send, messages->send_bytes, messages->receive,
                                              messages->receive_bytes, &why);
    why.status = status; /* the callback may have set only the message */
    if (status != MHA_OK && err) *err = why;
    return status;
}
