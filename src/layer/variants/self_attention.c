/* self_attention.c - self-attention with one head: softmax(q k^T / sqrt(d_out)) v. */
#include "layer/variants/variant.h"

static void name_all(mha_variant *v)
{
    if (!v->dense[MHA__Q].plain) {
        mha__name_usual(v);
        return;
    }
    mha__name_matrix(v, MHA__Q, 0, "w_q", 0);
    mha__name_matrix(v, MHA__K, 0, "w_k", 0);
    mha__name_matrix(v, MHA__V, 0, "w_v", 0);
}

mha_status mha_self_attention_create(mha_ctx *ctx, const mha_self_attention_options *options, mha_variant **layer,
                                     mha_error *err)
{
    mha_self_attention_options o;
    MHA__TRY(mha__check_layer(layer, err));
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_self_attention_options", err));
    mha_variant v = {.name = "self-attention",
                     .layer = {.out = o.d_out, .options = {.dtype = o.dtype, .hidden = o.d_in}},
                     .self = true};
    MHA__TRY(mha__check_width(&v, "d_in", o.d_in, err));
    MHA__TRY(mha__split_heads(&v, 1, "d_out", o.d_out, err));
    if (o.plain_matrices && o.qkv_bias)
        return mha__fail(err, MHA_ERR_ARG, "%s: qkv_bias must be 0 with plain_matrices", v.name);
    mha__usual_dense(&v, o.qkv_bias != 0, false);
    for (int d = MHA__Q; d <= MHA__V; d++)
        v.dense[d].plain = o.plain_matrices != 0;
    return mha__variant_create(ctx, &v, name_all, layer, err);
}
