/* qkv_attention.c - attention with separate inputs for query, key and value; the output is the concatenated heads. */
#include "layer/variants/variant.h"

mha_status mha_qkv_attention_create(mha_ctx *ctx, const mha_qkv_attention_options *options, mha_variant **layer,
                                    mha_error *err)
{
    mha_qkv_attention_options o;
    MHA__TRY(mha__check_layer(layer, err));
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_qkv_attention_options", err));
    mha_variant v = {.name = "q/k/v attention",
                     .layer = {.out = o.output_dim, .options = {.dtype = o.dtype, .hidden = o.input_dim}}};
    MHA__TRY(mha__check_width(&v, "input_dim", o.input_dim, err));
    MHA__TRY(mha__split_heads(&v, o.num_heads, "output_dim", o.output_dim, err));
    mha__usual_dense(&v, true, false);
    return mha__variant_create(ctx, &v, mha__name_usual, layer, err);
}
