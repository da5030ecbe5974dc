/* mean_fill.c - adds the mean output of removed heads to the output bias. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "heads/data/head_data.h"
#include "heads/data/measure_steps.h"
#include "heads/edit/prune_model.h"
#include "heads/weights/head_kinds.h"
#include "math/fixed_sum.h"

/* ---- mean outputs of heads ---- */

typedef struct summing {
    const mha_model *model;
    const mha_head_data *data;
    mha__head_sets sets;
    mha_model_input input; /* the current batch */
    mha__fixed *sums;      /* [sets.cells] */
    double *text;          /* [most H, head_dim] zeros; sums of one text */
} summing;

/* Adds the outputs of a layer's heads to the sums. Each text is summed in double, in the order of its rows; sums over
 * texts are integers. */
static int add_layer(const summing *s, const mha_model_activations *a, mha_head_kind kind)
{
    const mha__head_set *set = &s->sets.set[kind];
    const int64_t width = a->heads * a->head_dim;
    const int64_t *starts = kind == MHA_HEADS_ENCODER ? s->input.source->starts : s->input.starts;
    mha__fixed *sums = s->sums + set->cell + a->layer * set->heads * a->head_dim;
    for (int64_t b = 0; b < s->input.batch; b++) {
        for (int64_t i = starts[b]; i < starts[b + 1]; i++)
            for (int64_t n = 0; n < width; n++)
                s->text[n] += (double)a->context[i * width + n];
        mha__fixed_add_array(sums, s->text, width);
    }
    return 0;
}

static int of_own(void *user, const mha_model_activations *a)
{
    return add_layer(user, a, MHA_HEADS_OWN);
}

static int of_cross(void *user, const mha_model_activations *a)
{
    return add_layer(user, a, MHA_HEADS_CROSS);
}

static int of_encoder(void *user, const mha_model_activations *a)
{
    return add_layer(user, a, MHA_HEADS_ENCODER);
}

static mha_status sum_batch(void *user, int64_t batch, mha_error *err)
{
    summing *s = user;
    const int64_t *texts;
    const bool pairs = s->sets.count > 1;
    const mha_model_output encoder = {.size = sizeof encoder, .on_activations = of_encoder, .user = s};
    const mha_model_output output = {.size = sizeof output,
                                     .on_activations = of_own,
                                     .on_cross_activations = pairs ? of_cross : NULL,
                                     .user = s,
                                     .encoder = pairs ? &encoder : NULL};
    MHA__TRY(mha__head_data_any(s->data, batch, &s->input, &texts, err));
    return mha_model_forward(s->model, &s->input, &output, err);
}

static mha_status sum_all(summing *s, int64_t cells, mha_error *err)
{
    const mha__measure measure = {.model = s->model,
                                  .data = s->data,
                                  .title = "fill",
                                  .options = "means of heads",
                                  .steps = mha__head_data_batches(s->data),
                                  .values = (int64_t *)s->sums,
                                  .count = cells * MHA__FIXED_WORDS,
                                  .user = s,
                                  .run = sum_batch};
    return mha__measure_run(&measure, err);
}

/* Returns the number of rows over which the outputs of a kind of heads are averaged. */
static int64_t rows_of(const summing *s, mha_head_kind kind)
{
    int64_t rows = 0, length;
    if (kind != MHA_HEADS_ENCODER) return mha_head_data_tokens(s->data);
    for (int64_t n = 0; n < mha_head_data_count(s->data); n++, rows += length)
        mha__head_data_source(s->data, n, &length);
    return rows;
}

static void divide(const summing *s, double *means)
{
    for (int k = 0; k < s->sets.count; k++) {
        const mha__head_set *set = &s->sets.set[k];
        const int64_t end = set->cell + set->layers * set->heads * set->width;
        const double rows = (double)rows_of(s, set->kind);
        for (int64_t n = set->cell; n < end; n++)
            means[n] = mha__fixed_value(s->sums[n]) / rows;
    }
}

