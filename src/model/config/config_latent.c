/* config_latent.c - derives the shape of latent attention (DeepSeek-V3). */
#include "base/error.h"
#include "model/config/config_layers.h"
#include "model/config/family.h"
#include <math.h>

mha_status mha__config_latent(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    const int64_t keys = c->nope_width + c->rope_width;
    if (!c->family->latent) return MHA_OK;
    if (c->kv_heads != c->heads)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "%s: num_key_value_heads must be num_attention_heads = %lld (got %lld)", root->file,
                         (long long)c->heads, (long long)c->kv_heads);
    if (c->rope_width % 2)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: qk_rope_head_dim must be even (got %lld)", root->file,
                         (long long)c->rope_width);
    c->q_direct = c->q_rank == 0;
    c->q_latent = c->q_rank > 0;
    c->head_dim = keys > c->value_width ? keys : c->value_width;
    c->query_scalar = (double)keys;
    if (c->head_dim > MHA_HEAD_DIM_MAX)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s must be at most %d (got %lld)", root->file,
                         keys > c->value_width ? "qk_nope_head_dim + qk_rope_head_dim" : "v_head_dim", MHA_HEAD_DIM_MAX,
                         (long long)c->head_dim);
    if (c->shared_experts > 0 && c->expert_width > MHA__DIM / c->shared_experts)
        return mha__fail(err, MHA_ERR_FORMAT,
                         "%s: n_shared_experts * moe_intermediate_size must be at most %lld (got %lld * %lld)",
                         root->file, (long long)MHA__DIM, (long long)c->shared_experts, (long long)c->expert_width);
    c->shared_width = c->shared_experts * c->expert_width;
    return MHA_OK;
}

int64_t mha__config_latent_width(const mha__config *c)
{
    const int64_t width = c->family->latent ? c->kv_rank + c->rope_width : 0;
    return width <= MHA_HEAD_DIM_MAX ? width : 0;
}

void mha__config_latent_scale(mha__config *c)
{
    const mha_rope_options *o = &c->rope;
    const double usual = 1 / sqrt(c->query_scalar);
    if (!c->family->latent || o->kind == MHA_ROPE_DEFAULT || !(o->factor > 1) || o->mscale_all == 0) return;
    const double m = 0.1 * o->mscale_all * log(o->factor) + 1;
    for (int64_t layer = 0; layer < c->layers; layer++)
        if (c->attention[layer].scale == usual) c->attention[layer].scale = usual * m * m;
}
