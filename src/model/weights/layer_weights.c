/* layer_weights.c - builds the blocks of a model from the family's tables and the tensors of each layer. Packs a block
 * again after its tensors have changed. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/attention/disentangled.h"
#include "layer/attention/latent.h"
#include "layer/block/block_convolution.h"
#include "layer/block/transformer_block.h"
#include "layer/repack.h"
#include "model/model_struct.h"
#include "model/weights/rank_parts.h"

static mha__experts_options experts_of(const mha__config *c, const mha_matrix *part, const mha__feed_options *feeds)
{
    return (mha__experts_options){.count = c->experts,
                                  .chosen = c->experts_chosen,
                                  .normalized = c->experts_normed,
                                  .sigmoid = c->family->sigmoid_router,
                                  .groups = c->expert_groups,
                                  .kept_groups = c->kept_groups,
                                  .factor = c->expert_factor,
                                  .correction = part[MHA__ROUTER_BIAS].weight,
                                  .router = part[MHA__ROUTER],
                                  .shared_gate = part[MHA__SHARED_SHARE],
                                  .feeds = feeds};
}

/* Returns the matrix whose weights and biases begin at these elements of a larger one. */
static mha_matrix part_at(const mha_matrix *whole, int64_t weight, int64_t bias)
{
    mha_matrix part = *whole;
    part.weight += weight;
    if (part.bias) part.bias += bias;
    return part;
}

/* Sets the matrices of all experts from the two tensors that contain them. */
static void split_stacks(const mha__config *c, const mha_matrix *part, mha__feed_options *feeds)
{
    const mha_matrix *both = &part[MHA__EXPERTS_GATE_UP], *down = &part[MHA__EXPERTS_DOWN];
    const int64_t I = c->intermediate, count = c->hidden * I;
    for (int64_t e = 0; e < c->experts && down->weight; e++)
        feeds[e] = (mha__feed_options){.width = I,
                                       .clamped = {(float)c->swiglu_alpha, (float)c->swiglu_limit},
                                       .gate = part_at(both, 2 * e * count, 2 * e * I),
                                       .up = part_at(both, (2 * e + 1) * count, (2 * e + 1) * I),
                                       .down = part_at(down, e * count, e * c->hidden)};
}

/* Finds the matrices of all experts of a layer. */
static mha_status take_experts(mha__weights *weights, int64_t layer, const mha_matrix *part, mha__feed_options *feeds,
                               mha_error *err)
{
    if (mha__part_of(weights->config, MHA__EXPERTS_DOWN)->kind) {
        split_stacks(weights->config, part, feeds);
        return MHA_OK;
    }
    for (int64_t e = 0; e < weights->config->experts; e++) {
        mha_matrix gate, up, down;
        MHA__TRY(mha__weights_part(weights, mha__expert_role(MHA__EXPERT_GATE, e), layer, &gate, err));
        MHA__TRY(mha__weights_part(weights, mha__expert_role(MHA__EXPERT_UP, e), layer, &up, err));
        MHA__TRY(mha__weights_part(weights, mha__expert_role(MHA__EXPERT_DOWN, e), layer, &down, err));
        feeds[e] = (mha__feed_options){
            .width = up.out, .activation = weights->config->activation, .gate = gate, .up = up, .down = down};
    }
    return MHA_OK;
}

/* Finds the parts of a layer; converted tensors are kept in `weights`. */
static mha_status take_parts(mha__weights *weights, int64_t layer, mha_matrix *part, mha__feed_options **feeds,
                             mha_error *err)
{
    weights->converted = NULL; /* `weights` is a copy with the same file and prefix, but with its own converted
                                   * tensors */
    for (int role = MHA__FIRST_OF_LAYER; role < MHA__ROLES; role++)
        if (!mha__of_experts((mha__role)role))
            MHA__TRY(mha__weights_part(weights, (mha__role)role, layer, &part[role], err));
    *feeds = NULL;
    if (weights->config->sparse[layer] && !weights->config->attention_only[layer]) {
        *feeds = mha__calloc(weights->ctx, (size_t)weights->config->experts, sizeof **feeds);
        if (!*feeds) return mha__no_memory(err, (size_t)weights->config->experts * sizeof **feeds, "a list of experts");
        return take_experts(weights, layer, part, *feeds, err);
    }
    if (!part[MHA__GATE_UP].weight) return MHA_OK;
    const int64_t rows = weights->config->intermediate, count = rows * weights->config->hidden;
    const mha_matrix *both = &part[MHA__GATE_UP];
    part[MHA__GATE] = *both;
    part[MHA__UP] = part_at(both, count, rows);
    return MHA_OK;
}

