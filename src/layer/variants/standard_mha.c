/* standard_mha.c - multi-head attention as in Vaswani et al. 2017: four square projections with biases. */
#include "layer/variants/variant.h"

mha_status mha_standard_mha_create(mha_ctx *ctx, const mha_standard_mha_options *options, mha_variant **layer,
                                   mha_error *err)
{
    mha_standard_mha_options o;
    MHA__TRY(mha__check_layer(layer, err));
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_standard_mha_options", err));
    mha_variant v = {.name = "multi-head attention",
                     .layer = {.out = o.d_model, .options = {.dtype = o.dtype, .hidden = o.d_model}}};
    MHA__TRY(mha__split_heads(&v, o.num_heads, "d_model", o.d_model, err));
    mha__usual_dense(&v, true, true);
    return mha__variant_create(ctx, &v, mha__name_usual, layer, err);
}