mha_status mha__mean_contexts(const mha_model *model, const mha_head_data *data, double **out, mha_error *err)
{
    summing s = {.model = model, .data = data, .sets = mha__head_sets_of(model)};
    const int64_t cells = s.sets.cells;
    int64_t width = 0;
    for (int k = 0; k < s.sets.count; k++)
        width = mha__max64(width, s.sets.set[k].heads * s.sets.set[k].width);
    *out = NULL;
    MHA__TRY(mha__head_data_matches(model, data, err));
    double *means = mha__calloc(model->ctx, (size_t)cells, sizeof *means);
    s.sums = mha__calloc(model->ctx, (size_t)cells, sizeof *s.sums);
    s.text = mha__calloc(model->ctx, (size_t)width, sizeof *s.text);
    mha_status status = means && s.sums && s.text
                            ? sum_all(&s, cells, err)
                            : mha__no_memory(err, (size_t)cells * sizeof *s.sums, "the means of heads");
    if (status == MHA_OK) divide(&s, means);
    mha__free(model->ctx, s.sums);
    mha__free(model->ctx, s.text);
    if (status == MHA_OK)
        *out = means;
    else
        mha__free(model->ctx, means);
    return status;
}

/* ---- update of the bias ---- */

/* Adds Wo_h m_h to the bias for each removed head h of a layer, where m_h is the mean output of the head; `weight` is
 * the source's output projection in f32. */
static void add_means(const mha__keep *k, const mha__out_part *out, int64_t layer, const float *weight,
                      const double *means)
{
    const mha__config *c = &k->model->config;
    const int64_t heads = mha__keep_heads(k, layer), D = c->head_dim, width = heads * D;
    for (int64_t e = 0; e < c->hidden; e++) {
        double sum = (double)out->bias[e];
        for (int64_t n = 0; n < width; n++) {
            const double w = (double)weight[out->transposed ? n * c->hidden + e : e * width + n];
            if (!mha__keep_has(k, layer, n / D)) sum += w * means[n];
        }
        out->bias[e] = (float)sum;
    }
}

/* Fills the layers of one kind of heads; `means` are those of the kind. */
static mha_status fill_part(const mha__prune_job *p, const mha__keep *k, const double *means, mha_error *err)
{
    const mha__config *c = &k->model->config;
    const mha__out_part *out = mha__edit_out(p->edit, mha__prune_kind(p, k));
    const mha__role role = k->cross ? MHA__CROSS_OUT : MHA__ATTN_OUT;
    mha_status status = MHA_OK;
    for (int64_t l = 0; l < c->layers && status == MHA_OK; l++) {
        if (!out[l].bias) continue; /* no head of the layer was removed */
        const mha_tensor *t = mha__weights_tensor(&k->model->outer, role, l, false);
        const size_t bytes = (size_t)t->elements * sizeof(float);
        float *weight = mha__alloc(k->model->ctx, bytes);
        status = weight ? mha_tensor_read(t, MHA_F32, weight, err) : mha__no_memory(err, bytes, t->name);
        if (status == MHA_OK) add_means(k, &out[l], l, weight, means + l * c->heads * c->head_dim);
        mha__free(k->model->ctx, weight);
    }
    return status;
}

mha_status mha__mean_fill(const mha__prune_job *p, const mha_head_data *data, mha_error *err)
{
    const mha__head_sets sets = mha__head_sets_of(p->model);
    mha_status status = MHA_OK;
    double *means;
    MHA__TRY(mha__mean_contexts(p->model, data, &means, err));
    for (int n = 0; n < p->parts && status == MHA_OK; n++) {
        const mha_head_kind kind = mha__prune_kind(p, &p->part[n]);
        if ((int)kind < sets.count) status = fill_part(p, &p->part[n], means + sets.set[kind].cell, err);
    }
    mha__free(p->model->ctx, means);
    return status;
}
