/* importance_ablation.c - computes how much the loss of texts changes if a head, or a pair of heads, is switched
 * off. */
#include "base/ctx.h"
#include "base/error.h"
#include "heads/data/measure_steps.h"
#include "heads/edit/prune_model.h"
#include "heads/importance/ablation.h"
#include "heads/importance/importance.h"
#include <math.h>

static bool has_means(const mha__importance_job *s)
{
    return s->options.by == MHA_IMPORTANCE_LOO_MEAN || s->options.by == MHA_IMPORTANCE_LOO_MEAN_LOSS;
}

static mha__ablation_measure measure_of(const mha__importance_job *s)
{
    if (!s->rule->loss) return MHA__ABLATION_DISTANCE;
    return s->options.loss == MHA_LOSS_PAIRS ? MHA__ABLATION_PAIRS : MHA__ABLATION_TOKENS;
}

mha_status mha__importance_means(mha__importance_job *s, mha_error *err)
{
    return has_means(s) ? mha__mean_contexts(s->model, s->data, &s->means, err) : MHA_OK;
}

static mha__ablation ablation_of(mha__importance_job *s)
{
    return (mha__ablation){.ctx = s->ctx,
                           .model = s->model,
                           .info = s->info,
                           .measure = measure_of(s),
                           .scale = s->options.loss_scale,
                           .means = s->means,
                           .packer = &s->packer};
}

/* Initializes the ablation of the current step and runs the whole model. */
static mha_status begin(mha__importance_job *s, bool two, mha__ablation *a, mha_error *err)
{
    int64_t tokens = 0, length;
    *a = ablation_of(s);
    for (int64_t t = 0; t < s->texts; t++, tokens += length)
        mha_head_data_ids(s->data, s->text[t], &length);
    MHA__TRY(mha__ablation_create(a, s->texts, tokens, two, err));
    return mha__ablation_begin(a, s->text, s->texts, err);
}

/* Returns the weight of each text's change in the sum. With this weight, the mean over the group's units is the change
 * in the group's mean loss (or distance). */
static double share_of(const mha__importance_job *s, const mha__ablation *a)
{
    if (a->measure == MHA__ABLATION_TOKENS) return (double)s->group_units / (double)s->terms;
    return a->measure == MHA__ABLATION_PAIRS ? 0.5 : 1;
}

/* Adds the mean loss text by text, so that it does not depend on the number of texts in a step. */
static void add_loss(mha__importance_job *s, const mha__ablation *a)
{
    const double terms = (double)(a->measure == MHA__ABLATION_PAIRS ? s->texts : s->terms);
    for (int64_t t = 0; t < s->texts && s->rule->loss; t++)
        mha__fixed_add(s->loss, a->whole[t] / terms);
}

/* ---- ablation of one head ---- */

/* Evaluates each head of the base stream's layer. */
static mha_status run_layer(mha__importance_job *s, mha__ablation *a, mha_error *err)
{
    const int64_t layer = a->base.layer, H = s->info->heads, all = mha_head_data_count(s->data);
    for (int64_t h = 0; h < s->info->heads_per_layer[layer]; h++) {
        const int64_t n = layer * H + h;
        MHA__TRY(mha__ablation_run(a, &a->base, &h, 1, err));
        const double share = share_of(s, a);
        for (int64_t t = 0; t < s->texts; t++)
            s->part[t * s->total + n] = share * (a->value[t] - a->whole[t]);
        MHA__TRY(mha__progress(s->ctx, "importance", s->done + s->texts * (n + 1) / s->total, all, err));
    }
    return MHA_OK;
}

static mha_status run_layers(mha__importance_job *s, mha__ablation *a, mha_error *err)
{
    for (;;) {
        MHA__TRY(run_layer(s, a, err));
        if (a->base.layer == s->info->layers - 1) return MHA_OK;
        MHA__TRY(mha__ablation_step(a, &a->base, NULL, 0, &a->base, err));
    }
}

/* The ablation of the heads of an encoder-decoder. */
typedef struct of_pairs {
    mha__importance_job *s;
    mha__ablation *a;
} of_pairs;

static mha_status take_pairs(void *user, const mha__packed *batch, int64_t n, mha_error *err)
{
    const of_pairs *p = user;
    mha__importance_job *s = p->s;
    for (int64_t b = 0; b < batch->input.batch; b++) {
        const int64_t t = batch->place[b];
        const double value = mha__ablation_value(p->a, t);
        if (n < 0)
            p->a->whole[t] = value;
        else
            s->part[t * s->total + n] = share_of(s, p->a) * (value - p->a->whole[t]);
    }
    return n < 0 ? mha__importance_step(s, batch, err) : MHA_OK;
}

static mha_status run_pair_heads(mha__importance_job *s, mha__ablation *a, mha_error *err)
{
    of_pairs user = {s, a};
    const mha__pair_heads heads = {.sets = &s->sets, .texts = s->texts, .take = take_pairs, .user = &user};
    *a = ablation_of(s);
    MHA__TRY(mha__ablation_create(a, s->texts, 0, false, err));
    return mha__ablation_pairs(a, s->text, &heads, err);
}

mha_status mha__group_ablation(mha__importance_job *s, mha_error *err)
{
    mha__ablation a = {.ctx = s->ctx};
    const bool pairs = s->sets.count > 1;
    mha_status status = pairs ? run_pair_heads(s, &a, err) : begin(s, false, &a, err);
    if (status == MHA_OK && !pairs) status = run_layers(s, &a, err);
    if (status == MHA_OK) add_loss(s, &a);
    mha__ablation_free(&a);
    return status;
}

