/* moe_heads.c - a mixture of experts: each expert is a head, and a router selects top_k experts per sample. For the
 * operator, experts are heads with gates; a call skips experts that are not selected. */
#include "layer/variants/variant.h"

static void name_all(mha_variant *v)
{
    mha__name_matrix(v, MHA__CHOICE, 0, "router", 0);
    for (int e = 0; e < (int)v->layer.options.heads; e++) {
        mha__name_matrix(v, MHA__Q, e, "experts.%lld.q_proj", e);
        mha__name_matrix(v, MHA__K, e, "experts.%lld.k_proj", e);
        mha__name_matrix(v, MHA__V, e, "experts.%lld.v_proj", e);
        if (v->dense[MHA__EXPERT_O].out) mha__name_matrix(v, MHA__EXPERT_O, e, "experts.%lld.o_proj", e);
    }
    mha__name_matrix(v, MHA__O, 0, "o_proj", 0);
}

static mha_status check_experts(const mha_variant *v, const mha_moe_heads_options *o, int64_t experts, mha_error *err)
{
    const int64_t keep = v->layer.options.choice.keep;
    if (experts < 1 || experts > 4096)
        return mha__fail(err, MHA_ERR_ARG, "%s: num_experts must be from 1 to 4096 (got %lld)", v->name,
                         (long long)experts);
    if (keep < 1 || keep > experts)
        return mha__fail(err, MHA_ERR_ARG, "%s: top_k must be from 1 to num_experts = %lld (got %lld)", v->name,
                         (long long)experts, (long long)keep);
    if ((int)o->expert_output < MHA_EXPERT_PROJECT || o->expert_output > MHA_EXPERT_PLAIN)
        return mha__fail(err, MHA_ERR_ARG, "%s: expert_output must be a value of mha_expert_output (got %d)", v->name,
                         (int)o->expert_output);
    if (o->expert_output == MHA_EXPERT_SLOT && experts != o->num_heads)
        return mha__fail(err, MHA_ERR_ARG,
                         "%s: num_experts must equal num_heads (%lld) if expert_output is slot (got %lld)", v->name,
                         (long long)o->num_heads, (long long)experts);
    if (o->expert_output == MHA_EXPERT_PLAIN && o->num_heads != 1)
        return mha__fail(err, MHA_ERR_ARG, "%s: num_heads must be 1 if expert_output is plain (got %lld)", v->name,
                         (long long)o->num_heads);
    return MHA_OK;
}

mha_status mha_moe_heads_create(mha_ctx *ctx, const mha_moe_heads_options *options, mha_variant **layer, mha_error *err)
{
    mha_moe_heads_options o;
    MHA__TRY(mha__check_layer(layer, err));
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_moe_heads_options", err));
    const int64_t experts = o.num_experts ? o.num_experts : o.num_heads;
    mha_variant v = {
        .name = "MoE heads",
        .layer = {.out = o.d_model,
                  .expert_output = o.expert_output,
                  .options = {.dtype = o.dtype,
                              .hidden = o.d_model,
                              .choice = {.of = MHA_CHOICE_EXPERTS,
                                         .keep = o.top_k ? o.top_k : mha__min64(2, experts)}}},
    };
    MHA__TRY(mha__split_heads(&v, o.num_heads, "d_model", o.d_model, err));
    MHA__TRY(check_experts(&v, &o, experts, err));
    v.layer.options.heads = v.layer.options.kv_heads = experts;
    mha__usual_dense(&v, true, true);
    for (int d = MHA__Q; d <= MHA__V; d++)
        v.dense[d].tensors = (int)experts;
    v.dense[MHA__O].in = o.d_model;
    if (o.expert_output == MHA_EXPERT_PROJECT)
        v.dense[MHA__EXPERT_O] = (mha__variant_projection){
            .in = v.layer.options.head_dim, .out = experts * o.d_model, .tensors = (int)experts, .bias = true};
    v.dense[MHA__CHOICE] = (mha__variant_projection){.in = o.d_model, .out = experts, .bias = true};
    return mha__variant_create(ctx, &v, name_all, layer, err);
}
