/* mean_fill.c - adds the mean output of removed heads to the output bias. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "heads/data/head_data.h"
#include "heads/edit/prune_model.h"

/* ---- means ---- */

typedef struct summing {
    const mha_model *model;
    double *sums; /* [layers, H, head_dim] */
} summing;

/* Sums each element over the rows of all batches in order, so that batches do not change the result. */
static int on_activations(void *user, const mha_model_activations *a)
{
    const summing *s = user;
    const int64_t width = a->heads * a->head_dim;
    double *sum = s->sums + a->layer * s->model->config.heads * a->head_dim;
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t n = 0; n < width; n++)
            sum[n] += (double)a->context[i * width + n];
    return 0;
}

static mha_status sum_all(const mha_model *model, const mha_head_data *data, summing *s, mha_error *err)
{
    const int64_t batches = mha__head_data_batches(data);
    const mha_model_output output = {.size = sizeof output, .on_activations = on_activations, .user = s};
    for (int64_t b = 0; b < batches; b++) {
        mha_model_input input;
        const int64_t *texts;
        MHA__TRY(mha__progress(model->ctx, "fill", b, batches, err));
        MHA__TRY(mha__head_data_batch(data, b, &input, &texts, err));
        MHA__TRY(mha_model_forward(model, &input, &output, err));
    }
    return mha__progress(model->ctx, "fill", batches, batches, err);
}

mha_status mha__mean_contexts(const mha_model *model, const mha_head_data *data, double **means, mha_error *err)
{
    const int64_t cells = model->config.layers * model->config.heads * model->config.head_dim;
    summing s = {model, mha__calloc(model->ctx, (size_t)cells, sizeof *s.sums)};
    *means = NULL;
    if (!s.sums) return mha__no_memory(err, (size_t)cells * sizeof *s.sums, "the means of heads");
    const mha_status status = sum_all(model, data, &s, err);
    for (int64_t n = 0; n < cells; n++)
        s.sums[n] /= (double)mha_head_data_tokens(data);
    if (status == MHA_OK)
        *means = s.sums;
    else
        mha__free(model->ctx, s.sums);
    return status;
}

/* ---- update of the bias ---- */

/* bias += Wo_h m_h for the removed heads of one layer; `weight` is the source's output projection in f32. */
static void add_means(const mha__prune_job *p, int64_t layer, const float *weight, const double *means)
{
    const mha__config *c = &p->model->config;
    const mha__out_part *out = &p->edit->out[layer];
    const int64_t heads = p->model->heads_per_layer[layer], D = c->head_dim, width = heads * D;
    const uint8_t *keep = p->keep + layer * c->heads;
    for (int64_t e = 0; e < c->hidden; e++) {
        double sum = (double)out->bias[e];
        for (int64_t n = 0; n < width; n++) {
            const double w = (double)weight[out->transposed ? n * c->hidden + e : e * width + n];
            if (!keep[n / D]) sum += w * means[n];
        }
        out->bias[e] = (float)sum;
    }
}

mha_status mha__mean_fill(const mha__prune_job *p, const mha_head_data *data, mha_error *err)
{
    const mha__config *c = &p->model->config;
    double *means;
    MHA__TRY(mha__mean_contexts(p->model, data, &means, err));
    mha_status status = MHA_OK;
    for (int64_t l = 0; l < c->layers && status == MHA_OK; l++) {
        if (!p->edit->out[l].bias) continue; /* no head of the layer was removed */
        const mha_tensor *t = mha__weights_tensor(&p->model->outer, MHA__ATTN_OUT, l, false);
        const size_t bytes = (size_t)t->elements * sizeof(float);
        float *weight = mha__alloc(p->model->ctx, bytes);
        status = weight ? mha_tensor_read(t, MHA_F32, weight, err) : mha__no_memory(err, bytes, t->name);
        if (status == MHA_OK) add_means(p, l, weight, means + l * c->heads * c->head_dim);
        mha__free(p->model->ctx, weight);
    }
    mha__free(p->model->ctx, means);
    return status;
}
