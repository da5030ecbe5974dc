/* head_measures.c - creates and frees the result of a measurement, and returns its values. */
#include "heads/measure/head_measures.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include <math.h>

mha_status mha__heads_create(mha_ctx *ctx, int64_t layers, const int64_t *counts, int64_t longest, mha_heads **out,
                             mha_error *err)
{
    mha_heads *heads = mha__calloc(ctx, 1, sizeof *heads);
    *out = heads;
    if (!heads) return mha__no_memory(err, sizeof *heads, "head statistics");
    heads->ctx = ctx;
    heads->layers = layers;
    heads->longest = longest;
    heads->first = mha__calloc(ctx, (size_t)layers + 1, sizeof *heads->first);
    if (!heads->first) return mha__no_memory(err, ((size_t)layers + 1) * sizeof *heads->first, "head statistics");
    for (int64_t l = 0; l < layers; l++)
        heads->first[l + 1] = heads->first[l] + counts[l];
    size_t total = (size_t)heads->first[layers];
    heads->stats = mha__calloc(ctx, total, sizeof *heads->stats);
    if (!heads->stats) return mha__no_memory(err, total * sizeof *heads->stats, "head statistics");
    size_t positions = 0;
    const bool fits = mha__mul(total, (size_t)longest, &positions);
    heads->received = fits ? mha__calloc(ctx, positions, sizeof *heads->received) : NULL;
    return heads->received
               ? MHA_OK
               : mha__no_memory(err, positions * sizeof *heads->received, "the attention that keys receive");
}

void mha_heads_free(mha_heads *heads)
{
    if (!heads) return;
    for (int64_t l = 0; heads->maps && l < heads->layers; l++)
        mha__free(heads->ctx, heads->maps[l]);
    mha__free(heads->ctx, heads->maps);
    mha_encoding_free(heads->tokens);
    mha__free(heads->ctx, heads->received);
    mha__free(heads->ctx, heads->stats);
    mha__free(heads->ctx, heads->first);
    mha__free(heads->ctx, heads);
}

static const mha__head_stats *stats_of(const mha_heads *heads, int64_t layer, int64_t head)
{
    if (head < 0 || head >= mha_heads_count(heads, layer)) return NULL;
    return &heads->stats[heads->first[layer] + head];
}

int64_t mha_heads_layers(const mha_heads *heads)
{
    return heads ? heads->layers : 0;
}

int64_t mha_heads_count(const mha_heads *heads, int64_t layer)
{
    return heads && layer >= 0 && layer < heads->layers ? heads->first[layer + 1] - heads->first[layer] : 0;
}

double mha_heads_value(const mha_heads *heads, int64_t layer, int64_t head, mha_head_metric metric)
{
    const mha__head_stats *s = stats_of(heads, layer, head);
    return s && (unsigned)metric < MHA_HEAD_METRICS ? mha__head_stats_value(s, metric) : NAN;
}

mha_head_label mha_heads_label(const mha_heads *heads, int64_t layer, int64_t head)
{
    const mha__head_stats *s = stats_of(heads, layer, head);
    return s ? mha__head_stats_label(s, &heads->limits) : MHA_LABEL_MIXED;
}

void mha__heads_seen_rows(int64_t tokens, int64_t queries, bool causal, double *rows)
{
    for (int64_t j = 0; j < tokens; j++)
        rows[j] += (double)(causal ? queries - j : queries);
}

void mha__heads_average(mha_heads *heads, const double *rows)
{
    for (int64_t h = 0; h < heads->first[heads->layers]; h++)
        for (int64_t j = 0; j < heads->longest; j++)
            heads->received[h * heads->longest + j] /= rows[j];
}

double mha_heads_sink_rate(const mha_heads *heads)
{
    const int64_t all = heads ? heads->first[heads->layers] : 0;
    int64_t sinks = 0;
    for (int64_t h = 0; h < all; h++)
        sinks += mha__head_stats_value(&heads->stats[h], MHA_HEAD_SINK) > heads->limits.sink;
    return (double)sinks / (double)all;
}

const double *mha_heads_received(const mha_heads *heads, int64_t layer, int64_t head, int64_t *positions)
{
    const bool there = stats_of(heads, layer, head) != NULL;
    if (positions) *positions = there ? heads->longest : 0;
    return there ? heads->received + (heads->first[layer] + head) * heads->longest : NULL;
}

const mha_encoding *mha_heads_tokens(const mha_heads *heads)
{
    return heads ? heads->tokens : NULL;
}

const float *mha_heads_map(const mha_heads *heads, int64_t layer, int64_t head)
{
    if (!heads || !heads->maps || !stats_of(heads, layer, head)) return NULL;
    return heads->maps[layer] + head * heads->longest * heads->longest;
}
