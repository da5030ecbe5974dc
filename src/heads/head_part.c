/* head_part.c - see head_part.h. */
#include "heads/head_part.h"

mha__head_part mha__head_part_of(const mha_model *m, int64_t layer, mha__projection which, int64_t head)
{
    static const mha__role roles[] = {MHA__QUERY, MHA__KEY, MHA__VALUE, MHA__ATTN_OUT};
    const mha__config *c = &m->config;
    const int64_t H = c->layer_heads[layer], K = c->layer_k_heads[layer], V = c->layer_v_heads[layer], D = c->head_dim;
    const bool fused = which != MHA__OF_O && mha__weights_tensor(&m->outer, MHA__QKV, layer, false);
    const int64_t heads = which == MHA__OF_K ? K : which == MHA__OF_V ? V : H;
    const int64_t before = !fused || which == MHA__OF_Q ? 0 : which == MHA__OF_K ? H * D : (H + K) * D;
    const int64_t at = before + head * heads / H * D, wide = fused ? (H + K + V) * D : heads * D;
    const mha__role role = fused ? MHA__QKV : roles[which];
    const bool transposed = c->family->parts[role].kind == MHA__PART_CONV1D;
    if (which == MHA__OF_O)
        return transposed ? (mha__head_part){role, at * c->hidden, 1, c->hidden, c->hidden, D}
                          : (mha__head_part){role, at, wide, 1, c->hidden, D};
    return transposed ? (mha__head_part){role, at, 1, wide, D, c->hidden}
                      : (mha__head_part){role, at * c->hidden, c->hidden, 1, D, c->hidden};
}
