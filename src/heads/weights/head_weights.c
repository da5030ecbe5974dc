/* head_weights.c - locates one head in the projections of a layer, and computes sums over its weights. */
#include "heads/weights/head_weights.h"

#include <math.h>

static mha__head_part part_of(const mha_model *m, int64_t layer, mha__projection which, int64_t head, bool stored)
{
    static const mha__role roles[] = {MHA__QUERY, MHA__KEY, MHA__VALUE, MHA__ATTN_OUT};
    const mha__config *c = &m->config;
    const int64_t H = c->layer_heads[layer], K = c->layer_k_heads[layer], V = c->layer_v_heads[layer], D = c->head_dim;
    const bool fused = which != MHA__OF_O && mha__weights_tensor(&m->outer, MHA__QKV, layer, false);
    const int64_t heads = which == MHA__OF_K ? K : which == MHA__OF_V ? V : H;
    const bool side_by_side =
        stored && fused && mha__weights_per_head(c, MHA__QKV); /* q, k, v rows interleaved by head */
    const int64_t number = which == MHA__OF_K ? 1 : which == MHA__OF_V ? 2 : 0;
    const int64_t before = !fused || which == MHA__OF_Q ? 0 : which == MHA__OF_K ? H * D : (H + K) * D;
    const int64_t at = side_by_side ? (3 * head + number) * D : before + head * heads / H * D,
                  wide = fused ? (H + K + V) * D : heads * D;
    const mha__role role = fused ? MHA__QKV : roles[which];
    const bool transposed = c->family->parts[role].kind == MHA__PART_CONV1D;
    if (which == MHA__OF_O)
        return transposed ? (mha__head_part){role, at * c->hidden, 1, c->hidden, c->hidden, D}
                          : (mha__head_part){role, at, wide, 1, c->hidden, D};
    return transposed ? (mha__head_part){role, at, 1, wide, D, c->hidden}
                      : (mha__head_part){role, at * c->hidden, c->hidden, 1, D, c->hidden};
}

mha__head_part mha__head_part_of(const mha_model *m, int64_t layer, mha__projection which, int64_t head)
{
    return part_of(m, layer, which, head, true);
}

mha__head_part mha__head_part_loaded(const mha_model *m, int64_t layer, mha__projection which, int64_t head)
{
    return part_of(m, layer, which, head, false);
}

mha__head_part mha__head_part_cross(const mha_model *m, int64_t layer, mha__projection which, int64_t head)
{
    static const mha__role roles[] = {MHA__CROSS_QUERY, MHA__CROSS_KEY, MHA__CROSS_VALUE, MHA__CROSS_OUT};
    const mha__config *c = &m->config;
    const int64_t D = c->head_dim, at = head * D, E = c->hidden, wide = c->cross_heads[layer] * D;
    return which == MHA__OF_O ? (mha__head_part){roles[which], at, wide, 1, E, D}
                              : (mha__head_part){roles[which], at * E, E, 1, D, E};
}

/* ---- sums ---- */

enum { CHAINS = 8 }; /* independent partial sums, which hide the latency of additions */

/* The rows or the columns of a part, whichever consist of adjacent elements: `count` lines of `length` elements
 * each. */
typedef struct lines {
    int64_t count, length, stride;
} lines;

static lines lines_of(const mha__head_part *p)
{
    return p->column == 1 ? (lines){p->rows, p->columns, p->row} : (lines){p->columns, p->rows, p->column};
}

static double joined(const double chain[CHAINS])
{
    return ((chain[0] + chain[4]) + (chain[2] + chain[6])) + ((chain[1] + chain[5]) + (chain[3] + chain[7]));
}

double mha__head_part_abs(const mha__head_part *part, const float *a)
{
    const lines l = lines_of(part);
    double chain[CHAINS] = {0};
    for (int64_t n = 0; n < l.count; n++) {
        const float *line = a + part->first + n * l.stride;
        int64_t i = 0;
        for (; i + CHAINS <= l.length; i += CHAINS)
            for (int k = 0; k < CHAINS; k++)
                chain[k] += fabs((double)line[i + k]);
        for (; i < l.length; i++)
            chain[0] += fabs((double)line[i]);
    }
    return joined(chain);
}

double mha__head_part_dot(const mha__head_part *part, const float *a, const float *b)
{
    const lines l = lines_of(part);
    double chain[CHAINS] = {0};
    for (int64_t n = 0; n < l.count; n++) {
        const float *x = a + part->first + n * l.stride, *y = b + part->first + n * l.stride;
        int64_t i = 0;
        for (; i + CHAINS <= l.length; i += CHAINS)
            for (int k = 0; k < CHAINS; k++)
                chain[k] += (double)x[i + k] * (double)y[i + k];
        for (; i < l.length; i++)
            chain[0] += (double)x[i] * (double)y[i];
    }
    return joined(chain);
}
