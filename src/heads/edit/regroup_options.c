/* regroup_options.c - the methods of mha_regroup, checks of its options, and the weights of heads. */
#include "base/ctx.h"
#include "base/error.h"
#include "heads/edit/regroup_model.h"
#include <math.h>

static const double DEFAULT_RIDGE = 0.3;

/* ---- methods ---- */

static const struct {
    const char *key, *help;
} methods[] = {
#define MHA__X(name, key, text) [name] = {key, text},
    MHA_REGROUP_METHOD_MAP(MHA__X)
#undef MHA__X
};

static bool is_method(mha_regroup_method method)
{
    return (int)method >= 0 && method < MHA_REGROUP_METHODS;
}

const char *mha_regroup_method_key(mha_regroup_method method)
{
    return is_method(method) ? methods[method].key : NULL;
}

const char *mha_regroup_method_help(mha_regroup_method method)
{
    return is_method(method) ? methods[method].help : NULL;
}

/* ---- checks ---- */

int64_t mha__regroup_count(int64_t asked, int32_t had)
{
    return asked ? asked : had;
}

static bool has_rotation(const mha_model *m)
{
    return m->config.rope.head_dim != 0;
}

static bool has_head_norms(const mha_model *m)
{
    bool normed = false;
    for (int64_t l = 0; l < m->config.layers; l++)
        normed |= m->config.attention[l].normed;
    return normed;
}

bool mha__regroup_shrinks(const mha__regroup *r, bool keys)
{
    const mha__config *c = &r->model->config;
    for (int64_t l = 0; l < c->layers; l++)
        if (keys ? mha__regroup_count(r->o.key_heads, c->layer_k_heads[l]) < c->layer_k_heads[l]
                 : mha__regroup_count(r->o.value_heads, c->layer_v_heads[l]) < c->layer_v_heads[l])
            return true;
    return false;
}

static mha_status check_count(const mha_model *m, const char *name, int64_t count, const int32_t *had, mha_error *err)
{
    for (int64_t l = 0; count && l < m->config.layers; l++) {
        if (count < 0 || m->config.layer_heads[l] % count)
            return mha__fail(err, MHA_ERR_ARG, "%s must be a divisor of %d, the head count of layer %lld (got %lld)",
                             name, (int)m->config.layer_heads[l], (long long)l, (long long)count);
        if (count > had[l])
            return mha__fail(err, MHA_ERR_ARG,
                             "%s must be at most %d, the source's head count in layer %lld (got "
                             "%lld)",
                             name, (int)had[l], (long long)l, (long long)count);
    }
    return MHA_OK;
}

mha_regroup_method mha_regroup_default(const mha_model *model, int64_t key_heads)
{
    const mha__regroup r = {.model = model, .o.key_heads = key_heads};
    const bool turned = model && (has_rotation(model) || has_head_norms(model));
    return turned && mha__regroup_shrinks(&r, true) ? MHA_REGROUP_VALUES : MHA_REGROUP_CLOSED;
}

/* Rejects the closed form for the keys of models that rotate or normalize keys, because the fitted maps do not commute
 * with rotation and normalization. */
static mha_status check_keys(const mha__regroup *r, mha_error *err)
{
    const mha_model *m = r->model;
    if (r->o.method != MHA_REGROUP_CLOSED || mha_regroup_default(m, r->o.key_heads) == MHA_REGROUP_CLOSED)
        return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "mha_regroup_options: method must not be \"closed\" for the keys of %s, which are %s after the "
                     "projection; use \"values\", or reduce only value_heads",
                     m->info.family, has_head_norms(m) ? "normalized and rotated" : "rotated");
}

