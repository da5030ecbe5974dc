/* config_experts.c - reads which layers have experts. */
#include "base/error.h"
#include "model/config/config_layers.h"
#include "model/config/family.h"

#define DENSE "mlp_only_layers"

/* Marks the layers that mlp_only_layers lists. Numbers of layers that do not exist have no effect, as in
 * transformers. */
static mha_status read_dense(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    const mha__json *list = NULL;
    MHA__TRY(mha__json_array(root, DENSE, MHA__OPTIONAL, &list, err));
    for (mha__json_step i = {0}; mha__json_each(list, &i);) {
        const int64_t layer = mha__json_as_int(i.value);
        if (!mha__json_is(i.value, MHA__JSON_INTEGER))
            return mha__json_refuse_item(root, DENSE, i.index, "the number of a layer", err);
        if (layer >= 0 && layer < c->layers) c->sparse[layer] = false;
    }
    return MHA_OK;
}

/* Checks the groups of experts. A group is scored by its two best experts. */
static mha_status check_groups(const mha__json_obj *root, const mha__config *c, mha_error *err)
{
    if (!c->family->sigmoid_router) return MHA_OK;
    if (c->experts % c->expert_groups || c->experts / c->expert_groups < 2)
        return mha__fail(err, MHA_ERR_FORMAT,
                         "%s: n_group must divide the number of experts, %lld, into groups of at least 2 (got %lld)",
                         root->file, (long long)c->experts, (long long)c->expert_groups);
    if (c->kept_groups > c->expert_groups)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: topk_group must be at most n_group = %lld (got %lld)", root->file,
                         (long long)c->expert_groups, (long long)c->kept_groups);
    const int64_t max = c->experts / c->expert_groups * c->kept_groups;
    if (c->experts_chosen <= max) return MHA_OK;
    return mha__fail(
        err, MHA_ERR_FORMAT,
        "%s: num_experts_per_tok must be at most the number of experts in topk_group groups, %lld (got %lld)",
        root->file, (long long)max, (long long)c->experts_chosen);
}

mha_status mha__config_experts(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    if (!c->experts) return MHA_OK;
    if (c->experts_chosen > c->experts)
        return mha__fail(err, MHA_ERR_FORMAT,
                         "%s: num_experts_per_tok must be at most the number of experts, %lld (got %lld)", root->file,
                         (long long)c->experts, (long long)c->experts_chosen);
    c->experts_normed |= c->family->experts_normed;
    MHA__TRY(check_groups(root, c, err));
    for (int64_t layer = 0; layer < c->layers; layer++)
        c->sparse[layer] = layer >= c->dense_layers && (!c->sparse_step || (layer + 1) % c->sparse_step == 0);
    return read_dense(root, c, err);
}