/* Sets the projections of latent attention. */
static mha_status set_latent(const mha_model *m, int64_t layer, const mha_matrix *part, mha_error *err)
{
    const mha__config *c = &m->config;
    mha__latent_options o = {.q_rank = c->q_rank,
                             .kv_rank = c->kv_rank,
                             .nope = c->nope_width,
                             .rope = c->rope_width,
                             .value = c->value_width,
                             .q_a = part[MHA__Q_LATENT],
                             .q_b = part[MHA__QUERY],
                             .kv_a = part[MHA__KV_LATENT],
                             .kv_b = part[MHA__KV_EXPAND],
                             .q_norm = mha__model_norm(c, MHA__Q_LATENT_NORM, &part[MHA__Q_LATENT_NORM]),
                             .kv_norm = mha__model_norm(c, MHA__KV_LATENT_NORM, &part[MHA__KV_LATENT_NORM])};
    o.q_norm.eps = o.kv_norm.eps = 1e-6; /* in transformers, whatever rms_norm_eps is */
    return mha__latent_set(m->block[layer]->attn, &o, err);
}

/* Gives the layer its relative positions, projected by the layer's own k and q or by separate matrices. */
static mha_status relate(const mha_model *m, int64_t layer, const mha_matrix *part, mha_error *err)
{
    const mha__config *c = &m->config;
    mha__disentangled_options o = {.distances = {c->distance_span, c->distance_buckets, c->distance_max},
                                   .table = m->positions_normed,
                                   .separate = !c->own_positions};
    if (c->key_positions) o.key = part[o.separate ? MHA__POS_KEY : MHA__KEY];
    if (c->query_positions) o.query = part[o.separate ? MHA__POS_QUERY : MHA__QUERY];
    return mha__disentangled_set(m->block[layer]->attn, &o, err);
}

/* Adds the convolution to the first layer, or packs its weights again. */
static mha_status convolve(const mha_model *m, mha__weights *weights, mha_error *err)
{
    const mha__config *c = &m->config;
    mha__convolution_options o = {.taps = c->conv_taps, .groups = c->conv_groups, .activation = c->conv_activation};
    mha_matrix norm = {0};
    MHA__TRY(mha__weights_part(weights, MHA__LAYER_CONVOLUTION, -1, &o.weight, err));
    MHA__TRY(mha__weights_part(weights, MHA__LAYER_CONVOLUTION_NORM, -1, &norm, err));
    if (weights->check_only) return MHA_OK;
    o.norm = mha__model_norm(c, MHA__LAYER_CONVOLUTION_NORM, &norm);
    MHA__TRY(mha__block_convolution_set(m->block[0], &o, err));
    mha__weights_rest(weights, MHA__LAYER_CONVOLUTION, -1);
    return MHA_OK;
}

/* Builds the block of a layer or, if it exists, packs it again. */
static mha_status build(mha_model *m, int64_t layer, mha__weights *weights, mha_error *err)
{
    mha_matrix part[MHA__ROLES] = {0};
    mha__feed_options *feeds = NULL;
    mha_status status = take_parts(weights, layer, part, &feeds, err);
    if (status == MHA_OK && !weights->check_only) {
        mha_attn_layer_options cross;
        const mha_block_options options = mha__model_block_options(m, layer, part, &cross);
        const mha__experts_options experts = experts_of(&m->config, part, feeds);
        if (m->block[layer])
            mha__block_repack(m->block[layer], &options, feeds ? &experts : NULL);
        else
            status = mha__block_create(m->ctx, &options, feeds ? &experts : NULL, m->config.family->latent,
                                       &m->block[layer], err);
        if (status == MHA_OK && m->config.family->latent) status = set_latent(m, layer, part, err);
        if (status == MHA_OK && m->positions_normed) status = relate(m, layer, part, err);
    }
    if (status == MHA_OK && m->config.convolved && layer == 0) status = convolve(m, weights, err);
    mha__free(m->ctx, feeds);
    mha__weights_release(weights);
    return status;
}

mha_status mha__model_create_block(mha_model *m, int64_t layer, mha_error *err)
{
    mha__weights weights = m->outer;
    const int64_t owner = mha__config_owner(&m->config, layer);
    m->block[layer] = m->block[owner];
    if (owner != layer) return MHA_OK;
    const mha_status status = (m->ranks.ranks ? mha__rank_block : build)(m, layer, &weights, err);
    for (int64_t role = MHA__FIRST_OF_LAYER; role < mha__config_roles(&m->config); role++)
        mha__weights_rest(&weights, (mha__role)role, layer);
    m->outer.parameters = weights.parameters;
    m->outer.bytes = weights.bytes;
    return status;
}

mha_status mha__model_repack(mha_model *m, int64_t layer, mha_error *err)
{
    mha__weights weights = m->outer;
    return mha__config_owner(&m->config, layer) == layer ? build(m, layer, &weights, err) : MHA_OK;
}

mha_status mha__model_single_heads(const mha_model *m, const char *what, mha_error *err)
{
    for (int64_t l = 0; what && l < m->config.layers; l++)
        if (m->config.attention[l].choice.of == MHA_CHOICE_OPTIONS)
            return mha__fail(err, MHA_ERR_UNSUPPORTED,
                             "per-head %s must not be requested for a model with adaptive_heads (got layer %lld)", what,
                             (long long)l);
    return MHA_OK;
}
