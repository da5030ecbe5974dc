/* relative_bias.c - computes the biases of scores from relative positions, and their gradient. A pruned layer uses the
 * table columns of its remaining heads. */
#include "model/forward/relative_bias.h"

int64_t mha__relative_bucket(int64_t distance)
{
    enum { HALF = MHA__RELATIVE_BUCKETS / 2, EXACT = HALF / 2 };
    const int64_t side = distance > 0 ? HALF : 0, d = distance < 0 ? -distance : distance;
    int64_t range = 0;
    if (d < EXACT) return side + d;
    while (range < EXACT - 1 && d * d >= (int64_t)EXACT * EXACT << (range + 1))
        range++;
    return side + EXACT + range;
}

/* Returns the table column of a head in a layer. */
static int64_t column(const mha_model *m, int64_t layer, int64_t head)
{
    return m->head_numbers[layer * m->config.heads + head];
}

void mha__relative_fill(const mha_model *m, int64_t layer, int64_t M, float *bias)
{
    const int64_t columns = m->config.original_heads;
    for (int64_t h = 0; h < m->config.layer_heads[layer]; h++) {
        const float *table = m->relative.weight + column(m, layer, h);
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < M; j++)
                bias[(h * M + i) * M + j] = table[mha__relative_bucket(j - i) * columns];
    }
}

void mha__relative_back(const mha_model *m, int64_t layer, int64_t M, const float *dbias, float *dtable)
{
    const int64_t columns = m->config.original_heads;
    for (int64_t h = 0; h < m->config.layer_heads[layer]; h++) {
        double sums[MHA__RELATIVE_BUCKETS] = {0};
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < M; j++)
                sums[mha__relative_bucket(j - i)] += (double)dbias[(h * M + i) * M + j];
        for (int64_t n = 0; n < MHA__RELATIVE_BUCKETS; n++)
            dtable[n * columns + column(m, layer, h)] += (float)sums[n];
    }
}
