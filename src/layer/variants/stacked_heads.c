/* stacked_heads.c - a list of causal heads with separate matrices; the output is the concatenated heads.
 *
 * The matrices of all heads form one packed projection, so the list is as fast as one matrix. Only the parameter names
 * and the order of initialization and dropout follow the list. */
#include "layer/variants/variant.h"

static void name_all(mha_variant *v)
{
    static const char *const linear[] = {"heads.%lld.q_proj", "heads.%lld.k_proj", "heads.%lld.v_proj"};
    static const char *const plain[] = {"heads.%lld.w_q", "heads.%lld.w_k", "heads.%lld.w_v"};
    for (int h = 0; h < (int)v->layer.options.heads; h++)
        for (int d = MHA__Q; d <= MHA__V; d++)
            mha__name_matrix(v, d, h, v->dense[d].plain ? plain[d] : linear[d], h);
}

mha_status mha_stacked_heads_create(mha_ctx *ctx, const mha_stacked_heads_options *options, mha_variant **layer,
                                    mha_error *err)
{
    mha_stacked_heads_options o;
    MHA__TRY(mha__check_layer(layer, err));
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_stacked_heads_options", err));
    mha_variant v = {
        .name = "stacked heads",
        .layer = {.out = o.d_out, .options = {.dtype = o.dtype, .hidden = o.d_in, .causal = 1}},
        .self = true,
        .context_length = o.context_length,
        .takes_dropout = true,
        .dropout = o.dropout,
        .dropout_by_head = true,
    };
    MHA__TRY(mha__check_width(&v, "d_in", o.d_in, err));
    MHA__TRY(mha__split_heads(&v, o.num_heads, "d_out", o.d_out, err));
    MHA__TRY(mha__check_dropout(&v, err));
    MHA__TRY(mha__check_scale(&v, o.scale_rule, err));
    if (o.plain_matrices && o.qkv_bias)
        return mha__fail(err, MHA_ERR_ARG, "%s: qkv_bias must be 0 with plain_matrices", v.name);
    mha__usual_dense(&v, o.qkv_bias != 0, false);
    for (int d = MHA__Q; d <= MHA__V; d++) {
        v.dense[d].tensors = (int)o.num_heads;
        v.dense[d].plain = o.plain_matrices != 0;
    }
    return mha__variant_create(ctx, &v, name_all, layer, err);
}
