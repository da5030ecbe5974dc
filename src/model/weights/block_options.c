/* block_options.c - describes the block of a layer by the config and the tensors of its roles. */
#include "math/types/element.h"
#include "model/model_struct.h"
#include <string.h>

mha_norm mha__model_norm(const mha__config *c, mha__role role, const mha_matrix *part)
{
    const mha__part_kind kind = c->family->parts[role].kind;
    const bool layer = kind == MHA__PART_NORM || kind == MHA__PART_NORM_ONLY || kind == MHA__PART_HEAD_NORMS;
    return (mha_norm){
        .weight = part->weight, .bias = part->bias, .eps = c->eps, .kind = layer ? MHA_NORM_LAYER : MHA_NORM_RMS};
}

static mha_layer_choice choice_of(const mha__config *c, int64_t layer, const mha_matrix *part)
{
    const mha__layer_choice *given = &c->attention[layer].choice;
    mha_layer_choice choice = {.of = given->of,
                               .selection = given->selection,
                               .keep = mha__config_kept(c, layer),
                               .score = part[MHA__HEAD_CHOICE],
                               .hidden = part[MHA__HEAD_CHOICE_HIDDEN],
                               .option_count = given->option_count};
    memcpy(choice.options, given->options, sizeof choice.options);
    return choice;
}

static mha_attn_layer_options attn_of(const mha_model *m, int64_t layer, const mha_matrix *part)
{
    const mha__config *c = &m->config;
    const mha__layer_attention *a = &c->attention[layer];
    const bool causal = c->family->causal;
    return (mha_attn_layer_options){
        .size = sizeof(mha_attn_layer_options),
        .hidden = c->hidden,
        .heads = c->layer_heads[layer],
        .kv_heads = c->layer_k_heads[layer],
        .head_dim = c->head_dim,
        .q = c->family->latent ? (mha_matrix){0} : part[MHA__QUERY],
        .k = part[MHA__KEY],
        .v = part[MHA__VALUE],
        .qkv = part[MHA__QKV],
        .o = part[MHA__ATTN_OUT],
        .q_norm = mha__model_norm(c, MHA__QUERY_NORM, &part[MHA__QUERY_NORM]),
        .k_norm = mha__model_norm(c, MHA__KEY_NORM, &part[MHA__KEY_NORM]),
        .whole_norms = c->family->whole_norms,
        .head_gains = c->family->head_gains,
        .rope = !a->turned ? NULL
                : a->local ? &c->local_rope
                           : &c->rope,
        .scale = a->scale,
        .softcap = a->softcap,
        .causal = causal,
        .window = {a->window > 0, a->window - 1, causal ? 0 : a->window - 1},
        .v_heads = c->layer_v_heads[layer],
        .dtype = mha__attention_dtype(m->outer.packed),
        .slopes = a->alibi ? m->slopes + layer * c->heads : NULL,
        .sinks = part[MHA__SINKS].weight,
        .choice = choice_of(c, layer, part),
    };
}

/* Returns the cross-attention of a decoder layer, with the scale of its attention. */
static mha_attn_layer_options cross_of(const mha_model *m, int64_t layer, const mha_matrix *part)
{
    const mha__config *c = &m->config;
    return (mha_attn_layer_options){
        .size = sizeof(mha_attn_layer_options),
        .hidden = c->hidden,
        .heads = c->cross_heads[layer],
        .kv_heads = c->cross_heads[layer],
        .head_dim = c->head_dim,
        .q = part[MHA__CROSS_QUERY],
        .k = part[MHA__CROSS_KEY],
        .v = part[MHA__CROSS_VALUE],
        .o = part[MHA__CROSS_OUT],
        .scale = c->attention[layer].scale,
        .cross = 1,
    };
}

mha_block_options mha__model_block_options(const mha_model *m, int64_t layer, const mha_matrix *part,
                                           mha_attn_layer_options *cross)
{
    const mha__config *c = &m->config;
    const bool sparse = c->sparse[layer];
    *cross = cross_of(m, layer, part);
    return (mha_block_options){
        .size = sizeof(mha_block_options),
        .attn = attn_of(m, layer, part),
        .pre_norm = c->pre_norm,
        .parallel = c->parallel,
        .residual_scale = c->residual_multiplier != 1 ? c->residual_multiplier : 0,
        .attn_norm = mha__model_norm(c, MHA__ATTN_NORM, &part[MHA__ATTN_NORM]),
        .mlp_norm = mha__model_norm(c, MHA__MLP_NORM, &part[MHA__MLP_NORM]),
        .attn_out_norm = mha__model_norm(c, MHA__ATTN_OUT_NORM, &part[MHA__ATTN_OUT_NORM]),
        .mlp_out_norm = mha__model_norm(c, MHA__MLP_OUT_NORM, &part[MHA__MLP_OUT_NORM]),
        .intermediate = c->attention_only[layer] ? 0
                        : sparse                 ? c->shared_width
                                                 : c->intermediate,
        .up = part[sparse ? MHA__SHARED_UP : MHA__UP],
        .down = part[sparse ? MHA__SHARED_DOWN : MHA__DOWN],
        .gate = part[sparse ? MHA__SHARED_GATE : MHA__GATE],
        .activation = c->activation,
        .cross = c->family->encoder ? cross : NULL,
        .cross_norm = mha__model_norm(c, MHA__CROSS_NORM, &part[MHA__CROSS_NORM]),
    };
}
