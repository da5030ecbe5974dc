/* regroup_model.c - mha_regroup: creates an edited model whose heads share keys and values, layer by layer. */
#include "heads/edit/regroup_model.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"

static mha_status regroup_layer(mha__regroup *r, int64_t layer, mha_error *err)
{
    const mha_model *m = r->model;
    const mha__config *c = &m->config;
    const mha__regroup_job job = {.model = m,
                                  .o = &r->o,
                                  .moments = &r->moments,
                                  .layer = layer,
                                  .keys = mha__regroup_count(r->o.key_heads, c->layer_k_heads[layer]),
                                  .values = mha__regroup_count(r->o.value_heads, c->layer_v_heads[layer]),
                                  .weights = r->weights ? r->weights + layer * c->heads : NULL,
                                  .order = r->order + layer * c->heads};
    mha__projections from, to = {0};
    MHA__TRY(mha__projections_read(m, layer, &from, err));
    mha_status status = mha__regroup_layer(&job, &from, &to, err);
    if (status == MHA_OK) status = mha__projections_list(r->edit, layer, &to, mha__regroup_copies(r, layer), err);
    mha__projections_free(m->ctx, &from);
    mha__projections_free(m->ctx, &to);
    for (int64_t h = 0; h < c->layer_heads[layer]; h++)
        r->ordered |= job.order[h] != h;
    return status;
}

static mha_status make(mha__regroup *r, mha_error *err)
{
    const mha_model *m = r->model;
    const size_t cells = (size_t)(m->config.layers * m->config.heads);
    const bool values = r->o.method != MHA_REGROUP_MEAN && mha__regroup_shrinks(r, false);
    const bool keys = r->o.method == MHA_REGROUP_CLOSED && mha__regroup_shrinks(r, true);
    r->order = mha__calloc(m->ctx, cells, sizeof *r->order);
    if (!r->order) return mha__no_memory(err, cells * sizeof *r->order, "the order of heads");
    MHA__TRY(mha__regroup_weigh(r, err));
    if (keys || values) MHA__TRY(mha__moments_sum(m, r->o.fit, keys, values, &r->moments, err));
    for (int64_t l = 0; l < m->config.layers; l++)
        MHA__TRY(regroup_layer(r, l, err));
    MHA__TRY(mha__regroup_config(r, err));
    return r->o.ridge > 0 ? mha__edit_refit(r->edit, r->o.fit, r->o.ridge, err) : MHA_OK;
}

mha_status mha_regroup(const mha_model *model, const mha_regroup_options *options, mha_model_edit **out, mha_error *err)
{
    mha__regroup r = {.model = model};
    if (!out || !model) return mha__fail(err, MHA_ERR_ARG, "mha_regroup: %s must not be NULL", out ? "model" : "out");
    *out = NULL;
    MHA__TRY(mha__options_need(&r.o, sizeof r.o, options, "mha_regroup_options", err));
    MHA__TRY(mha__regroup_check(&r, err));
    MHA__TRY(mha__edit_create(model, &r.edit, err));
    const mha_status status = make(&r, err);
    mha__moments_free(model->ctx, &r.moments, model->config.layers);
    mha__free(model->ctx, r.order);
    mha__free(model->ctx, r.weights);
    return mha__edit_finish(r.edit, status, out);
}
