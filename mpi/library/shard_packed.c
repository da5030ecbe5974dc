/* shard_packed.c - packed sequences distributed over ranks: the parts of each rank, and the call of one sequence. Each
 * sequence of a chunk is computed by a call of its own, because a chunk may begin within a sequence. */
#include "library/shard_call.h"
#include <stdlib.h>

/* ---- parts ---- */

/* Checks one of cu_seqlens_q and cu_seqlens_k. `longest` is max_q_len or max_kv_len. */
static mha_status check_packing(const mha__shared_call *s, const char *name, const int64_t *cu, int64_t total,
                                int64_t longest, mha_error *err)
{
    const int64_t batch = s->desc.batch, limit = longest ? longest : total;
    for (int64_t b = 0; b < batch; b++)
        if ((b == 0 && cu[0] != 0) || cu[b + 1] < cu[b] || cu[b + 1] - cu[b] > limit)
            return mha__cluster_fail(s->cluster, err, MHA_ERR_ARG,
                                     "%s must begin with 0, and sequence %lld must have from 0 to %lld positions (got "
                                     "%lld to %lld)",
                                     name, (long long)b, (long long)limit, (long long)cu[b], (long long)cu[b + 1]);
    if (cu[batch] == total) return MHA_OK;
    return mha__cluster_fail(s->cluster, err, MHA_ERR_ARG, "%s[%lld] must be %lld (got %lld)", name, (long long)batch,
                             (long long)total, (long long)cu[batch]);
}

/* Divides the rows or keys of the call. */
static mha_status divide(const mha__shared_call *s, const char *name, const int64_t *cu, int64_t length,
                         int64_t longest, mha_cluster_part *parts, mha_error *err)
{
    for (int rank = 0; rank < s->cp; rank++)
        parts[rank] = mha_cluster_part_of(length, s->cp, rank);
    if (!s->packed) return MHA_OK;
    if (!cu) return mha__cluster_fail(s->cluster, err, MHA_ERR_ARG, "%s must not be NULL", name);
    MHA__TRY(check_packing(s, name, cu, length, longest, err));
    return mha_cluster_packed_parts(&s->desc, cu, s->cp, parts, err);
}

mha_status mha__divide_call(mha__shared_call *s, mha_error *err)
{
    const mha_attn_desc *d = &s->desc;
    const size_t bytes = 2 * (size_t)s->cp * sizeof *s->row_parts;
    s->row_parts = malloc(bytes);
    if (!s->row_parts) return mha__cluster_no_memory(s->cluster, err, bytes, "the parts of all ranks");
    MHA__TRY(divide(s, "cu_seqlens_q", s->args.cu_seqlens_q, d->q_len, d->max_q_len, s->row_parts, err));
    MHA__TRY(divide(s, "cu_seqlens_k", s->args.cu_seqlens_k, d->kv_len, d->max_kv_len, s->row_parts + s->cp, err));
    s->rows = mha__rows_of(s, s->me);
    s->keys = mha__keys_of(s, s->me);
    return MHA_OK;
}

/* ---- calls ---- */

bool mha__sequence_ranges(const mha__shared_call *call, int64_t n, bool by_keys, const mha__range *range,
                          mha__range *some, mha__range *all)
{
    const int64_t *own = by_keys ? call->args.cu_seqlens_k : call->args.cu_seqlens_q;
    const int64_t *other = by_keys ? call->args.cu_seqlens_q : call->args.cu_seqlens_k;
    *some = *range;
    *all = (mha__range){0, by_keys ? call->desc.q_len : call->desc.kv_len, 0};
    if (!call->packed) return some->length > 0;
    some->start = range->start > own[n] ? range->start : own[n];
    some->length = mha__min64(range->start + range->length, own[n + 1]) - some->start;
    some->local = range->local + some->start - range->start;
    *all = (mha__range){other[n], other[n + 1] - other[n], 0};
    return some->length > 0;
}

mha__range mha__key_blocks(const mha__shared_call *call, int64_t n, const mha__range *keys)
{
    if (!call->packed) return *keys;
    const int64_t begin = call->args.cu_seqlens_k[n], end = call->args.cu_seqlens_k[n + 1];
    const int64_t before = (keys->start - begin) % MHA__GRAD_KEYS;
    const int64_t after = (MHA__GRAD_KEYS - (keys->start + keys->length - begin) % MHA__GRAD_KEYS) % MHA__GRAD_KEYS;
    const int64_t stop = mha__min64(keys->start + keys->length + after, end);
    return (mha__range){keys->start - before, stop - (keys->start - before), 0};
}

void mha__shard_sequence(const mha__shared_call *call, int64_t n, const mha__range *rows, const mha__range *keys,
                         mha_attn_desc *desc, mha_attn_args *args)
{
    int64_t *prefix = call->lengths + 3 * call->desc.batch + n;
    mha__shard_call(call, rows, keys, desc, args);
    if (!call->packed) return;
    desc->inputs &= ~(uint32_t)MHA_ATTN_CU_SEQLENS;
    desc->batch = 1;
    desc->max_q_len = desc->max_kv_len = 0;
    desc->shard.batch += n;
    desc->shard.row -= call->args.cu_seqlens_q[n];
    desc->shard.key -= call->args.cu_seqlens_k[n];
    args->cu_seqlens_q = args->cu_seqlens_k = NULL;
    args->offsets += n;
    args->slopes.data = mha__moved(&args->slopes, call->real_size, n, 0, 0, 0);
    args->sinks.data = mha__moved(&args->sinks, call->real_size, n, 0, 0, 0);
    args->gates.data = mha__moved(&args->gates, call->real_size, n, 0, 0, 0);
    if (!(desc->inputs & MHA_ATTN_PREFIX_LENS)) return;
    *prefix = mha__min64(call->args.prefix_lens[n], keys->start - call->args.cu_seqlens_k[n] + keys->length);
    args->prefix_lens = prefix;
}
