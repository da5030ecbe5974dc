/* grouped_query.c - several query heads (GQA) or all query heads (MQA) share one key/value head. */
#include "layer/variants/variant.h"

mha_status mha_grouped_query_create(mha_ctx *ctx, const mha_grouped_query_options *options, mha_variant **layer,
                                    mha_error *err)
{
    mha_grouped_query_options o;
    MHA__TRY(mha__check_layer(layer, err));
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_grouped_query_options", err));
    mha_variant v = {.name = "grouped-query attention",
                     .layer = {.out = o.d_model, .options = {.dtype = o.dtype, .hidden = o.d_model}}};
    MHA__TRY(mha__split_heads(&v, o.num_heads, "d_model", o.d_model, err));
    if (o.kv_groups && o.num_kv_heads)
        return mha__fail(err, MHA_ERR_ARG, "%s: kv_groups must be 0 with num_kv_heads", v.name);
    if (o.kv_groups && (o.kv_groups < 1 || o.num_heads % o.kv_groups))
        return mha__fail(err, MHA_ERR_ARG, "%s: kv_groups must divide num_heads = %lld (got %lld)", v.name,
                         (long long)o.num_heads, (long long)o.kv_groups);
    MHA__TRY(mha__share_heads(&v, o.kv_groups ? o.num_heads / o.kv_groups : o.num_kv_heads, err));
    mha__usual_dense(&v, true, true);
    return mha__variant_create(ctx, &v, mha__name_usual, layer, err);
}
