/* relative_bias.c - computes the biases of scores from relative positions, and their gradient. A pruned layer uses the
 * table columns of its remaining heads. */
#include "model/forward/relative_bias.h"

#include "base/ctx.h"
#include "base/error.h"
#include <math.h>

/* The logarithm is computed in float, like in transformers, because its rounding decides the row of some distances. */
int64_t mha__relative_bucket(const mha__config *c, int64_t distance)
{
    const int64_t rows = c->family->causal ? c->used_buckets : c->used_buckets / 2, exact = rows / 2;
    const int64_t side = !c->family->causal && distance > 0 ? rows : 0;
    const int64_t d = c->family->causal ? (distance < 0 ? -distance : 0) : distance < 0 ? -distance : distance;
    if (d < exact) return side + d;
    const float range = (float)log((double)c->max_distance / (double)exact);
    const float place = logf((float)d / (float)exact) / range * (float)(rows - exact);
    const int64_t row = exact + (int64_t)fminf(place, (float)rows);
    return side + (row < rows ? row : rows - 1);
}

/* Returns the table column of a head in a layer. */
static int64_t column(const mha_model *m, int64_t layer, int64_t head)
{
    return (m->relative_columns ? m->relative_columns : m->head_numbers)[layer * m->config.heads + head];
}

/* ---- biases ---- */

/* Returns the elements per head: one per distance between a row and a key. */
static int64_t width_of(const mha__batch *p)
{
    return mha__batch_map_rows(p) + mha__batch_map_keys(p) - 1;
}

int64_t mha__relative_size(const mha_model *m, const mha__batch *p)
{
    return (p->in.cache ? p->sequences : 1) * m->config.heads * width_of(p);
}

void mha__relative_describe(mha__batch *p)
{
    const int64_t width = width_of(p), last = mha__batch_map_rows(p) - 1;
    const float *data =
        p->bias ? p->bias + last : p->relative; /* before memory is allocated, only marks its presence */
    p->layer.bias = (mha_cview){data, {p->in.cache ? p->relative_heads * width : 0, width, -1, 1}};
}

/* Element n of a head's array is the bias of key n - last for row 0, whose position is the number of cached tokens. */
void mha__relative_fill(const mha_model *m, int64_t layer, const mha__batch *p)
{
    const int64_t columns = m->config.relative_heads, heads = m->config.heads, last = mha__batch_map_rows(p) - 1;
    const int64_t width = width_of(p);
    for (int64_t b = 0; b < (p->in.cache ? p->sequences : 1); b++)
        for (int64_t n = 0; n < width; n++) {
            const int64_t row = mha__relative_bucket(&m->config, n - last - p->past[b]);
            for (int64_t h = 0; h < m->config.layer_heads[layer]; h++)
                p->bias[(b * heads + h) * width + n] = m->relative.weight[row * columns + column(m, layer, h)];
        }
}

/* ---- gradient ---- */

/* Adds the gradient of one head. `sums` has used_buckets elements, and rows [distances] the table row per distance. */
static void head_back(const mha__config *c, int64_t distances, const int64_t *rows, const float *dbias, double *sums,
                      float *dtable)
{
    for (int64_t n = 0; n < c->used_buckets; n++)
        sums[n] = 0;
    for (int64_t n = 0; n < distances; n++)
        sums[rows[n]] += (double)dbias[n];
    for (int64_t n = 0; n < c->used_buckets; n++)
        dtable[n * c->relative_heads] += (float)sums[n];
}

mha_status mha__relative_back(const mha_model *m, int64_t layer, int64_t M, const float *dbias, float *dtable,
                              mha_error *err)
{
    const mha__config *c = &m->config;
    const int64_t distances = 2 * M - 1;
    const size_t bytes = (size_t)distances * sizeof(int64_t) + (size_t)c->used_buckets * sizeof(double);
    int64_t *rows = mha__alloc(m->ctx, bytes);
    if (!rows) return mha__no_memory(err, bytes, "the gradient of relative positions");
    for (int64_t n = 0; n < distances; n++)
        rows[n] = mha__relative_bucket(c, n - (M - 1));
    for (int64_t h = 0; h < c->layer_heads[layer]; h++)
        head_back(c, distances, rows, dbias + h * distances, (double *)(void *)(rows + distances),
                  dtable + column(m, layer, h));
    mha__free(m->ctx, rows);
    return MHA_OK;
}
