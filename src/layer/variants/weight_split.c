/* weight_split.c - causal attention with several heads: q, k and v each have one matrix for all heads, and are split
 * after the projection. */
#include "layer/variants/variant.h"

mha_status mha_weight_split_create(mha_ctx *ctx, const mha_weight_split_options *options, mha_variant **layer,
                                   mha_error *err)
{
    mha_weight_split_options o;
    MHA__TRY(mha__check_layer(layer, err));
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_weight_split_options", err));
    mha_variant v = {
        .name = "weight-split attention",
        .layer = {.out = o.d_out, .options = {.dtype = o.dtype, .hidden = o.d_in, .causal = 1}},
        .self = true,
        .context_length = o.context_length,
        .takes_dropout = true,
        .dropout = o.dropout,
    };
    MHA__TRY(mha__check_width(&v, "d_in", o.d_in, err));
    MHA__TRY(mha__split_heads(&v, o.num_heads, "d_out", o.d_out, err));
    MHA__TRY(mha__check_dropout(&v, err));
    MHA__TRY(mha__check_scale(&v, o.scale_rule, err));
    mha__usual_dense(&v, o.qkv_bias != 0, true);
    v.dense[MHA__O].bias = true;
    return mha__variant_create(ctx, &v, mha__name_usual, layer, err);
}
