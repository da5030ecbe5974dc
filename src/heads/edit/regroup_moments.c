/* regroup_moments.c - sums the second moments of the queries, keys and values of all layers over the texts, in one
 * pass. The products of one text are computed in double, and sums over texts are integers. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "heads/data/head_data.h"
#include "heads/data/measure_steps.h"
#include "heads/edit/regroup_model.h"
#include "math/fixed_sum.h"
#include "math/linalg.h"

/* The sums of a layer. Of symmetric products, only the lower triangles are stored. NULL = not requested. */
typedef struct layer_sums {
    mha__fixed *queries, *keys, *values, *mean;
} layer_sums;

typedef struct summing {
    const mha_model *model;
    const mha_head_data *data;
    mha_model_input input; /* the current batch */
    mha__fixed *all;       /* [count] */
    int64_t count;
    layer_sums layer[MHA__LAYERS];
    double *text; /* [widest layer] zeros; scratch for the column sums of one text */
    mha_status status;
    mha_error failure; /* the error that set `status`; stopping the pass would overwrite it */
} summing;

/* ---- products of the texts of a batch ---- */

/* Adds X^T X for each of `heads` matrices X, whose columns are the next `width` columns of `data`. */
static mha_status add_products(summing *s, const mha_model_activations *a, const float *data, int64_t heads,
                               int64_t width, mha__fixed *to)
{
    for (int64_t h = 0; h < heads; h++) {
        const mha__columns x = {data + h * width, a->stride, 1, width};
        MHA__TRY(mha__gram_runs(s->model->ctx, s->input.starts, s->input.batch, &x, to + h * mha__triangle(width),
                                &s->failure));
    }
    return MHA_OK;
}

/* Adds the column sums of the keys; each text is summed in double. */
static void add_means(const summing *s, const mha_model_activations *a, mha__fixed *to)
{
    const int64_t width = a->kv_heads * a->head_dim;
    for (int64_t b = 0; b < s->input.batch; b++) {
        for (int64_t i = s->input.starts[b]; i < s->input.starts[b + 1]; i++)
            for (int64_t n = 0; n < width; n++)
                s->text[n] += (double)a->k[i * a->stride + n];
        mha__fixed_add_array(to, s->text, width);
    }
}

static mha_status add_batch(summing *s, const mha_model_activations *a)
{
    const layer_sums *to = &s->layer[a->layer];
    const int64_t width = a->kv_heads * a->head_dim;
    if (to->keys) {
        MHA__TRY(add_products(s, a, a->q, a->heads, a->head_dim, to->queries));
        MHA__TRY(add_products(s, a, a->k, 1, width, to->keys));
        add_means(s, a, to->mean);
    }
    return to->values ? add_products(s, a, a->v, 1, width, to->values) : MHA_OK;
}

static int on_activations(void *user, const mha_model_activations *a)
{
    summing *s = user;
    s->status = add_batch(s, a);
    return s->status != MHA_OK;
}

/* ---- sums over all texts ---- */

static mha_status sum_batch(void *user, int64_t batch, mha_error *err)
{
    summing *s = user;
    const int64_t *texts;
    const mha_model_output output = {.size = sizeof output, .on_activations = on_activations, .user = s};
    MHA__TRY(mha__head_data_batch(s->data, batch, &s->input, &texts, err));
    const mha_status status = mha_model_forward(s->model, &s->input, &output, err);
    if (s->status != MHA_OK && err) *err = s->failure;
    return s->status != MHA_OK ? s->status : status;
}

/* Returns the next `count` elements of s->all. If s->all is NULL, only counts them. */
static mha__fixed *take(summing *s, int64_t count)
{
    mha__fixed *at = s->all ? s->all + s->count : NULL;
    s->count += count;
    return at;
}