static mha_status check_shapes(const mha__regroup *r, mha_error *err)
{
    const mha__config *c = &r->model->config;
    if (c->family->one_side || c->family->tower)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "key and value heads of %s must not be regrouped, since it %s",
                         r->model->info.family,
                         c->family->one_side ? "is an encoder-decoder" : "is a part of a model of text and images");
    if (r->o.compatible) MHA__TRY(mha__edit_check_compatible(c->own_key, err));
    MHA__TRY(mha__edit_check_norms(r->model, err));
    if (mha__weights_per_head(c, MHA__QKV))
        return mha__fail(
            err, MHA_ERR_UNSUPPORTED,
            "key and value heads of %s must not be regrouped, since its tensors interleave q, k and v by head",
            r->model->info.family);
    if (c->family->parts[MHA__SINKS].kind)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "key and value heads of %s must not be regrouped, since each query head has a sink",
                         r->model->info.family);
    if (c->distances || c->family->latent)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "key and value heads of %s must not be regrouped, since each head has %s of its own",
                         r->model->info.family, c->distances ? "relative positions" : "keys and values");
    for (int64_t l = 0; l < c->layers; l++)
        MHA__TRY(mha__edit_check_selection(r->model, l, err));
    for (int64_t l = 0; l < c->layers && r->o.compatible; l++)
        if (c->layer_heads[l] != c->heads)
            return mha__fail(
                err, MHA_ERR_UNSUPPORTED,
                "compatible must be 0 unless all layers have %lld heads, as in transformers (got %d in layer %lld)",
                (long long)c->heads, (int)c->layer_heads[l], (long long)l);
    return MHA_OK;
}

static mha_status check_options(const mha_regroup_options *o, mha_error *err)
{
    if (!is_method(o->method))
        return mha__fail(err, MHA_ERR_ARG, "mha_regroup_options: method must be a value of mha_regroup_method (got %d)",
                         (int)o->method);
    if (!o->key_heads && !o->value_heads)
        return mha__fail(err, MHA_ERR_ARG, "mha_regroup_options: key_heads or value_heads must be above 0 (got 0, 0)");
    if (isfinite(o->ridge)) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "mha_regroup_options: ridge must be finite (got %g)", o->ridge);
}

/* Sets the default ridge, and checks that a fit has texts. */
static mha_status check_fit(mha__regroup *r, mha_error *err)
{
    mha_regroup_options *o = &r->o;
    const bool mean = o->method == MHA_REGROUP_MEAN;
    if (o->ridge == 0) o->ridge = mean ? -1 : DEFAULT_RIDGE;
    if (o->fit) return mha__edit_check_weights(r->model, err);
    if (mean && o->ridge < 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "mha_regroup_options: fit must not be NULL for \"%s\"%s", methods[o->method].key,
                     mean ? " with a refit" : "");
}

mha_status mha__regroup_check(mha__regroup *r, mha_error *err)
{
    const mha__config *c = &r->model->config;
    MHA__TRY(check_options(&r->o, err));
    MHA__TRY(check_count(r->model, "key_heads", r->o.key_heads, c->layer_k_heads, err));
    MHA__TRY(check_count(r->model, "value_heads", r->o.value_heads, c->layer_v_heads, err));
    MHA__TRY(check_keys(r, err));
    MHA__TRY(check_shapes(r, err));
    return check_fit(r, err);
}

/* ---- weights of heads ---- */

/* Computes the weights of a layer's heads: each score divided by the largest score of the layer, but at least 0.01. If
 * no score is above 0, all weights are equal. */
static mha_status weigh_layer(const mha__regroup *r, int64_t layer, mha_error *err)
{
    static const double min = 0.01;
    const double *scores = r->o.scores + layer * r->model->config.heads;
    double *weights = r->weights + layer * r->model->config.heads, max = 0;
    const int64_t heads = r->model->heads_per_layer[layer];
    MHA__TRY(mha__edit_check_scores(r->model, scores, layer, err));
    for (int64_t h = 0; h < heads; h++)
        max = fmax(max, scores[h]);
    for (int64_t h = 0; h < heads; h++)
        weights[h] = max > 0 ? fmax(scores[h] / max, min) : 1;
    return MHA_OK;
}

mha_status mha__regroup_weigh(mha__regroup *r, mha_error *err)
{
    const mha__config *c = &r->model->config;
    const size_t cells = (size_t)(c->layers * c->heads);
    if (!r->o.scores) return MHA_OK;
    r->weights = mha__calloc(r->model->ctx, cells, sizeof *r->weights);
    if (!r->weights) return mha__no_memory(err, cells * sizeof *r->weights, "the weights of heads");
    for (int64_t l = 0; l < c->layers; l++)
        MHA__TRY(weigh_layer(r, l, err));
    return MHA_OK;
}
