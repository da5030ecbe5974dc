/* lengths.c - checks the lengths of a call, its packed sequences and its list of heads. Declared in params.h. */
#include "attn/plan/params.h"
#include "base/error.h"
#include "base/size.h"
#include <inttypes.h>

/* Checks that each length is from 0 to the length of its sequence: the difference of two `cu` entries, or `longest` if
 * cu is NULL. */
static mha_status check_lengths(const char *name, const int64_t *lens, int64_t count, const int64_t *cu,
                                int64_t longest, mha_error *err)
{
    for (int64_t b = 0; b < count; b++) {
        const int64_t max = cu ? cu[b + 1] - cu[b] : longest;
        if (lens[b] < 0 || lens[b] > max)
            return mha__fail(err, MHA_ERR_ARG, "%s[%" PRId64 "] must be from 0 to %" PRId64 " (got %" PRId64 ")", name,
                             b, max, lens[b]);
    }
    return MHA_OK;
}

/* Checks that cu ascends from 0 to the number of packed rows, by at most `longest` per sequence. */
static mha_status check_packing(const char *name, const int64_t *cu, int64_t count, int64_t total, const char *limit,
                                int64_t longest, mha_error *err)
{
    if (cu[0] != 0) return mha__fail(err, MHA_ERR_ARG, "%s[0] must be 0 (got %" PRId64 ")", name, cu[0]);
    for (int64_t b = 0; b < count; b++)
        if (cu[b + 1] < cu[b])
            return mha__fail(err, MHA_ERR_ARG,
                             "%s[%" PRId64 "] must be at least the previous entry, %" PRId64 " (got %" PRId64 ")", name,
                             b + 1, cu[b], cu[b + 1]);
    for (int64_t b = 0; b < count; b++)
        if (cu[b + 1] - cu[b] > longest)
            return mha__fail(err, MHA_ERR_ARG,
                             "%s[%" PRId64 "] must end a sequence of at most %s = %" PRId64 " (got %" PRId64 ")", name,
                             b + 1, limit, longest, cu[b + 1]);
    if (cu[count] == total) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "%s[%" PRId64 "] must be the total length, %" PRId64 " (got %" PRId64 ")", name,
                     count, total, cu[count]);
}

static mha_status check_head_list(const mha_attn_desc *d, const int32_t *list, mha_error *err)
{
    for (int64_t n = 0; n < d->listed_heads; n++)
        if (list[n] < 0 || list[n] >= d->heads)
            return mha__fail(err, MHA_ERR_ARG, "head_list[%" PRId64 "] must be from 0 to %" PRId64 " (got %" PRId32 ")",
                             n, d->heads - 1, list[n]);
    return MHA_OK;
}

/* Checks a call without an alignment: positions are then defined only if each sequence has as many queries as keys.
 * Sequences of one length are checked once: with no query, a batch of 2^31 sequences requires no memory. */
static mha_status check_align(const mha__call *call, mha_error *err)
{
    const mha_attn_args *a = &call->args;
    const mha_attn_plan *plan = call->plan;
    const bool equal = !a->q_lens && !a->kv_lens && !plan->packed && !plan->packed_keys;
    const int64_t sequences = equal && plan->desc.batch > 1 ? 1 : plan->desc.batch;
    for (int64_t b = 0; b < sequences; b++) {
        const int64_t queries = a->q_lens ? a->q_lens[b] : mha__rows_of(call, b);
        const int64_t keys = a->kv_lens ? a->kv_lens[b] : mha__keys_of(call, b);
        if (queries != keys)
            return mha__fail(err, MHA_ERR_ARG,
                             "align must be set for causal, window, slopes, functions or rope with sequence %" PRId64
                             " of %" PRId64 " queries and %" PRId64 " keys (got MHA_ALIGN_UNSET)",
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
    if (!plan->packed_keys) a->cu_seqlens_k = NULL;
    const int64_t *cu_q = a->cu_seqlens_q, *cu_k = a->cu_seqlens_k, B = d->batch;
    if (plan->packed) MHA__TRY(check_packing("cu_seqlens_q", cu_q, B, d->q_len, "max_q_len", d->max_q_len, err));
    if (plan->packed_keys)
        MHA__TRY(check_packing("cu_seqlens_k", cu_k, B, d->kv_len, "max_kv_len", d->max_kv_len, err));
    if (in & MHA_ATTN_Q_LENS) MHA__TRY(check_lengths("q_lens", a->q_lens, B, cu_q, d->q_len, err));
    if (in & MHA_ATTN_KV_LENS) MHA__TRY(check_lengths("kv_lens", a->kv_lens, B, cu_k, d->kv_len, err));
    /* in a shard of keys, the total number of keys is unknown */
    const int64_t keys = d->outputs & MHA_ATTN_PARTIAL ? INT64_MAX : d->shard.key + d->max_kv_len;
    if (in & MHA_ATTN_PREFIX_LENS) MHA__TRY(check_lengths("prefix_lens", a->prefix_lens, B, NULL, keys, err));
    if (in & MHA_ATTN_HEAD_LIST) MHA__TRY(check_head_list(d, a->head_list, err));
    const bool positional = plan->positional || ((in & MHA_ATTN_ROPE_Q) && !call->rope.q_positions.data);
    if (d->align == MHA_ALIGN_OFFSETS && (positional || (d->outputs & (MHA_ATTN_STATS | MHA_ATTN_ROWS))) && !a->offsets)
        return mha__fail(err, MHA_ERR_ARG, "offsets must not be NULL with MHA_ALIGN_OFFSETS in desc.align");
    if (d->align == MHA_ALIGN_UNSET && positional) MHA__TRY(check_align(call, err));
    return MHA_OK;
}
