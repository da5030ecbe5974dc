/* adaptive_heads.c - for each sample, a predictor selects the number of heads into which d_model is split. The
 * projections do not depend on the head count, because a head is a range of their columns. */
#include "layer/variants/variant.h"
#include <stdio.h>

static void name_all(mha_variant *v)
{
    mha__name_matrix(v, MHA__CHOICE_HIDDEN, 0, "head_predictor.0", 0);
    mha__name_matrix(v, MHA__CHOICE, 0, "head_predictor.2", 0);
    mha__name_usual(v);
}

static mha_status read_options(mha_variant *v, const mha_adaptive_heads_options *o, mha_error *err)
{
    if (!o->head_options) return mha__fail(err, MHA_ERR_ARG, "%s: head_options must not be NULL", v->name);
    if (o->head_option_count < 1 || o->head_option_count > MHA_HEAD_OPTIONS)
        return mha__fail(err, MHA_ERR_ARG, "%s: head_option_count must be from 1 to %d (got %lld)", v->name,
                         MHA_HEAD_OPTIONS, (long long)o->head_option_count);
    for (int64_t n = 0; n < o->head_option_count; n++) {
        char field[32];
        snprintf(field, sizeof field, "head_options[%lld]", (long long)n);
        MHA__TRY(mha__check_heads(v, field, o->head_options[n], "d_model", o->d_model, err));
        v->layer.options.choice.options[n] = o->head_options[n];
    }
    v->layer.options.choice.option_count = o->head_option_count;
    return MHA_OK;
}

mha_status mha_adaptive_heads_create(mha_ctx *ctx, const mha_adaptive_heads_options *options, mha_variant **layer,
                                     mha_error *err)
{
    mha_adaptive_heads_options o;
    MHA__TRY(mha__check_layer(layer, err));
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_adaptive_heads_options", err));
    mha_variant v = {
        .name = "adaptive heads",
        .layer = {.out = o.d_model,
                  .options = {.dtype = o.dtype,
                              .hidden = o.d_model,
                              .heads = 1,
                              .kv_heads = 1,
                              .head_dim = o.d_model,
                              .choice = {.of = MHA_CHOICE_OPTIONS, .selection = o.selection, .keep = 1}}},
    };
    const int64_t width = o.predictor_width ? o.predictor_width : 128;
    MHA__TRY(mha__check_width(&v, "d_model", o.d_model, err));
    MHA__TRY(read_options(&v, &o, err));
    MHA__TRY(mha__check_selection(&v, err));
    MHA__TRY(mha__check_width(&v, "predictor_width", width, err));
    mha__usual_dense(&v, true, true);
    v.dense[MHA__CHOICE_HIDDEN] = (mha__variant_projection){.in = o.d_model, .out = width, .bias = true};
    v.dense[MHA__CHOICE] = (mha__variant_projection){.in = width, .out = o.head_option_count, .bias = true};
    return mha__variant_create(ctx, &v, name_all, layer, err);
}
