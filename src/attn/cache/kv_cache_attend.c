/* kv_cache_attend.c - appends tokens to a KV cache and attends to all of its keys in one call. */
#include "attn/cache/kv_cache.h"
#include "base/error.h"
#include "base/struct_size.h"

/* Removes the tokens of a failed call. The removal cannot fail, because the cache still contains all keys that a query
 * at the old length attends to. */
static void remove_tokens(mha_cache *c, int64_t first, int64_t end, const mha_cache_tokens *tokens)
{
    for (int64_t b = first; b < end; b++) {
        const int64_t count = tokens->counts ? tokens->counts[b - first] : tokens->count;
        if (count > 0) mha_cache_truncate(c, b, c->lengths[b] - count, NULL);
    }
}

/* Checks q_lens before the append, as the operator does for all arguments: mha_cache_bind sets the flag again. */
static mha_status check_lens(const mha_attn_desc *d, const mha_attn_args *a, mha_error *err)
{
    if (a->q_lens && !(d->inputs & MHA_ATTN_Q_LENS))
        return mha__fail(err, MHA_ERR_ARG, "q_lens must be NULL without MHA_ATTN_Q_LENS in desc.inputs (got %p)",
                         (const void *)a->q_lens);
    if (!a->q_lens && (d->inputs & MHA_ATTN_Q_LENS))
        return mha__fail(err, MHA_ERR_ARG, "q_lens must not be NULL with MHA_ATTN_Q_LENS in desc.inputs");
    return MHA_OK;
}

static mha_status attend(mha_ctx *ctx, mha_cache *c, int64_t sequence, const int64_t *q_lens, mha_attn_desc *desc,
                         mha_attn_args *args, mha_error *err)
{
    MHA__TRY(mha_cache_bind(c, sequence, q_lens, desc, args, err));
    return mha_attention(ctx, desc, args, err);
}

mha_status mha_cache_attend(mha_ctx *ctx, mha_cache *c, int64_t sequence, const mha_cache_tokens *tokens,
                            const mha_attn_desc *desc, const mha_attn_args *args, mha_error *err)
{
    mha_cache_tokens t;
    mha_attn_desc d;
    mha_attn_args a;
    int64_t first = 0, end = 0;
    MHA__TRY(mha__options_need(&t, sizeof t, tokens, "mha_cache_tokens", err));
    MHA__TRY(mha__options_need(&d, sizeof d, desc, "mha_attn_desc", err));
    MHA__TRY(mha__options_need(&a, sizeof a, args, "mha_attn_args", err));
    MHA__TRY(check_lens(&d, &a, err));
    MHA__TRY(mha__cache_range(c, sequence, &first, &end, err));
    const int64_t *counts = d.inputs & MHA_ATTN_CU_SEQLENS ? NULL : t.counts;
    MHA__TRY(mha_cache_append(c, sequence, &t, err));
    const mha_status status = attend(ctx, c, sequence, d.inputs & MHA_ATTN_Q_LENS ? a.q_lens : counts, &d, &a, err);
    if (status != MHA_OK) remove_tokens(c, first, end, &t);
    return status;
}
