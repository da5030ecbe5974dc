/* shard_layout.c - the rows and keys of a sequence that each rank stores. */
#include "library/cluster_struct.h"
#include <stdlib.h>

/* Every rank stores whole chunks of the operator's merge tree, so merged shards are bitwise identical to one call. */
mha_cluster_part mha_cluster_part_of(int64_t length, int cp, int cp_rank)
{
    mha_cluster_part part = {{0}, {0}};
    if (length < 0 || cp < 1 || cp_rank < 0 || cp_rank >= cp) return part;
    const int64_t each = 2 * (int64_t)cp * MHA_ATTN_CHUNK;
    const int64_t size = (length / each + (length % each != 0)) * MHA_ATTN_CHUNK;
    const int64_t number[2] = {cp_rank, 2 * (int64_t)cp - 1 - cp_rank};
    for (int n = 0; n < 2; n++) {
        part.start[n] = mha__min64(number[n] * size, length);
        part.length[n] = mha__min64(size, length - part.start[n]);
    }
    return part;
}

/* ---- packed sequences ---- */

typedef struct chunk {
    int64_t start, length, cost;
} chunk;

/* Returns the number of keys that row i of a sequence of `length` positions may attend to. */
static int64_t attended(const mha_attn_desc *d, int64_t i, int64_t length)
{
    const int64_t last = length - 1;
    const int64_t right = d->causal                                                            ? i
                          : d->window.on && d->window.right >= 0 && d->window.right < last - i ? i + d->window.right
                                                                                               : last;
    const int64_t left = d->window.on && d->window.left >= 0 && d->window.left < i ? i - d->window.left : 0;
    return right - left + 1;
}

/* Adds the cost of each position to the chunk that contains it. */
static void add_costs(const mha_attn_desc *d, const int64_t *cu_seqlens, chunk *chunks)
{
    int64_t n = 0;
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t at = cu_seqlens[b]; at < cu_seqlens[b + 1]; at++) {
            while (at >= chunks[n].start + chunks[n].length)
                n++;
            chunks[n].cost += attended(d, at - cu_seqlens[b], cu_seqlens[b + 1] - cu_seqlens[b]);
        }
}

static int by_cost(const void *a, const void *b)
{
    const chunk *x = a, *y = b;
    return x->cost != y->cost ? (x->cost > y->cost) - (x->cost < y->cost)
                              : (x->start > y->start) - (x->start < y->start);
}

/* Pairs the cheapest chunk with the most expensive, and so on. The two chunks of a part are in ascending order. */
static void pair_chunks(chunk *chunks, int cp, mha_cluster_part *parts)
{
    qsort(chunks, 2 * (size_t)cp, sizeof *chunks, by_cost);
    for (int rank = 0; rank < cp; rank++) {
        const chunk *a = &chunks[rank], *b = &chunks[2 * cp - 1 - rank];
        const chunk *first = a->start <= b->start ? a : b, *second = first == a ? b : a;
        parts[rank] = (mha_cluster_part){{first->start, second->start}, {first->length, second->length}};
    }
}

mha_status mha_cluster_packed_parts(const mha_attn_desc *desc, const int64_t *cu_seqlens, int cp,
                                    mha_cluster_part *parts, mha_error *err)
{
    mha_attn_desc d;
    if (!desc || !cu_seqlens || !parts)
        return mha__cluster_fail(NULL, err, MHA_ERR_ARG, "%s must not be NULL",
                                 !desc         ? "desc"
                                 : !cu_seqlens ? "cu_seqlens"
                                               : "parts");
    if (cp < 1) return mha__cluster_fail(NULL, err, MHA_ERR_ARG, "cp must be at least 1 (got %d)", cp);
    MHA__TRY(mha__cluster_read(NULL, &d, sizeof d, desc, "mha_attn_desc", err));
    if (d.batch < 0)
        return mha__cluster_fail(NULL, err, MHA_ERR_ARG, "batch must be at least 0 (got %lld)", (long long)d.batch);
    for (int64_t b = 0; b < d.batch; b++)
        if (cu_seqlens[b + 1] < cu_seqlens[b] || cu_seqlens[0] != 0)
            return mha__cluster_fail(NULL, err, MHA_ERR_ARG, "cu_seqlens must ascend from 0 (got %lld to %lld)",
                                     (long long)cu_seqlens[b], (long long)cu_seqlens[b + 1]);
    const size_t bytes = 2 * (size_t)cp * sizeof(chunk);
    chunk *chunks = malloc(bytes);
    if (!chunks) return mha__cluster_no_memory(NULL, err, bytes, "the chunks of all ranks");
    for (int n = 0; n < 2 * cp; n++) {
        const mha_cluster_part zigzag = mha_cluster_part_of(cu_seqlens[d.batch], cp, n < cp ? n : 2 * cp - 1 - n);
        chunks[n] = (chunk){zigzag.start[n >= cp], zigzag.length[n >= cp], 0};
    }
    add_costs(&d, cu_seqlens, chunks);
    pair_chunks(chunks, cp, parts);
    free(chunks);
    return MHA_OK;
}
