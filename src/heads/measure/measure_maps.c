/* measure_maps.c - measures heads from attention maps that the caller provides. Their rows are added to the same sums
 * as rows that the operator computes. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "heads/measure/head_measures.h"
#include <math.h>
#include <string.h>

/* The maps, the result, and buffers large enough for the longest text. */
typedef struct given {
    const mha_head_maps *maps;
    mha_heads *heads;
    int64_t *content;
    int32_t *listed;
    uint8_t *plain;       /* [longest] zeros, used as token kinds if the caller provides none */
    double *bits, *lines; /* bits: [longest + 1] log2 of each index; lines of one head */
    double *rows;         /* [longest] number of rows that attend to each position */
} given;

static void lay_out(mha__arena *arena, int64_t longest, given *g)
{
    const size_t n = (size_t)longest;
    g->content = mha__take(arena, n + 1, sizeof *g->content);
    g->listed = mha__take(arena, n, 3 * sizeof *g->listed);
    g->plain = mha__take(arena, n, sizeof *g->plain);
    g->bits = mha__take(arena, n + 1, sizeof *g->bits);
    g->lines = mha__take(arena, mha__head_lines_doubles(longest), sizeof *g->lines);
    g->rows = mha__take(arena, n, sizeof *g->rows);
}

/* ---- rows ---- */

typedef struct row_numbers {
    double entropy, largest, distance;
    int64_t key;
} row_numbers;

/* Checks row i of n elements, of which only the first `seen` may be above 0, and computes its statistics. Returns the
 * first key whose weight is invalid; n if all weights are valid. A weight may exceed 1 slightly due to rounding. */
static int64_t fill_row(const float *p, int64_t n, int64_t seen, int64_t i, row_numbers *r)
{
    *r = (row_numbers){.key = -1};
    for (int64_t j = 0; j < n; j++) {
        const double x = (double)p[j];
        if (!(x >= 0 && x <= (j < seen ? 1 + 1e-6 : 0))) return j;
        if (x > 0) r->entropy -= x * log2(x);
        r->distance += x * (double)(i > j ? i - j : j - i);
        if (x > r->largest) r->largest = x, r->key = j;
    }
    return n;
}

static mha_status refuse(const given *g, int64_t text, int64_t head, int64_t i, int64_t j, float value, mha_error *err)
{
    return mha__fail(err, MHA_ERR_ARG,
                     "mha_head_maps: the weight of text %lld, layer %lld, head %lld, query %lld, key %lld must be from "
                     "0 to 1%s (got %g)",
                     (long long)text, (long long)(head / g->maps->heads), (long long)(head % g->maps->heads),
                     (long long)i, (long long)j, g->maps->causal ? ", and 0 for later keys" : "", (double)value);
}

/* Adds the rows of one map to the sums. */
static mha_status add_head(const given *g, int64_t text, const mha__head_text *t, int64_t head, mha_error *err)
{
    const mha__head_lines lines = mha__head_lines_at(g->lines, t->n);
    const float *map = g->maps->text[text].p + head * t->rows * t->n;
    for (int64_t i = 0; i < t->rows; i++) {
        const float *p = map + i * t->n;
        row_numbers r;
        const int64_t wrong = fill_row(p, t->n, t->causal ? i + 1 : t->n, i, &r);
        if (wrong < t->n) return refuse(g, text, head, i, wrong, p[wrong], err);
        const mha_attn_rows row = {.first = i,
                                   .count = 1,
                                   .keys = t->n,
                                   .stride = t->n,
                                   .p = p,
                                   .entropy = &r.entropy,
                                   .largest = &r.largest,
                                   .distance = &r.distance,
                                   .largest_key = &r.key};
        mha__head_stats_add(&g->heads->stats[head], &lines, t, &row, g->heads->received + head * g->heads->longest);
    }
    return MHA_OK;
}

static mha_status add_text(const given *g, int64_t text, mha_error *err)
{
    const mha_head_map *map = &g->maps->text[text];
    mha__head_text t = {.n = map->tokens,
                        .queries = g->maps->queries ? &g->maps->queries[text] : NULL,
                        .causal = g->maps->causal != 0,
                        .kind = map->kinds ? map->kinds : g->plain,
                        .segments = map->segments,
                        .bits = g->bits,
                        .content = g->content,
                        .listed = g->listed};
    mha__head_text_fill(&t);
    mha__heads_seen_rows(t.n, t.rows, t.causal, g->rows);
    for (int64_t head = 0; head < g->maps->layers * g->maps->heads; head++)
        MHA__TRY(add_head(g, text, &t, head, err));
    return MHA_OK;
}