static void lay_out(summing *s, bool keys, bool values)
{
    const mha__config *c = &s->model->config;
    s->count = 0;
    for (int64_t l = 0; l < c->layers; l++) {
        const int64_t width = c->layer_kv_heads[l] * c->head_dim, square = mha__triangle(width);
        if (values) s->layer[l].values = take(s, square);
        if (!keys) continue;
        s->layer[l].queries = take(s, c->layer_heads[l] * mha__triangle(c->head_dim));
        s->layer[l].keys = take(s, square);
        s->layer[l].mean = take(s, width);
    }
}

static mha_status sum_all(summing *s, bool keys, bool values, mha_error *err)
{
    const mha__config *c = &s->model->config;
    int64_t widest = 0;
    for (int64_t l = 0; l < c->layers; l++)
        widest = mha__max64(widest, c->layer_kv_heads[l] * c->head_dim);
    lay_out(s, keys, values);
    s->all = mha__calloc(s->model->ctx, (size_t)s->count, sizeof *s->all);
    s->text = mha__calloc(s->model->ctx, (size_t)widest, sizeof *s->text);
    if (!s->all || !s->text)
        return mha__no_memory(err, (size_t)s->count * sizeof *s->all, "the second moments of a model");
    lay_out(s, keys, values);
    const mha__measure measure = {.model = s->model,
                                  .data = s->data,
                                  .title = "regroup",
                                  .options = !keys    ? "second moments of values"
                                             : values ? "second moments of queries, keys and values"
                                                      : "second moments of queries and keys",
                                  .steps = mha__head_data_batches(s->data),
                                  .values = (int64_t *)s->all,
                                  .count = s->count * MHA__FIXED_WORDS,
                                  .user = s,
                                  .run = sum_batch};
    return mha__measure_run(&measure, err);
}

/* ---- conversion of the sums to double ---- */

/* Allocates [layers] arrays, each of numbers[layer] zeros. */
static mha_status make(mha_ctx *ctx, int64_t layers, const int64_t *numbers, double ***out, mha_error *err)
{
    *out = mha__calloc(ctx, (size_t)layers, sizeof **out);
    if (!*out) return mha__no_memory(err, (size_t)layers * sizeof **out, "the second moments of a model");
    for (int64_t l = 0; l < layers; l++) {
        (*out)[l] = mha__calloc(ctx, (size_t)numbers[l], sizeof ***out);
        if (!(*out)[l]) return mha__no_memory(err, (size_t)numbers[l] * sizeof ***out, "the second moments of a layer");
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

static void read_all(const summing *s, mha__moments *m)
{
    const mha__config *c = &s->model->config;
    for (int64_t l = 0; l < c->layers; l++) {
        const layer_sums *from = &s->layer[l];
        const int64_t width = c->layer_kv_heads[l] * c->head_dim, D = c->head_dim;
        if (m->values) mha__fixed_read_triangle(from->values, width, m->values[l]);
        if (!m->keys) continue;
        for (int64_t h = 0; h < c->layer_heads[l]; h++)
            mha__fixed_read_triangle(from->queries + h * mha__triangle(D), D, m->queries[l] + h * D * D);
        mha__fixed_read_triangle(from->keys, width, m->keys[l]);
        mha__fixed_read_array(from->mean, width, m->mean[l]);
    }
}

mha_status mha__moments_sum(const mha_model *model, const mha_head_data *data, bool keys, bool values,
                            mha__moments *out, mha_error *err)
{
    summing s = {.model = model, .data = data};
    *out = (mha__moments){.tokens = mha_head_data_tokens(data)};
    MHA__TRY(mha__head_data_texts(data, err));
    MHA__TRY(mha__head_data_matches(model, data, err));
    mha_status status = sum_all(&s, keys, values, err);
    if (status == MHA_OK) status = make_all(model, keys, values, out, err);
    if (status == MHA_OK) read_all(&s, out);
    mha__free(model->ctx, s.all);
    mha__free(model->ctx, s.text);
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
