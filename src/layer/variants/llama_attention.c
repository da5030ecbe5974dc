/* llama_attention.c - LLaMA attention: grouped-query attention without biases, with rotary position embedding and past
 * keys and values. */
#include "layer/variants/variant.h"

static mha_status read_rope(mha_variant *v, const mha_rope_options *rope, mha_error *err)
{
    double frequencies[MHA_HEAD_DIM_MAX / 2], gain;
    mha_error inner = {0};
    mha_rope_options *own = &v->layer.rope;
    const int64_t D = v->layer.options.head_dim;
    if (v->layer.options.dtype == MHA_F64)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: dtype must be f32 with rotary (got f64)", v->name);
    if (!rope->rotary_dim && D % 2)
        return mha__fail(err, MHA_ERR_ARG, "%s: head_dim must be even with rotary (got %lld)", v->name, (long long)D);
    *own = *rope;
    own->size = sizeof *own;
    own->head_dim = D;
    if (!own->rotary_dim) own->rotary_dim = D;
    if (mha_rope_frequencies(own, 1, frequencies, &gain, &inner) == MHA_OK)
        return MHA_OK; /* called only to check the options */
    return mha__fail(err, inner.status, "%s: %s", v->name, inner.message);
}

mha_status mha_llama_attention_create(mha_ctx *ctx, const mha_llama_attention_options *options, mha_variant **layer,
                                      mha_error *err)
{
    mha_llama_attention_options o;
    MHA__TRY(mha__check_layer(layer, err));
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_llama_attention_options", err));
    mha_variant v = {
        .name = "LLaMA attention",
        .layer = {.out = o.hidden_size,
                  .options = {.dtype = o.dtype, .hidden = o.hidden_size, .causal = o.causal != 0}},
        .self = true,
        .takes_past = true,
        .context_length = o.context_length,
    };
    MHA__TRY(mha__split_heads(&v, o.num_heads, "hidden_size", o.hidden_size, err));
    MHA__TRY(mha__share_heads(&v, o.num_kv_heads, err));
    MHA__TRY(mha__check_dropout(&v, err));
    if (!o.rotary && (o.rope.theta != 0 || o.rope.rotary_dim || o.rope.interleaved || o.rope.kind != MHA_ROPE_DEFAULT))
        return mha__fail(err, MHA_ERR_ARG, "%s: rope must be NULL without rotary", v.name);
    if (o.rotary) MHA__TRY(read_rope(&v, &o.rope, err));
    mha__usual_dense(&v, false, true);
    return mha__variant_create(ctx, &v, mha__name_usual, layer, err);
}
