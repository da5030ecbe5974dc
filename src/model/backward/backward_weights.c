/* backward_weights.c - packs the dense weights of all layers once for repeated backward passes. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/linear/linear.h"
#include "model/backward/model_grads.h"
#include "model/weights/tensor_order.h"

static bool is_dense(mha__role role)
{
    return role == MHA__QUERY || role == MHA__KEY || role == MHA__VALUE || role == MHA__QKV || role == MHA__Q_LATENT ||
           role == MHA__KV_LATENT || role == MHA__KV_EXPAND || role == MHA__POS_KEY || role == MHA__POS_QUERY ||
           role == MHA__ATTN_OUT || role == MHA__GATE || role == MHA__UP || role == MHA__DOWN ||
           mha__of_experts(role) || (role >= MHA__SHARED_GATE && role <= MHA__ROUTER) ||
           (role >= MHA__CROSS_QUERY && role <= MHA__CROSS_OUT);
}

/* The part of a tensor that contains the weight of a role. */
typedef struct weight_part {
    mha__role stored;
    bool transposed;
    int64_t rows, columns, first; /* elements [first, first + rows * columns) in the order of the model */
} weight_part;

static weight_part whole(const mha_model_grads *g, mha__role role, int64_t layer, const mha_tensor *t)
{
    const bool transposed = mha__part_transposed(mha__part_of(&g->model->config, role));
    if (!t) return (weight_part){.rows = 0};
    const int64_t rows = t->shape[transposed ? 1 : 0], stored = t->shape[transposed ? 0 : 1];
    const int64_t ours = mha__order_elements(&g->model->config, role, layer, false); /* 0 = as stored */
    return (weight_part){role, transposed, rows, ours ? ours / rows : stored, 0};
}

/* Finds the weight of a role; rows is 0 if the layer has none. */
static weight_part find(const mha_model_grads *g, mha__role role, int64_t layer)
{
    const mha__config *c = &g->model->config;
    const mha__role part = mha__part_role(role);
    const bool halves = part == MHA__GATE || part == MHA__UP;
    const int64_t I = c->intermediate, count = I * c->hidden, e = role / MHA__ROLES;
    if (halves && mha__weights_tensor(&g->model->outer, MHA__GATE_UP, layer, false))
        return (weight_part){MHA__GATE_UP, false, I, c->hidden, part == MHA__UP ? count : 0};
    if (!mha__of_experts(role) || !mha__part_of(c, MHA__EXPERTS_DOWN)->kind)
        return whole(g, role, layer, mha__weights_tensor(&g->model->outer, role, layer, false));
    if (!c->sparse[layer]) return (weight_part){.rows = 0};
    if (part == MHA__EXPERT_DOWN) return (weight_part){MHA__EXPERTS_DOWN, true, c->hidden, I, e * count};
    return (weight_part){MHA__EXPERTS_GATE_UP, true, I, c->hidden, (2 * e + (part == MHA__EXPERT_UP)) * count};
}

/* The tensors of a layer that contain the matrices of all experts. They stay converted until the whole layer is packed,
 * because every expert reads them. */
enum { STACKED = 2 };
typedef struct stacked_tensors {
    const float *weight[STACKED]; /* MHA__EXPERTS_DOWN, MHA__EXPERTS_GATE_UP; NULL before the first expert */
} stacked_tensors;

static bool is_stacked(mha__role stored)
{
    return stored == MHA__EXPERTS_DOWN || stored == MHA__EXPERTS_GATE_UP;
}

static mha_status pack(mha_model_grads *g, mha__role role, int64_t layer, mha__weights *weights,
                       stacked_tensors *stacked, mha_error *err)
{
    const weight_part w = find(g, role, layer);
    const void *kept = weights->converted;
    const float *once = NULL, **weight = is_stacked(w.stored) ? &stacked->weight[w.stored != MHA__EXPERTS_DOWN] : &once;
    if (!w.rows) return MHA_OK;
    if (!*weight) MHA__TRY(mha__weights_again(weights, w.stored, layer, weight, err));
    MHA__TRY(mha__linear_back_create(g->ctx, mha__grads_dtype(g, role), w.columns, w.rows, *weight + w.first,
                                     w.transposed, &g->packed[layer * mha__config_roles(&g->model->config) + role],
                                     err));
    if (is_stacked(w.stored)) return MHA_OK;
    mha__weights_rest(weights, w.stored, layer);
    mha__weights_release_after(weights, kept);
    return MHA_OK;
}

static mha_status pack_layer(mha_model_grads *g, int64_t layer, mha_error *err)
{
    mha__weights weights = g->model->outer; /* a copy that has its own list of converted tensors */
    weights.converted = NULL;
    stacked_tensors stacked = {0};
    mha_status status = MHA_OK;
    for (mha__role role = 0; status == MHA_OK && role < mha__config_roles(&g->model->config); role++)
        if (is_dense(role)) status = pack(g, role, layer, &weights, &stacked, err);
    for (int n = 0; n < STACKED; n++)
        if (stacked.weight[n]) mha__weights_rest(&weights, n ? MHA__EXPERTS_GATE_UP : MHA__EXPERTS_DOWN, layer);
    mha__weights_release(&weights);
    return status;
}

mha_status mha__grads_pack(mha_model_grads *g, mha_error *err)
{
    const mha__config *c = &g->model->config;
    const size_t count = (size_t)(c->layers * mha__config_roles(c));
    g->packed = mha__calloc(g->ctx, count, sizeof(mha_linear *));
    if (!g->packed) return mha__no_memory(err, count * sizeof(mha_linear *), "the weights of the backward pass");
    for (int64_t layer = 0; layer < c->layers; layer++)
        if (mha__config_owner(c, layer) == layer) MHA__TRY(pack_layer(g, layer, err));
    return MHA_OK;
}

void mha__grads_unpack(mha_model_grads *g)
{
    for (int64_t n = 0; g->packed && n < g->model->config.layers * mha__config_roles(&g->model->config); n++)
        mha_linear_free(g->packed[n]);
    mha__free(g->ctx, g->packed);
}