static mha_status add_all(given *g, mha_error *err)
{
    mha__arena arena = {0};
    const int64_t longest = g->heads->longest;
    lay_out(&arena, longest, g);
    arena.base = arena.overflow ? NULL : mha__calloc(g->heads->ctx, 1, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the buffers of a text");
    void *memory = arena.base;
    arena.used = 0;
    lay_out(&arena, longest, g);
    for (int64_t n = 1; n <= longest; n++)
        g->bits[n] = log2((double)n);
    mha_status status = MHA_OK;
    for (int64_t text = 0; text < g->maps->count && status == MHA_OK; text++)
        status = add_text(g, text, err);
    if (status == MHA_OK) mha__heads_average(g->heads, g->rows);
    mha__free(g->heads->ctx, memory);
    return status;
}

/* ---- public function ---- */

/* Checks the queries of cross-attention. */
static mha_status check_queries(const mha_head_maps *maps, mha_error *err)
{
    if (maps->queries && maps->causal)
        return mha__fail(err, MHA_ERR_ARG, "mha_head_maps: causal must be 0 with queries (got %d)", maps->causal);
    for (int64_t n = 0; maps->queries && n < maps->count; n++) {
        const int64_t tokens = maps->queries[n].tokens;
        if (tokens < 1 || tokens > INT32_MAX)
            return mha__fail(err, MHA_ERR_ARG, "mha_head_maps: text %lld must have from 1 to %d queries (got %lld)",
                             (long long)n, INT32_MAX, (long long)tokens);
        if (maps->text[n].segments)
            return mha__fail(err, MHA_ERR_ARG, "mha_head_maps: segments of text %lld must be NULL with queries",
                             (long long)n);
    }
    return MHA_OK;
}

static mha_status check(const mha_head_maps *maps, int64_t *longest, mha_error *err)
{
    enum { MAX = 1 << 20 }; /* maximum number of layers, and of heads per layer */
    if (maps->layers < 1 || maps->layers > MAX || maps->heads < 1 || maps->heads > MAX)
        return mha__fail(err, MHA_ERR_ARG, "mha_head_maps: layers and heads must be from 1 to %d (got %lld and %lld)",
                         MAX, (long long)maps->layers, (long long)maps->heads);
    if (maps->count < 1 || !maps->text)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_head_maps: count must be at least 1, and text must not be NULL (got %lld%s)",
                         (long long)maps->count, maps->text ? "" : ", NULL");
    MHA__TRY(check_queries(maps, err));
    *longest = 0;
    for (int64_t n = 0; n < maps->count; n++) {
        const mha_head_map *map = &maps->text[n];
        const int64_t rows = maps->queries ? maps->queries[n].tokens : map->tokens;
        const int64_t dims[] = {maps->layers, maps->heads, rows, map->tokens};
        size_t bytes;
        if (map->tokens < 1 || !map->p || map->tokens > INT32_MAX || !mha__bytes(dims, 4, sizeof(float), &bytes))
            return mha__fail(
                err, MHA_ERR_ARG,
                "mha_head_maps: text %lld must have at least 1 token, and p must not be NULL (got %lld tokens%s)",
                (long long)n, (long long)map->tokens, map->p ? "" : ", NULL");
        *longest = mha__max64(*longest, map->tokens);
    }
    return MHA_OK;
}

static mha_status create(mha_ctx *ctx, const mha_head_maps *maps, int64_t longest, mha_heads **heads, mha_error *err)
{
    const size_t bytes = (size_t)maps->layers * sizeof(int64_t);
    int64_t *counts = mha__alloc(ctx, bytes);
    if (!counts) return mha__no_memory(err, bytes, "the head counts of all layers");
    for (int64_t l = 0; l < maps->layers; l++)
        counts[l] = maps->heads;
    const mha_status status = mha__heads_create(ctx, maps->layers, counts, longest, heads, err);
    mha__free(ctx, counts);
    return status;
}

mha_status mha_heads_of_maps(mha_ctx *ctx, const mha_head_maps *maps, mha_heads **out, mha_error *err)
{
    mha_head_maps own;
    mha_heads *heads = NULL;
    int64_t longest = 0;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__ctx_find(&ctx, err));
    MHA__TRY(mha__options_need(&own, sizeof own, maps, "mha_head_maps", err));
    MHA__TRY(check(&own, &longest, err));
    mha_status status = create(ctx, &own, longest, &heads, err);
    if (status == MHA_OK) status = mha__head_thresholds_read(&own.thresholds, &heads->limits, err);
    given g = {.maps = &own, .heads = heads};
    if (status == MHA_OK) status = add_all(&g, err);
    if (status == MHA_OK)
        *out = heads;
    else
        mha_heads_free(heads);
    return status;
}
