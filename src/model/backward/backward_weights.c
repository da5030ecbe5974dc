/* backward_weights.c - packs the dense weights of all layers once for repeated backward passes. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/linear/linear.h"
#include "model/backward/model_grads.h"

static bool is_dense(mha__role role)
{
    return role == MHA__QUERY || role == MHA__KEY || role == MHA__VALUE || role == MHA__QKV || role == MHA__ATTN_OUT ||
           role == MHA__GATE || role == MHA__UP || role == MHA__DOWN || mha__of_experts(role) ||
           (role >= MHA__SHARED_GATE && role <= MHA__ROUTER);
}

/* The part of a tensor that contains the weight of a role. */
typedef struct weight_rows {
    mha__role stored;
    int64_t rows, columns, first; /* elements [first, first + rows * columns) */
} weight_rows;

static weight_rows rows_of(const mha_model_grads *g, mha__role role, const mha_tensor *both, const mha_tensor *tensor)
{
    const bool transposed = mha__part_of(&g->model->config, role)->kind == MHA__PART_CONV1D;
    if (!both || (role != MHA__GATE && role != MHA__UP))
        return (weight_rows){role, tensor->shape[transposed ? 1 : 0], tensor->shape[transposed ? 0 : 1], 0};
    const int64_t rows = both->shape[0] / 2, columns = both->shape[1];
    return (weight_rows){MHA__GATE_UP, rows, columns, role == MHA__UP ? rows * columns : 0};
}

static mha_status pack(mha_model_grads *g, mha__role role, int64_t layer, mha__weights *weights, mha_error *err)
{
    const mha_tensor *both = mha__weights_tensor(&g->model->outer, MHA__GATE_UP, layer, false);
    const mha_tensor *tensor = mha__weights_tensor(&g->model->outer, role, layer, false);
    const bool transposed = mha__part_of(&g->model->config, role)->kind == MHA__PART_CONV1D;
    const float *weight = NULL;
    if (!tensor && !(both && (role == MHA__GATE || role == MHA__UP))) return MHA_OK;
    const weight_rows w = rows_of(g, role, both, tensor);
    MHA__TRY(mha__weights_again(weights, w.stored, layer, &weight, err));
    MHA__TRY(mha__linear_back_create(g->ctx, mha__grads_dtype(g, role), w.columns, w.rows, weight + w.first, transposed,
                                     &g->packed[layer * mha__config_roles(&g->model->config) + role], err));
    mha__weights_rest(weights, w.stored, layer);
    return MHA_OK;
}

mha_status mha__grads_pack(mha_model_grads *g, mha_error *err)
{
    const size_t count = (size_t)(g->model->config.layers * mha__config_roles(&g->model->config));
    g->packed = mha__calloc(g->ctx, count, sizeof(mha_linear *));
    if (!g->packed) return mha__no_memory(err, count * sizeof(mha_linear *), "the weights of the backward pass");
    for (int64_t n = 0; n < (int64_t)count; n++) {
        mha__weights weights = g->model->outer; /* a copy that has its own list of converted tensors */
        weights.converted = NULL;
        const mha__role role = (mha__role)(n % mha__config_roles(&g->model->config));
        const int64_t layer = n / mha__config_roles(&g->model->config);
        const bool packs = is_dense(role) && mha__config_owner(&g->model->config, layer) == layer;
        const mha_status status = packs ? pack(g, role, layer, &weights, err) : MHA_OK;
        mha__weights_release(&weights);
        if (status != MHA_OK) return status;
    }
    return MHA_OK;
}

void mha__grads_unpack(mha_model_grads *g)
{
    for (int64_t n = 0; g->packed && n < g->model->config.layers * mha__config_roles(&g->model->config); n++)
        mha_linear_free(g->packed[n]);
    mha__free(g->ctx, g->packed);
}
