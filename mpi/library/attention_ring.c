/* attention_ring.c - mha_cluster_attention in the modes ring and tree: keys and values move from rank to rank, and the
 * rows of each rank attend to the keys that it currently stores.
 *
 * Partial results (maximum, sum, unnormalized output) stay in f32 or f64 until the end, regardless of the type of out:
 * rounding them at every step would lose accuracy with every rank. */
#include "attention_ring.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The results of one chunk of rows: in tree mode one part per subtree of keys; in ring mode an accumulated part and a
 * new part. */
typedef struct results {
    mha__range rows;
    mha_attn_partial *parts;
    int64_t count;
    size_t bytes; /* size of a part */
    char *memory;
} results;

typedef struct ring {
    const mha__shared_call *s;
    bool tree;
    char *held, *coming; /* keys and values of a rank, contiguous */
    results results[2];
} ring;

/* ---- parts ---- */

/* Lists the subtrees of all ranks' chunks of keys, in ascending order, in `parts` unless it is NULL; returns their
 * number. */
static int64_t list_subtrees(const mha__shared_call *s, mha_attn_partial *parts)
{
    int64_t count = 0, key = 0;
    const int64_t chunk = mha_cluster_part_of(s->desc.kv_len, s->cp, 0).length[0];
    while (key < s->desc.kv_len) {
        const int64_t left = s->desc.kv_len - key, to_end = chunk - key % chunk;
        const int64_t keys = mha_attn_subtree(key, key + (left < to_end ? left : to_end));
        if (parts) parts[count] = (mha_attn_partial){.key = key, .kv_len = keys};
        count++;
        key += keys;
    }
    return count;
}

/* Sets every row to the result of attending to no keys. */
static void clear_part(const mha__shared_call *s, const results *r, char *part)
{
    const size_t row = (size_t)(2 + s->desc.v_head_dim) * s->real_size;
    const float low = -INFINITY;
    const double low64 = -(double)INFINITY;
    memset(part, 0, r->bytes);
    for (size_t at = 0; at < r->bytes; at += row)
        memcpy(part + at, s->real_size == sizeof low ? (const void *)&low : (const void *)&low64, s->real_size);
}

static mha_status make_results(ring *g, int n, mha_error *err)
{
    const mha__shared_call *s = g->s;
    const mha_attn_desc *d = &s->desc;
    results *r = &g->results[n];
    r->rows = mha__chunk(&s->rows, n);
    r->count = g->tree ? list_subtrees(s, NULL) : 2;
    r->bytes = (size_t)(d->batch * d->heads * r->rows.length * (2 + d->v_head_dim)) * s->real_size;
    if (r->bytes == 0) return MHA_OK;
    r->parts = calloc((size_t)r->count, sizeof *r->parts);
    r->memory = r->bytes <= SIZE_MAX / (size_t)r->count ? malloc(r->bytes * (size_t)r->count) : NULL;
    if (!r->parts || !r->memory)
        return mha__cluster_no_memory(s->cluster, err, r->bytes * (size_t)r->count, "partial results");
    /* Merging requires adjacent subtrees, so in ring mode the two parts are labeled as the first chunks of the tree. */
    if (g->tree)
        list_subtrees(s, r->parts);
    else
        for (int64_t p = 0; p < r->count; p++)
            r->parts[p] = (mha_attn_partial){.key = p * MHA_ATTN_CHUNK, .kv_len = MHA_ATTN_CHUNK};
    for (int64_t p = 0; p < r->count; p++) {
        r->parts[p].rows.data = r->memory + (size_t)p * r->bytes;
        clear_part(s, r, r->memory + (size_t)p * r->bytes);
    }
    return MHA_OK;
}

/* Returns the part that receives the partial result of the keys that start at `key`. */
static mha_attn_partial *part_of(const ring *g, const results *r, int64_t key)
{
    if (!g->tree) return &r->parts[1];
    for (int64_t p = 0; p < r->count; p++)
        if (r->parts[p].key == key) return &r->parts[p];
    return NULL; /* cannot happen: `key` is the start of a listed subtree */
}

static mha_attn_merge_partials_args merge_args(const ring *g, const results *r, int64_t count)
{
    const mha_attn_desc *d = &g->s->desc;
    return (mha_attn_merge_partials_args){.size = sizeof(mha_attn_merge_partials_args),
                                          .batch = d->batch,
                                          .heads = d->heads,
                                          .q_len = r->rows.length,
                                          .v_head_dim = d->v_head_dim,
                                          .dtype = d->dtype,
                                          .count = count,
                                          .parts = r->parts};
}

/* Merges the new part into the accumulated part, in ring mode. */
static mha_status merge_new(const ring *g, const results *r, mha_error *err)
{
    mha_attn_merge_partials_args a = merge_args(g, r, 2);
    a.partial.data = (void *)r->parts[0].rows.data;
    return mha_attn_merge_partials(g->s->ctx, &a, err);
}

static mha_status write_results(const ring *g, const results *r, mha_error *err)
{
    const mha__shared_call *s = g->s;
    mha_attn_desc d;
    mha_attn_args args;
    mha_attn_merge_partials_args a = merge_args(g, r, g->tree ? r->count : 1);
    if (r->bytes == 0) return MHA_OK;
    mha__shard_call(s, &r->rows, &(mha__range){0, s->desc.kv_len, 0}, &d, &args);
    a.out = args.out;
    if (d.outputs & MHA_ATTN_LSE) a.lse = args.lse;
    if (d.inputs & MHA_ATTN_SINKS) a.sinks = args.sinks;
    if (d.inputs & MHA_ATTN_GATES) a.gates = args.gates;
    return mha_attn_merge_partials(s->ctx, &a, err);
}

/* ---- keys and values ---- */

