/* head_pruning.c - a predictor scores the heads for each sample, and only the heads with the highest scores are
 * computed. */
#include "layer/variants/variant.h"

static void name_all(mha_variant *v)
{
    mha__name_matrix(v, MHA__Q, 0, "q_proj", 0);
    mha__name_matrix(v, MHA__K, 0, "k_proj", 0);
    mha__name_matrix(v, MHA__V, 0, "v_proj", 0);
    mha__name_matrix(v, MHA__CHOICE, 0, "head_importance", 0);
    mha__name_matrix(v, MHA__O, 0, "o_proj", 0);
}

mha_status mha_head_pruning_create(mha_ctx *ctx, const mha_head_pruning_options *options, mha_variant **layer,
                                   mha_error *err)
{
    mha_head_pruning_options o;
    MHA__TRY(mha__check_layer(layer, err));
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_head_pruning_options", err));
    mha_variant v = {
        .name = "head pruning",
        .layer = {.out = o.d_model,
                  .options = {.dtype = o.dtype,
                              .hidden = o.d_model,
                              .choice = {.of = MHA_CHOICE_HEADS, .selection = o.selection}}},
    };
    MHA__TRY(mha__split_heads(&v, o.num_heads, "d_model", o.d_model, err));
    MHA__TRY(mha__check_selection(&v, err));
    if (!(o.prune_ratio >= 0 && o.prune_ratio <= 1))
        return mha__fail(err, MHA_ERR_ARG, "%s: prune_ratio must be from 0 to 1 (got %g)", v.name, o.prune_ratio);
    v.layer.options.choice.keep = (int64_t)((double)o.num_heads * (1 - o.prune_ratio));
    mha__usual_dense(&v, true, true);
    v.dense[MHA__CHOICE] = (mha__variant_projection){.in = o.d_model, .out = o.num_heads, .bias = true};
    return mha__variant_create(ctx, &v, name_all, layer, err);
}
