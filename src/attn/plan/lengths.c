/* lengths.c - checks the lengths of one call, its packing and its list of heads. Part of params.h. */
#include "attn/plan/params.h"

#include "base/error.h"
#include "base/size.h"
#include <inttypes.h>

/* No longer than the sequence, of which `cu`, or without it `longest`, says the length. */
static mha_status check_lengths(const char *name, const int64_t *lens, int64_t count, const int64_t *cu,
                                int64_t longest, mha_error *err)
{
    if (!lens) return mha__fail(err, MHA_ERR_ARG, "%s is NULL", name);
    for (int64_t b = 0; b < count; b++) {
        const int64_t most = cu ? cu[b + 1] - cu[b] : longest;
        if (lens[b] < 0 || lens[b] > most)
            return mha__fail(err, MHA_ERR_ARG, "%s[%" PRId64 "] = %" PRId64 ": must be from 0 to %" PRId64, name, b,
                             lens[b], most);
    }
    return MHA_OK;
}

/* Ascending from 0 to the number of packed rows, by `longest` at most. */
static mha_status check_packing(const char *name, const int64_t *cu, int64_t count, int64_t total, const char *limit,
                                int64_t longest, mha_error *err)
{
    if (!cu) return mha__fail(err, MHA_ERR_ARG, "%s is NULL", name);
    if (cu[0] != 0) return mha__fail(err, MHA_ERR_ARG, "%s[0] = %" PRId64 ": must be 0", name, cu[0]);
    for (int64_t b = 0; b < count; b++)
        if (cu[b + 1] < cu[b])
            return mha__fail(err, MHA_ERR_ARG,
                             "%s[%" PRId64 "] = %" PRId64 ": must not be below the %" PRId64 " before it", name, b + 1,
                             cu[b + 1], cu[b]);
    for (int64_t b = 0; b < count; b++)
        if (cu[b + 1] - cu[b] > longest)
            return mha__fail(err, MHA_ERR_ARG,
                             "%s[%" PRId64 "] = %" PRId64 ": sequence %" PRId64 " would be longer than %s = %" PRId64,
                             name, b + 1, cu[b + 1], b, limit, longest);
    if (cu[count] == total) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "%s[%" PRId64 "] = %" PRId64 ": must be the length of all, %" PRId64, name,
                     count, cu[count], total);
}

static mha_status check_head_list(const mha_attn_desc *d, const int32_t *list, mha_error *err)
{
    if (!list) return mha__fail(err, MHA_ERR_ARG, "head_list is NULL");
    for (int64_t n = 0; n < d->listed_heads; n++)
        if (list[n] < 0 || list[n] >= d->heads)
            return mha__fail(err, MHA_ERR_ARG, "head_list[%" PRId64 "] = %" PRId32 ": must be from 0 to %" PRId64, n,
                             list[n], d->heads - 1);
    return MHA_OK;
}

/* Without an align, a position is only clear where queries and keys are as many. */
static mha_status check_align(const mha__call *call, mha_error *err)
{
    const mha_attn_args *a = &call->args;
    for (int64_t b = 0; b < call->plan->desc.batch; b++) {
        const int64_t queries = a->q_lens ? a->q_lens[b] : mha__rows_of(call, b);
        const int64_t keys = a->kv_lens ? a->kv_lens[b] : mha__keys_of(call, b);
        if (queries != keys)
            return mha__fail(err, MHA_ERR_ARG,
                             "align is unset, but it matters: sequence %" PRId64 " has %" PRId64 " queries and %" PRId64
                             " keys, and causal, window or slopes are on",
                             b, queries, keys);
    }
    return MHA_OK;
}

mha_status mha__bind_lengths(mha__call *call, mha_error *err)
{
    const mha_attn_plan *plan = call->plan;
    const mha_attn_desc *d = &plan->desc;
    mha_attn_args *a = &call->args;
    const uint32_t in = d->inputs;
    if (!(in & MHA_ATTN_Q_LENS)) a->q_lens = NULL;
    if (!(in & MHA_ATTN_KV_LENS)) a->kv_lens = NULL;
    if (!(in & MHA_ATTN_PREFIX_LENS)) a->prefix_lens = NULL;
    if (!plan->packed) a->cu_seqlens_q = NULL;
    if (!plan->packed_keys) a->cu_seqlens_k = NULL;
    const int64_t *cu_q = a->cu_seqlens_q, *cu_k = a->cu_seqlens_k, B = d->batch;
    if (plan->packed) MHA__TRY(check_packing("cu_seqlens_q", cu_q, B, d->q_len, "max_q_len", d->max_q_len, err));
    if (plan->packed_keys)
        MHA__TRY(check_packing("cu_seqlens_k", cu_k, B, d->kv_len, "max_kv_len", d->max_kv_len, err));
    if (in & MHA_ATTN_Q_LENS) MHA__TRY(check_lengths("q_lens", a->q_lens, B, cu_q, d->q_len, err));
    if (in & MHA_ATTN_KV_LENS) MHA__TRY(check_lengths("kv_lens", a->kv_lens, B, cu_k, d->kv_len, err));
    if (in & MHA_ATTN_PREFIX_LENS) MHA__TRY(check_lengths("prefix_lens", a->prefix_lens, B, NULL, d->max_kv_len, err));
    if (in & MHA_ATTN_HEAD_LIST) MHA__TRY(check_head_list(d, a->head_list, err));
    if (d->align == MHA_ALIGN_OFFSETS && (plan->positional || (d->outputs & (MHA_ATTN_STATS | MHA_ATTN_ROWS))) &&
        !a->offsets)
        return mha__fail(err, MHA_ERR_ARG, "offsets is NULL, but align is MHA_ALIGN_OFFSETS");
    if (d->align == MHA_ALIGN_UNSET && plan->positional) MHA__TRY(check_align(call, err));
    return MHA_OK;
}
