/* head_clusters.c - clusters heads by average linkage of the distances sqrt(js), with nearest-neighbor chains (Murtagh
 * 1983): follow nearest neighbors from any cluster until two clusters are nearest to each other, and merge these. This
 * takes O(n^2) steps. It yields the same tree as always merging the closest pair, because average linkage never makes a
 * distance smaller than the distances it is computed from. The merges are found in a different order, so they are
 * sorted by height afterwards.
 *
 * The order and the numbering of the merges are the same as in scipy.cluster.hierarchy.linkage, even for equal
 * distances. */
#include "base/ctx.h"
#include "base/size.h"
#include "heads/diversity/diversity.h"
#include <math.h>
#include <string.h>

typedef struct clustering {
    int64_t n;
    double *distance; /* [n, n] distances between clusters; a merged cluster keeps the larger index */
    int64_t *size;    /* [n] heads per cluster; 0 = merged into another cluster */
    int64_t *chain;   /* [n] each entry is the nearest neighbor of the previous one */
    int64_t length;
    int64_t *parent; /* [2 n] parent of each cluster in the tree; the cluster itself = not merged yet */
} clustering;

/* Returns the cluster nearest to x; ties go to the previous cluster in the chain, then to the lowest index. */
static int64_t nearest(const clustering *c, int64_t x, double *distance)
{
    int64_t best = c->length > 1 ? c->chain[c->length - 2] : -1;
    for (int64_t i = 0; i < c->n; i++)
        if (i != x && c->size[i] && (best < 0 || c->distance[x * c->n + i] < c->distance[x * c->n + best])) best = i;
    *distance = c->distance[x * c->n + best];
    return best;
}

/* Merges cluster x into cluster y, where x < y. */
static void join(clustering *c, int64_t x, int64_t y)
{
    const double nx = (double)c->size[x], ny = (double)c->size[y];
    c->size[y] += c->size[x];
    c->size[x] = 0;
    for (int64_t i = 0; i < c->n; i++) {
        if (i == y || !c->size[i]) continue;
        const double mean = (nx * c->distance[i * c->n + x] + ny * c->distance[i * c->n + y]) / (nx + ny);
        c->distance[i * c->n + y] = c->distance[y * c->n + i] = mean;
    }
}

static mha_head_merge next_join(clustering *c)
{
    double height;
    if (c->length == 0) {
        while (!c->size[c->chain[0]])
            c->chain[0]++;
        c->length = 1;
    }
    for (;;) {
        const int64_t x = c->chain[c->length - 1], y = nearest(c, x, &height);
        if (c->length > 1 && y == c->chain[c->length - 2]) {
            const int64_t low = mha__min64(x, y), high = mha__max64(x, y);
            c->length -= 2;
            if (c->length == 0) c->chain[0] = 0;
            join(c, low, high);
            return (mha_head_merge){low, high, height, 0};
        }
        c->chain[c->length++] = y;
    }
}

/* Sorts merges by ascending height; merges of equal height stay in the order in which they were found. */
static void sort(int64_t count, mha_head_merge *merges)
{
    for (int64_t i = 1; i < count; i++) {
        const mha_head_merge m = merges[i];
        int64_t at = i;
        for (; at > 0 && merges[at - 1].height > m.height; at--)
            merges[at] = merges[at - 1];
        merges[at] = m;
    }
}

/* Renumbers clusters. Before, merges refer to a cluster by one of its heads; afterwards, by its number in the tree. */
static void name_clusters(const clustering *c, mha_head_merge *merges)
{
    for (int64_t i = 0; i < 2 * c->n; i++)
        c->parent[i] = i;
    for (int64_t i = 0; i < c->n - 1; i++) {
        int64_t a = merges[i].a, b = merges[i].b;
        while (c->parent[a] != a)
            a = c->parent[a];
        while (c->parent[b] != b)
            b = c->parent[b];
        c->parent[a] = c->parent[b] = c->n + i;
        merges[i].size = (a < c->n ? 1 : merges[a - c->n].size) + (b < c->n ? 1 : merges[b - c->n].size);
        merges[i].a = mha__min64(a, b);
        merges[i].b = mha__max64(a, b);
    }
}

mha_status mha__head_clusters(mha_ctx *ctx, int64_t n, const double *js, mha_head_merge *merges, mha_error *err)
{
    const size_t bytes = (size_t)(n * n) * sizeof(double) + (size_t)(4 * n) * sizeof(int64_t);
    double *memory = mha__alloc(ctx, bytes);
    if (!memory) return mha__no_memory(err, bytes, "the clusters of the heads");
    int64_t *numbers = (int64_t *)(void *)(memory + n * n);
    clustering c = {.n = n, .distance = memory, .size = numbers, .chain = numbers + n, .parent = numbers + 2 * n};
    for (int64_t i = 0; i < n * n; i++)
        c.distance[i] = sqrt(js[i]);
    for (int64_t i = 0; i < n; i++)
        c.size[i] = 1;
    c.chain[0] = 0;
    for (int64_t i = 0; i < n - 1; i++)
        merges[i] = next_join(&c);
    sort(n - 1, merges);
    name_clusters(&c, merges);
    mha__free(ctx, memory);
    return MHA_OK;
}
