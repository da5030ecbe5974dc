/* router.c - the numbers of a router: memory, checks, and the list of tensors that is its outside. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/arena.h"
#include "model/route.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- memory ---- */

static void lay_out(mha__arena *arena, const mha_model *m, mha_router *r)
{
    const size_t layers = (size_t)m->config.layers, width = (size_t)m->config.hidden;
    r->units = mha__take(arena, layers, sizeof *r->units);
    r->weight = mha__take(arena, layers, sizeof *r->weight);
    r->bias = mha__take(arena, layers, sizeof *r->bias);
    r->list = mha__take(arena, 2 * layers, sizeof *r->list);
    r->name = mha__take(arena, 2 * layers, sizeof *r->name);
    for (int64_t layer = 0; layer < m->config.layers; layer++) {
        const size_t units = (size_t)mha__router_units(m, layer);
        double *weight = mha__take(arena, units, width * sizeof *weight);
        double *bias = mha__take(arena, units, sizeof *bias);
        float *data[2] = {mha__take(arena, units, width * sizeof(float)), mha__take(arena, units, sizeof(float))};
        if (!arena->base) continue;
        r->units[layer] = (int64_t)units;
        r->weight[layer] = weight;
        r->bias[layer] = bias;
        for (int64_t n = 2 * layer; n < 2 * layer + 2; n++) {
            snprintf(r->name[n], sizeof r->name[n], "router.%lld.%s", (long long)layer, n % 2 ? "bias" : "weight");
            r->list[n] = (mha_named_tensor){.name = r->name[n],
                                            .dtype = MHA_F32,
                                            .rank = n % 2 ? 1 : 2,
                                            .shape = {(int64_t)units, m->config.hidden},
                                            .data = data[n % 2]};
        }
    }
}

mha_status mha__router_allocate(const mha_model *model, mha_router **out, mha_error *err)
{
    mha__arena arena = {0};
    mha_router *r = mha__calloc(model->ctx, 1, sizeof *r);
    if (!r) return mha__no_memory(err, sizeof *r, "a router");
    *r = (mha_router){.ctx = model->ctx, .layers = model->config.layers, .hidden = model->config.hidden};
    lay_out(&arena, model, r);
    arena.base = r->memory = arena.overflow ? NULL : mha__calloc(model->ctx, 1, arena.used);
    if (!r->memory) {
        mha_router_free(r);
        return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "a router");
    }
    arena.used = 0;
    lay_out(&arena, model, r);
    *out = r;
    return MHA_OK;
}

void mha_router_free(mha_router *router)
{
    if (!router) return;
    mha__free(router->ctx, router->memory);
    mha__free(router->ctx, router);
}

void mha__router_widen(mha_router *r)
{
    for (int64_t layer = 0; layer < r->layers; layer++) {
        const float *weight = r->list[2 * layer].data, *bias = r->list[2 * layer + 1].data;
        for (int64_t i = 0; i < r->units[layer] * r->hidden; i++)
            r->weight[layer][i] = (double)weight[i];
        for (int64_t u = 0; u < r->units[layer]; u++)
            r->bias[layer][u] = (double)bias[u];
    }
}

const mha_named_tensor *mha_router_tensors(const mha_router *router, int64_t *count)
{
    if (count) *count = router ? 2 * router->layers : 0;
    return router ? router->list : NULL;
}

/* ---- numbers of the caller's ---- */

static int64_t elements_of(const mha_named_tensor *t)
{
    return t->rank == 1 ? t->shape[0] : t->shape[0] * t->shape[1];
}

static const mha_named_tensor *find(const mha_named_tensor *list, int64_t count, const char *name)
{
    for (int64_t n = 0; n < count; n++)
        if (list[n].name && strcmp(list[n].name, name) == 0) return &list[n];
    return NULL;
}

static mha_status check_shape(const mha_named_tensor *given, const mha_named_tensor *own, mha_error *err)
{
    bool same = given->rank == own->rank && given->dtype == MHA_F32 && given->data;
    for (int d = 0; same && d < own->rank; d++)
        same = given->shape[d] == own->shape[d];
    if (same) return MHA_OK;
    if (own->rank == 1)
        return mha__fail(err, MHA_ERR_ARG, "router: %s is not f32 [%lld]", own->name, (long long)own->shape[0]);
    return mha__fail(err, MHA_ERR_ARG, "router: %s is not f32 [%lld, %lld]", own->name, (long long)own->shape[0],
                     (long long)own->shape[1]);
}

static mha_status fill(mha_router *r, const mha_named_tensor *tensors, int64_t count, mha_error *err)
{
    for (int64_t n = 0; n < 2 * r->layers; n++) {
        const mha_named_tensor *own = &r->list[n], *given = find(tensors, count, own->name);
        if (!given) return mha__fail(err, MHA_ERR_ARG, "router: there is no %s", own->name);
        MHA__TRY(check_shape(given, own, err));
        const float *data = given->data;
        for (int64_t i = 0; i < elements_of(own); i++)
            if (!isfinite(data[i]))
                return mha__fail(err, MHA_ERR_ARG, "router: number %lld of %s is %g", (long long)i, own->name,
                                 (double)data[i]);
        memcpy(own->data, data, (size_t)elements_of(own) * sizeof *data);
    }
    for (int64_t n = 0; n < count; n++) {
        const char *name = tensors[n].name ? tensors[n].name : "";
        if (!find(r->list, 2 * r->layers, name))
            return mha__fail(err, MHA_ERR_ARG, "router: \"%s\" is no tensor of a router of %lld layers",
                             mha__quote(&(mha__quoted){0}, name, strlen(name)), (long long)r->layers);
    }
    mha__router_widen(r);
    return MHA_OK;
}

mha_status mha_router_create(const mha_model *model, const mha_named_tensor *tensors, int64_t count, mha_router **out,
                             mha_error *err)
{
    mha_router *r = NULL;
    if (!model || !out || count < 0 || (count && !tensors))
        return mha__fail(err, MHA_ERR_ARG, "mha_router_create: model, tensors or out is NULL, or count is %lld",
                         (long long)count);
    *out = NULL;
    MHA__TRY(mha__router_allocate(model, &r, err));
    const mha_status status = fill(r, tensors, count, err);
    if (status == MHA_OK)
        *out = r;
    else
        mha_router_free(r);
    return status;
}
