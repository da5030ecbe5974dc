/* regroup_moments.c - products of queries, keys and values of all layers, summed over the texts in one pass. */
#include "base/ctx.h"
#include "base/error.h"
#include "heads/data/head_data.h"
#include "heads/edit/regroup_model.h"
#include "math/linalg.h"

typedef struct summing {
    const mha_model *model;
    const mha__moments *m;
    mha_status status;
    mha_error failure; /* the error that set `status`; stopping the pass would overwrite it */
} summing;

static mha_status add_keys(summing *s, const mha_model_activations *a)
{
    const int64_t D = a->head_dim, width = a->kv_heads * D, l = a->layer;
    const mha__columns keys = {a->k, a->stride, 1, width};
    for (int64_t h = 0; h < a->heads; h++) {
        const mha__columns q = {a->q + h * D, a->stride, 1, D};
        MHA__TRY(mha__gram(s->model->ctx, a->rows, &q, s->m->queries[l] + h * D * D, &s->failure));
    }
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t n = 0; n < width; n++)
            s->m->mean[l][n] += (double)a->k[i * a->stride + n];
    return mha__gram(s->model->ctx, a->rows, &keys, s->m->keys[l], &s->failure);
}

static int on_activations(void *user, const mha_model_activations *a)
{
    summing *s = user;
    const mha__columns values = {a->v, a->stride, 1, a->kv_heads * a->head_dim};
    if (s->m->keys) s->status = add_keys(s, a);
    if (s->m->values && s->status == MHA_OK)
        s->status = mha__gram(s->model->ctx, a->rows, &values, s->m->values[a->layer], &s->failure);
    return s->status != MHA_OK;
}

/* Allocates [layers] arrays, each of numbers[layer] zeros. */
static mha_status make(mha_ctx *ctx, int64_t layers, const int64_t *numbers, double ***out, mha_error *err)
{
    *out = mha__calloc(ctx, (size_t)layers, sizeof **out);
    if (!*out) return mha__no_memory(err, (size_t)layers * sizeof **out, "the products of a model");
    for (int64_t l = 0; l < layers; l++) {
        (*out)[l] = mha__calloc(ctx, (size_t)numbers[l], sizeof ***out);
        if (!(*out)[l]) return mha__no_memory(err, (size_t)numbers[l] * sizeof ***out, "the products of a layer");
    }
    return MHA_OK;
}

static mha_status make_all(const mha_model *model, bool keys, bool values, mha__moments *m, mha_error *err)
{
    const mha__config *c = &model->config;
    int64_t small[MHA__LAYERS], square[MHA__LAYERS], line[MHA__LAYERS];
    for (int64_t l = 0; l < c->layers; l++) {
        line[l] = c->layer_kv_heads[l] * c->head_dim;
        square[l] = line[l] * line[l];
        small[l] = c->layer_heads[l] * c->head_dim * c->head_dim;
    }
    if (values) MHA__TRY(make(model->ctx, c->layers, square, &m->values, err));
    if (!keys) return MHA_OK;
    MHA__TRY(make(model->ctx, c->layers, small, &m->queries, err));
    MHA__TRY(make(model->ctx, c->layers, square, &m->keys, err));
    return make(model->ctx, c->layers, line, &m->mean, err);
}

static mha_status run(const mha_model *model, const mha_head_data *data, const mha__moments *m, mha_error *err)
{
    const int64_t batches = mha__head_data_batches(data);
    summing s = {.model = model, .m = m};
    const mha_model_output output = {.size = sizeof output, .on_activations = on_activations, .user = &s};
    for (int64_t b = 0; b < batches; b++) {
        mha_model_input input;
        const int64_t *texts;
        MHA__TRY(mha__progress(model->ctx, "regroup", b, batches, err));
        MHA__TRY(mha__head_data_batch(data, b, &input, &texts, err));
        const mha_status status = mha_model_forward(model, &input, &output, err);
        if (s.status != MHA_OK && err) *err = s.failure;
        if (status != MHA_OK) return s.status != MHA_OK ? s.status : status;
    }
    return mha__progress(model->ctx, "regroup", batches, batches, err);
}

mha_status mha__moments_sum(const mha_model *model, const mha_head_data *data, bool keys, bool values,
                            mha__moments *out, mha_error *err)
{
    *out = (mha__moments){.tokens = mha_head_data_tokens(data)};
    mha_status status = make_all(model, keys, values, out, err);
    if (status == MHA_OK) status = run(model, data, out, err);
    if (status != MHA_OK) mha__moments_free(model->ctx, out, model->config.layers);
    return status;
}

static void let_go(mha_ctx *ctx, double **list, int64_t layers)
{
    for (int64_t l = 0; list && l < layers; l++)
        mha__free(ctx, list[l]);
    mha__free(ctx, list);
}

void mha__moments_free(mha_ctx *ctx, mha__moments *m, int64_t layers)
{
    let_go(ctx, m->queries, layers);
    let_go(ctx, m->keys, layers);
    let_go(ctx, m->values, layers);
    let_go(ctx, m->mean, layers);
    *m = (mha__moments){0};
}