static size_t values_offset(const mha__shared_call *s, int64_t keys)
{
    return (size_t)(s->desc.batch * s->desc.kv_heads * keys * s->desc.head_dim) * s->kv_size;
}

static size_t part_bytes(const mha__shared_call *s, int cp_rank)
{
    const mha_attn_desc *d = &s->desc;
    const mha_cluster_part part = mha__keys_of(s, cp_rank);
    return (size_t)(d->batch * d->kv_heads * mha__part_length(&part) * (d->head_dim + d->v_head_dim)) * s->kv_size;
}

static void pack_own(const ring *g)
{
    const mha__shared_call *s = g->s;
    const mha_attn_desc *d = &s->desc;
    const int64_t n = mha__part_length(&s->keys), k[4] = {d->batch, d->kv_heads, n, d->head_dim},
                  v[4] = {d->batch, d->kv_heads, n, d->v_head_dim};
    if (n == 0) return;
    mha__pack(g->held, &s->args.k, s->kv_size, k, 0, 0);
    mha__pack(g->held + values_offset(s, n), &s->args.v, s->kv_size, v, 0, 0);
}

static mha_status make_buffers(ring *g, mha_error *err)
{
    size_t bytes = 1;
    for (int rank = 0; rank < g->s->cp; rank++)
        bytes = part_bytes(g->s, rank) > bytes ? part_bytes(g->s, rank) : bytes;
    g->held = malloc(bytes);
    g->coming = malloc(bytes);
    if (!g->held || !g->coming) return mha__cluster_no_memory(g->s->cluster, err, bytes, "keys in transfer");
    pack_own(g);
    return MHA_OK;
}

/* ---- one step ---- */

/* Computes one chunk of rows against one subtree of the keys of rank `from`, which this rank currently stores. */
static mha_status attend(const ring *g, const results *r, int from, const mha__range *keys, mha_error *err)
{
    const mha__shared_call *s = g->s;
    const mha_cluster_part part = mha__keys_of(s, from);
    const int64_t n = mha__part_length(&part), D = s->desc.head_dim, Dv = s->desc.v_head_dim;
    mha_attn_desc d;
    mha_attn_args a;
    mha__shard_call(s, &r->rows, keys, &d, &a);
    d.inputs &= ~(uint32_t)(MHA_ATTN_SINKS | MHA_ATTN_GATES);
    d.outputs = MHA_ATTN_PARTIAL;
    a.sinks.data = a.gates.data = NULL;
    a.lse.data = NULL;
    a.k = (mha_cview){g->held + (size_t)(keys->local * D) * s->kv_size, {d.kv_heads * n * D, n * D, D, 1}};
    a.v = (mha_cview){g->held + values_offset(s, n) + (size_t)(keys->local * Dv) * s->kv_size,
                      {d.kv_heads * n * Dv, n * Dv, Dv, 1}};
    a.partial.data = (void *)part_of(g, r, keys->start)->rows.data;
    MHA__TRY(mha_attention(s->ctx, &d, &a, err));
    return g->tree ? MHA_OK : merge_new(g, r, err);
}

/* Computes all rows of this rank against the keys of rank `from`. */
static mha_status attend_all(const ring *g, int from, mha_error *err)
{
    const mha_cluster_part part = mha__keys_of(g->s, from);
    for (int i = 0; i < 2; i++)
        for (int n = 0; n < 2; n++) {
            const mha__range chunk = mha__chunk(&part, n);
            const int64_t end = chunk.start + chunk.length;
            for (int64_t key = chunk.start, keys; (keys = mha_attn_subtree(key, end)) > 0; key += keys) {
                const mha__range some = {key, keys, chunk.local + key - chunk.start};
                if (mha__ranges_meet(g->s, &g->results[i].rows, &some))
                    MHA__TRY(attend(g, &g->results[i], from, &some, err));
            }
        }
    return MHA_OK;
}

/* Computes with the keys of the rank n places before this one, while receiving the keys for step n + 1. */
static mha_status take_step(ring *g, int n, mha_error *err)
{
    const mha__shared_call *s = g->s;
    const int from = (s->me - n + s->cp) % s->cp, before = (from - 1 + s->cp) % s->cp;
    if (n + 1 < s->cp) {
        MHA__TRY(mha__cluster_receive(s->cluster, g->coming, part_bytes(s, before),
                                      mha__peer(s, (s->me - 1 + s->cp) % s->cp), err));
        MHA__TRY(mha__cluster_send(s->cluster, g->held, part_bytes(s, from), mha__peer(s, (s->me + 1) % s->cp), err));
    }
    MHA__TRY(attend_all(g, from, err));
    MHA__TRY(mha__cluster_wait(s->cluster, "passing keys around the ring", err));
    char *held = g->held;
    g->held = g->coming;
    g->coming = held;
    return MHA_OK;
}

/* ---- public function ---- */

static mha_status run(ring *g, mha_error *err)
{
    MHA__TRY(make_buffers(g, err));
    for (int n = 0; n < 2; n++)
        MHA__TRY(make_results(g, n, err));
    for (int n = 0; n < g->s->cp; n++)
        MHA__TRY(take_step(g, n, err));
    for (int n = 0; n < 2; n++)
        MHA__TRY(write_results(g, &g->results[n], err));
    return MHA_OK;
}

mha_status mha__attention_ring(const mha__shared_call *call, bool tree, mha_error *err)
{
    ring g = {.s = call, .tree = tree};
    const mha_status status = run(&g, err);
    for (int n = 0; n < 2; n++) {
        free(g.results[n].parts);
        free(g.results[n].memory);
    }
    if (call->cluster->pending > 0) return status; /* pending transfers still use the buffers */
    free(g.held);
    free(g.coming);
    return status;
}