/* ---- ablation of two heads ---- */

typedef struct pairs {
    mha__importance_job job;
    mha__fixed *sums; /* lower triangle of [N, N] */
} pairs;

/* Adds the result of the last evaluation to the sum of the pair of heads n <= m. */
static void add_pair(const pairs *p, const mha__ablation *a, int64_t n, int64_t m)
{
    const double share = share_of(&p->job, a);
    for (int64_t t = 0; t < p->job.texts; t++)
        mha__fixed_add(&p->sums[mha__triangle(m) + n], share * (a->value[t] - a->whole[t]));
}

/* Evaluates the pairs of head `h` of the base stream's layer with itself and with every later head. */
static mha_status run_partners(const pairs *p, mha__ablation *a, int64_t h, mha_error *err)
{
    const mha__importance_job *s = &p->job;
    const int64_t layer = a->base.layer, H = s->info->heads, last = s->info->layers - 1, n = layer * H + h;
    for (int64_t other = h; other < s->info->heads_per_layer[layer]; other++) {
        const int64_t off[] = {h, other};
        MHA__TRY(mha__ablation_run(a, &a->base, off, 2, err));
        add_pair(p, a, n, layer * H + other);
    }
    if (layer == last) return MHA_OK;
    MHA__TRY(mha__ablation_step(a, &a->base, &h, 1, &a->other, err));
    for (;;) {
        for (int64_t other = 0; other < s->info->heads_per_layer[a->other.layer]; other++) {
            MHA__TRY(mha__ablation_run(a, &a->other, &other, 1, err));
            add_pair(p, a, n, a->other.layer * H + other);
        }
        if (a->other.layer == last) return MHA_OK;
        MHA__TRY(mha__ablation_step(a, &a->other, NULL, 0, &a->other, err));
    }
}

static mha_status run_pairs(const pairs *p, mha__ablation *a, mha_error *err)
{
    const mha__importance_job *s = &p->job;
    const int64_t H = s->info->heads, all = mha_head_data_count(s->data);
    for (;;) {
        for (int64_t h = 0; h < s->info->heads_per_layer[a->base.layer]; h++) {
            const int64_t n = a->base.layer * H + h;
            MHA__TRY(run_partners(p, a, h, err));
            MHA__TRY(mha__progress(s->ctx, "pairs", s->done + s->texts * (n + 1) / s->total, all, err));
        }
        if (a->base.layer == s->info->layers - 1) return MHA_OK;
        MHA__TRY(mha__ablation_step(a, &a->base, NULL, 0, &a->base, err));
    }
}

static mha_status run_step(void *user, int64_t step, mha_error *err)
{
    pairs *p = user;
    mha__ablation a = {.ctx = p->job.ctx};
    mha__importance_begin(&p->job, step);
    mha_status status = begin(&p->job, true, &a, err);
    if (status == MHA_OK) status = run_pairs(p, &a, err);
    mha__ablation_free(&a);
    return status;
}

static int64_t texts_before(const void *user, int64_t step)
{
    return mha__importance_texts_before(&((const pairs *)user)->job, step);
}

static mha_status sum_pairs(pairs *p, mha_error *err)
{
    const mha__importance_job *s = &p->job;
    char options[MHA__IMPORTANCE_WORDS];
    const int64_t count = mha__triangle(s->total);
    p->sums = mha__calloc(s->ctx, (size_t)count, sizeof *p->sums);
    if (!p->sums) return mha__no_memory(err, (size_t)count * sizeof *p->sums, "the sums of pairs of heads");
    const mha__measure measure = {.model = s->model,
                                  .data = s->data,
                                  .title = "pairs",
                                  .options = mha__importance_describe(s, "pairs of heads, ", options),
                                  .steps = mha__importance_steps(s),
                                  .values = (int64_t *)p->sums,
                                  .count = count * MHA__FIXED_WORDS,
                                  .user = p,
                                  .run = run_step,
                                  .before = texts_before,
                                  .whole = mha_head_data_count(s->data)};
    return mha__measure_run(&measure, err);
}

/* Writes the means of all pairs over the units of the data; NAN for heads that a layer lacks. */
static void read_pairs(const pairs *p, double *out)
{
    const mha_model_info *info = p->job.info;
    const int64_t H = info->heads, N = p->job.total;
    mha__fixed_read_triangle(p->sums, N, out);
    for (int64_t n = 0; n < N * N; n++) {
        const int64_t a = n / N, b = n % N;
        const bool there = a % H < info->heads_per_layer[a / H] && b % H < info->heads_per_layer[b / H];
        out[n] = there ? out[n] / (double)p->job.units : NAN;
    }
}

mha_status mha_importance_pairs(const mha_model *model, const mha_head_data *data,
                                const mha_importance_options *options, double *out, mha_error *err)
{
    mha_importance_options own;
    pairs p = {.sums = NULL};
    if (!model || !data || !out)
        return mha__fail(err, MHA_ERR_ARG, "%s must not be NULL", !model ? "model" : !data ? "data" : "out");
    MHA__TRY(mha__importance_pairs_read(model, data, options, &own, err));
    mha_status status = mha__importance_open(&p.job, model, data, &own, err);
    if (status == MHA_OK) status = mha__importance_means(&p.job, err);
    if (status == MHA_OK) status = sum_pairs(&p, err);
    if (status == MHA_OK) read_pairs(&p, out);
    mha__free(p.job.ctx, p.sums);
    mha__importance_close(&p.job);
    return status;
}
