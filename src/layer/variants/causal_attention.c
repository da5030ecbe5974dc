/* causal_attention.c - one head in which token i attends to tokens 0..i, with dropout of the attention weights. */
#include "layer/variants/variant.h"

mha_status mha_causal_attention_create(mha_ctx *ctx, const mha_causal_attention_options *options, mha_variant **layer,
                                       mha_error *err)
{
    mha_causal_attention_options o;
    MHA__TRY(mha__check_layer(layer, err));
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_causal_attention_options", err));
    mha_variant v = {
        .name = "causal attention",
        .layer = {.out = o.d_out, .options = {.dtype = o.dtype, .hidden = o.d_in, .causal = 1}},
        .self = true,
        .context_length = o.context_length,
        .takes_dropout = true,
        .dropout = o.dropout,
    };
    MHA__TRY(mha__check_width(&v, "d_in", o.d_in, err));
    MHA__TRY(mha__split_heads(&v, 1, "d_out", o.d_out, err));
    MHA__TRY(mha__check_dropout(&v, err));
    mha__usual_dense(&v, o.qkv_bias != 0, false);
    return mha__variant_create(ctx, &v, mha__name_usual, layer, err);
}
