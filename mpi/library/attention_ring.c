/* attention_ring.c - implements mha_cluster_attention in the modes ring and tree: keys and values move from rank to
 * rank, and the rows of each rank attend to the keys that the rank currently stores.
 *
 * Partial results (maximum, sum, unnormalized output) stay in f32 or f64 until the end, regardless of the type of out:
 * rounding them at every step would lose accuracy with every rank. */
#include "library/attention_ring.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The results of one chunk of rows. Ring mode has an accumulated part and a new part; tree mode has one part per
 * subtree of keys. The parts of two adjacent subtrees are merged as soon as both are complete, so that few parts are in
 * memory. The rows of a part are NULL until the part is computed, and `empty` if no row attends to its keys. */
typedef struct results {
    mha__range rows;
    mha_attn_partial *parts;
    int64_t count;
    size_t bytes; /* size of a part */
    char *empty;
    char *spare; /* linked list of unused parts; each part begins with the address of the next part */
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
        const int64_t keys = mha_attn_subtree(key, key + mha__min64(left, to_end));
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

/* Returns cleared memory for one part; NULL if out of memory. */
static char *take_part(const mha__shared_call *s, results *r)
{
    char *part = r->spare ? r->spare : malloc(r->bytes);
    if (r->spare) memcpy(&r->spare, part, sizeof r->spare);
    if (part) clear_part(s, r, part);
    return part;
}

static void give_part(results *r, char *part)
{
    memcpy(part, &r->spare, sizeof r->spare);
    r->spare = part;
}

static void free_results(results *r)
{
    for (int64_t p = 0; r->parts && p < r->count; p++)
        if (r->parts[p].rows.data != r->empty) free((void *)r->parts[p].rows.data);
    for (char *part = r->spare; part; part = r->spare) {
        memcpy(&r->spare, part, sizeof r->spare);
        free(part);
    }
    free(r->empty);
    free(r->parts);
}

/* Ring mode: allocates two parts. Merging requires adjacent subtrees, so the parts are labeled as the first two chunks
 * of the tree. */
static mha_status make_two(ring *g, results *r, mha_error *err)
{
    for (int64_t p = 0; p < r->count; p++) {
        r->parts[p] = (mha_attn_partial){.key = p * MHA_ATTN_CHUNK, .kv_len = MHA_ATTN_CHUNK};
        r->parts[p].rows.data = take_part(g->s, r);
        if (!r->parts[p].rows.data) return mha__cluster_no_memory(g->s->cluster, err, r->bytes, "partial results");
    }
    return MHA_OK;
}

static bool is_read(const mha__shared_call *s, const results *r, int64_t p)
{
    const mha__range keys = {r->parts[p].key, r->parts[p].kv_len, 0};
    return mha__any_row_attends(s, &r->rows, &keys);
}

/* Tree mode: marks the parts whose keys no row attends to, and removes such parts from the end of the list. */
static mha_status mark_empty(const mha__shared_call *s, results *r, mha_error *err)
{
    while (r->count > 1 && !is_read(s, r, r->count - 1))
        r->count--;
    for (int64_t p = 0; p < r->count; p++) {
        if (is_read(s, r, p)) continue;
        if (!r->empty) r->empty = take_part(s, r);
        if (!r->empty) return mha__cluster_no_memory(s->cluster, err, r->bytes, "partial results");
        r->parts[p].rows.data = r->empty;
    }
    return MHA_OK;
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
    if (!r->parts)
        return mha__cluster_no_memory(s->cluster, err, (size_t)r->count * sizeof *r->parts, "partial results");
    if (!g->tree) return make_two(g, r, err);
    list_subtrees(s, r->parts);
    return mark_empty(s, r, err);
}

/* Returns the part that receives the partial result of the keys from `key` on, with memory for its rows. */
static mha_attn_partial *part_of(const ring *g, results *r, int64_t key)
{
    int64_t p = g->tree ? 0 : 1;
    while (g->tree && r->parts[p].key != key)
        p++; /* terminates, because `key` is the start of a listed subtree */
    if (!r->parts[p].rows.data) r->parts[p].rows.data = take_part(g->s, r);
    return r->parts[p].rows.data ? &r->parts[p] : NULL;
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

/* Returns true if parts p and p + 1 are complete and are the two halves of a subtree. */
static bool are_halves(const results *r, int64_t p)
{
    const mha_attn_partial *left = &r->parts[p], *right = left + 1;
    return left->rows.data && right->rows.data && left->kv_len == right->kv_len && left->kv_len >= MHA_ATTN_CHUNK &&
           left->key % (2 * left->kv_len) == 0;
}

/* Merges parts p and p + 1 into one. Merging with an empty part changes nothing. */
static mha_status merge_halves(const ring *g, results *r, int64_t p, mha_error *err)
{
    mha_attn_partial *left = &r->parts[p], *right = left + 1;
    mha_attn_merge_partials_args a = merge_args(g, r, 2);
    a.parts = left;
    a.partial.data = (void *)left->rows.data;
    if (left->rows.data != r->empty && right->rows.data != r->empty) {
        MHA__TRY(mha_attn_merge_partials(g->s->ctx, &a, err));
        give_part(r, (char *)right->rows.data);
    }
    if (left->rows.data == r->empty) left->rows.data = right->rows.data;
    left->kv_len *= 2;
    r->count--;
    memmove(right, right + 1, (size_t)(r->count - p - 1) * sizeof *right);
    return MHA_OK;
}

/* Tree mode: merges complete halves of subtrees until none are left. */
static mha_status merge_complete(const ring *g, results *r, mha_error *err)
{
    for (int64_t p = 0; p + 1 < r->count;) {
        if (!are_halves(r, p)) {
            p++;
            continue;
        }
        MHA__TRY(merge_halves(g, r, p, err));
        if (p > 0) p--; /* the merged part may be a right half */
    }
    return MHA_OK;
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

/* Computes the attention of one chunk of rows to one subtree of the keys of rank `from`, which this rank currently
 * stores. */
static mha_status attend(const ring *g, results *r, int from, const mha__range *keys, mha_error *err)
{
    const mha__shared_call *s = g->s;
    const mha_cluster_part part = mha__keys_of(s, from);
    const int64_t n = mha__part_length(&part), D = s->desc.head_dim, Dv = s->desc.v_head_dim;
    mha_attn_desc d;
    mha_attn_args a;
    const mha_attn_partial *result = part_of(g, r, keys->start);
    if (!result) return mha__cluster_no_memory(s->cluster, err, r->bytes, "partial results");
    mha__shard_call(s, &r->rows, keys, &d, &a);
    d.inputs &= ~(uint32_t)(MHA_ATTN_SINKS | MHA_ATTN_GATES);
    d.outputs = MHA_ATTN_PARTIAL;
    a.sinks.data = a.gates.data = NULL;
    a.lse.data = NULL;
    a.k = (mha_cview){g->held + (size_t)(keys->local * D) * s->kv_size, {d.kv_heads * n * D, n * D, D, 1}};
    a.v = (mha_cview){g->held + values_offset(s, n) + (size_t)(keys->local * Dv) * s->kv_size,
                      {d.kv_heads * n * Dv, n * Dv, Dv, 1}};
    a.partial.data = (void *)result->rows.data;
    MHA__TRY(mha_attention(s->ctx, &d, &a, err));
    return g->tree ? merge_complete(g, r, err) : merge_new(g, r, err);
}

/* Computes the attention of all rows of this rank to the keys of rank `from`. */
static mha_status attend_all(ring *g, int from, mha_error *err)
{
    const mha_cluster_part part = mha__keys_of(g->s, from);
    for (int i = 0; i < 2; i++)
        for (int n = 0; n < 2; n++) {
            const mha__range chunk = mha__chunk(&part, n);
            const int64_t end = chunk.start + chunk.length;
            for (int64_t key = chunk.start, keys; (keys = mha_attn_subtree(key, end)) > 0; key += keys) {
                const mha__range some = {key, keys, chunk.local + key - chunk.start};
                if (mha__any_row_attends(g->s, &g->results[i].rows, &some))
                    MHA__TRY(attend(g, &g->results[i], from, &some, err));
            }
        }
    return MHA_OK;
}

/* Attends to the keys of the rank n positions before this rank, while receiving the keys for step n + 1. */
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
    for (int n = 0; n < 2; n++)
        free_results(&g.results[n]);
    if (call->cluster->pending > 0) return status; /* pending transfers still use the buffers */
    free(g.held);
    free(g.coming);
    return status;
}
