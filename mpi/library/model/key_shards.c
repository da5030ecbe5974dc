/* key_shards.c - caches one rank's keys of a distributed sequence, and attends to them. The cache of a layer has one
 * sequence per range of keys, since a sequence of a cache has consecutive positions. */
#include "library/model/key_shards.h"

#include <stdlib.h>

enum { PAGE = 128 };

void mha__shards_begin(mha__key_shards *shards, int64_t prompt)
{
    shards->layout = (mha__key_layout){shards->cluster->info.cp, prompt, prompt};
    for (int64_t layer = 0; layer < shards->layers; layer++) {
        mha_cache_free(shards->cache[layer]);
        shards->cache[layer] = NULL;
    }
}

void mha__shards_free(mha__key_shards *shards)
{
    for (int64_t layer = 0; shards->cache && layer < shards->layers; layer++)
        mha_cache_free(shards->cache[layer]);
    free(shards->cache);
    mha__exchange_free(&shards->exchange);
}

/* ---- the cache of a layer ---- */

/* Creates a cache with capacity for the ranges that this rank will have at the maximum length. */
static mha_status create_cache(const mha__key_shards *s, const mha_attn_desc *desc, mha_cache **cache, mha_error *err)
{
    const int me = s->cluster->info.cp_rank;
    const mha__key_layout full = {s->layout.cp, s->layout.prompt, s->room};
    mha_cache_desc d = {.size = sizeof d,
                        .batch = mha__layout_ranges(&full, me),
                        .kv_heads = desc->kv_heads ? desc->kv_heads : desc->heads,
                        .head_dim = desc->head_dim,
                        .v_head_dim = desc->v_head_dim,
                        .dtype = desc->dtype,
                        .page_size = PAGE};
    for (int64_t n = 0; n < d.batch; n++)
        d.capacity += (mha__layout_range(&full, me, n).length + PAGE - 1) / PAGE * PAGE;
    if (d.capacity == 0) d.capacity = PAGE; /* a capacity of 0 would mean growth on demand */
    return mha_cache_create(s->ctx, &d, cache, err);
}

/* Appends `count` keys and values to range n, starting at row `row` of the views. */
static mha_status append(mha_cache *cache, int64_t n, const mha_attn_args *args, size_t size, int64_t row,
                         int64_t count, mha_error *err)
{
    mha_cache_tokens fresh = {.size = sizeof fresh, .count = count, .k = args->k, .v = args->v};
    fresh.k.data = mha__moved(&args->k, size, 0, 0, row, 0);
    fresh.v.data = mha__moved(&args->v, size, 0, 0, row, 0);
    return count > 0 ? mha_cache_append(cache, n, &fresh, err) : MHA_OK;
}

mha_status mha__shards_prefill(void *user, int64_t layer, const mha_attn_desc *desc, const mha_attn_args *args,
                               mha_error *err)
{
    mha__key_shards *s = user;
    const mha_cluster_part part = mha_cluster_part_of(s->layout.prompt, s->layout.cp, s->cluster->info.cp_rank);
    const size_t size = mha_dtype_size(desc->dtype ? desc->dtype : MHA_F32);
    MHA__TRY(create_cache(s, desc, &s->cache[layer], err));
    for (int n = 0; n < 2; n++)
        MHA__TRY(append(s->cache[layer], n, args, size, mha__chunk(&part, n).local, part.length[n], err));
    return mha_cluster_attention(s->cluster, s->ctx, s->mode, desc, args, err);
}

/* ---- one token ---- */

mha_status mha__shards_grow(mha__key_shards *shards, mha_error *err)
{
    if (shards->layout.length >= shards->room)
        return mha__cluster_fail(shards->cluster, err, MHA_ERR_ARG, "sequence must have at most %lld tokens",
                                 (long long)shards->room);
    shards->layout.length++;
    return MHA_OK;
}

/* Returns this rank's range that contains `key`; -1 if another rank caches the key. */
static int64_t find_range(const mha__key_shards *s, int64_t key)
{
    const int me = s->cluster->info.cp_rank;
    for (int64_t n = 0; n < mha__layout_ranges(&s->layout, me); n++) {
        const mha__range range = mha__layout_range(&s->layout, me, n);
        if (key >= range.start && key < range.start + range.length) return n;
    }
    return -1;
}

/* Computes the partial result of the token over the keys of one part, which lies within one range. */
static mha_status attend_part(const mha__key_shards *s, mha_cache *cache, const mha_attn_desc *desc,
                              const mha_attn_args *args, const mha_attn_partial *part, mha_error *err)
{
    const int64_t n = find_range(s, part->key), zero = 0;
    const mha__range range = mha__layout_range(&s->layout, s->cluster->info.cp_rank, n);
    mha_attn_desc d = *desc;
    mha_attn_args a = *args;
    d.q_len = 1;
    d.kv_len = 0;
    MHA__TRY(mha_cache_bind(cache, n, NULL, &d, &a, err));
    d.kv_len = part->kv_len;
    d.shard = (mha_shard){.row = s->layout.length - 1, .key = part->key};
    d.inputs &= ~(uint32_t)(MHA_ATTN_SINKS | MHA_ATTN_GATES);
    d.outputs = MHA_ATTN_PARTIAL;
    a.sinks.data = a.gates.data = NULL;
    a.offsets = &zero;
    a.kv_lens = &part->kv_len;
    a.block_table.data = (const int32_t *)a.block_table.data + (part->key - range.start) / PAGE;
    a.partial.data = (void *)part->rows.data;
    return mha_attention(s->ctx, &d, &a, err);
}

static mha_attn_merge_partials_args merge_args(const mha_attn_desc *desc)
{
    return (mha_attn_merge_partials_args){.size = sizeof(mha_attn_merge_partials_args),
                                          .batch = 1,
                                          .heads = desc->heads,
                                          .q_len = 1,
                                          .v_head_dim = desc->v_head_dim ? desc->v_head_dim : desc->head_dim,
                                          .dtype = desc->dtype};
}

mha_status mha__shards_decode(void *user, int64_t layer, const mha_attn_desc *desc, const mha_attn_args *args,
                              mha_error *err)
{
    mha__key_shards *s = user;
    mha_cache *cache = s->cache[layer];
    mha_attn_merge_partials_args a = merge_args(desc);
    const int64_t n = find_range(s, s->layout.length - 1);
    const size_t bytes = (size_t)(desc->heads * (2 + a.v_head_dim)) * sizeof(float);
    if (n >= 0) MHA__TRY(append(cache, n, args, mha_dtype_size(desc->dtype ? desc->dtype : MHA_F32), 0, 1, err));
    MHA__TRY(mha__exchange_begin(&s->exchange, s->cluster, &s->layout, bytes, err));
    for (int64_t p = 0; p < s->exchange.own.count; p++)
        MHA__TRY(attend_part(s, cache, desc, args, &s->exchange.own.parts[p], err));
    MHA__TRY(mha__exchange_merge(&s->exchange, s->cluster, s->ctx, &s->layout, &a, err));
    a.count = s->exchange.own.count;
    a.parts = s->exchange.own.parts;
    a.out = args->out;
    if (desc->inputs & MHA_ATTN_SINKS) a.sinks = args->sinks;
    if (desc->inputs & MHA_ATTN_GATES) a.gates = args->gates;
    return mha_attn_merge_partials(s->ctx, &a, err);
}
