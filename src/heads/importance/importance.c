/* importance.c - the public function that scores the heads of a model, and the accessors of its result. */
#include "heads/importance/importance.h"

#include "base/ctx.h"
#include "base/error.h"
#include "mha/prune.h"
#include "model/model_struct.h"
#include <math.h>

static mha_status create(const mha_model *model, mha_importance **out, mha_error *err)
{
    const mha__head_sets sets = mha__head_sets_of(model);
    mha_ctx *ctx = mha_model_ctx(model);
    const size_t count = (size_t)sets.total;
    mha_importance *i = mha__calloc(ctx, 1, sizeof *i);
    *out = i;
    if (!i) return mha__no_memory(err, sizeof *i, "the scores of heads");
    *i = (mha_importance){.ctx = ctx, .sets = sets, .loss = NAN, .halves = NAN, .identity = NAN};
    i->value = mha__calloc(ctx, count, 3 * sizeof *i->value);
    if (!i->value) return mha__no_memory(err, count * 3 * sizeof *i->value, "the scores of heads");
    i->low = i->value + count;
    i->high = i->low + count;
    return MHA_OK;
}

/* Computes the score of head n of `set` from its weights. */
static mha_status score_head(const mha__importance_rule *rule, const mha__head_set *set, int64_t n, double *score,
                             mha_error *err)
{
    const int64_t layer = (n - set->first) / set->heads, head = (n - set->first) % set->heads;
    const bool cross = set->kind == MHA_HEADS_CROSS;
    MHA__TRY(rule->weights(set, layer, head, score, err));
    if (isfinite(*score)) return MHA_OK;
    const int64_t number = (cross ? mha_cross_head_number : mha_head_number)(set->model, layer, head);
    return mha__fail(err, MHA_ERR_NOT_FINITE, "the score of head %lld.%lld must be finite (got %g)", (long long)layer,
                     (long long)number, *score);
}

/* Computes scores from the weights only, without a forward pass. */
static mha_status score_weights(const mha__importance_rule *rule, mha_importance *i, mha_error *err)
{
    for (int64_t n = 0; n < i->sets.total; n++) {
        const mha__head_set *set = mha__head_set_at(&i->sets, n);
        i->value[n] = NAN;
        if (mha__head_set_has(set, n)) MHA__TRY(score_head(rule, set, n, &i->value[n], err));
        i->low[n] = i->high[n] = i->value[n];
    }
    i->halves = 1;
    return MHA_OK;
}

/* Computes scores with options that were read for this model and data. */
static mha_status measure(const mha_model *model, const mha_head_data *data, const mha_importance_options *options,
                          const mha__shared_statistics *with, mha_importance **out, mha_error *err)
{
    mha_importance *made = NULL;
    const mha__importance_rule *rule = &mha__importance_rules[options->by];
    mha_status status = create(model, &made, err);
    if (status == MHA_OK)
        status =
            rule->weights ? score_weights(rule, made, err) : mha__importance_run(model, data, options, with, made, err);
    if (status == MHA_OK)
        *out = made;
    else
        mha_importance_free(made);
    return status;
}

mha_status mha_importance_measure(const mha_model *model, const mha_head_data *data,
                                  const mha_importance_options *options, mha_importance **out, mha_error *err)
{
    mha_importance_options own;
    if (!model || !out) return mha__fail(err, MHA_ERR_ARG, "%s must not be NULL", model ? "out" : "model");
    *out = NULL;
    MHA__TRY(mha__importance_options_read(model, data, options, &own, err));
    return measure(model, data, &own, NULL, out, err);
}

/* ---- importance and statistics ---- */

/* Returns true if the forward passes of the scores can measure the statistics too: the passes include every text and
 * are in f32, and the sums are neither stored in a file nor divided among processes. */
static bool shares(const mha_model *model, const mha_head_data *data, const mha_importance_options *o,
                   const mha_heads_options *heads)
{
    const mha__importance_rule *rule = &mha__importance_rules[o->by];
    const bool texts = !mha__head_data_image_bytes(data), undivided = !mha__head_data_work(data);
    return !rule->weights && !rule->forward && o->settle == 0 && !o->state && !heads->state && !heads->keep_maps &&
           texts && undivided && model->outer.packed == MHA_F32;
}

static mha_status measure_apart(const mha_model *model, const mha_head_data *data,
                                const mha_importance_options *options, const mha_heads_options *how,
                                mha_importance **out, mha_heads **heads, mha_error *err)
{
    MHA__TRY(mha_heads_measure_data(model, data, how, heads, err));
    const mha_status status = measure(model, data, options, NULL, out, err);
    if (status == MHA_OK) return MHA_OK;
    mha_heads_free(*heads);
    *heads = NULL;
    return status;
}

mha_status mha_importance_with_heads(const mha_model *model, const mha_head_data *data,
                                     const mha_importance_options *options, const mha_heads_options *heads_options,
                                     mha_importance **out, mha_heads **heads, mha_error *err)
{
    mha_importance_options own;
    mha_heads_options how;
    if (out) *out = NULL;
    if (heads) *heads = NULL;
    if (!model || !out || !heads)
        return mha__fail(err, MHA_ERR_ARG, "%s must not be NULL", !model ? "model" : !out ? "out" : "heads");
    MHA__TRY(mha__heads_check(model, data, heads_options, &how, err));
    MHA__TRY(mha__importance_options_read(model, data, options, &own, err));
    if (!shares(model, data, &own, &how)) return measure_apart(model, data, &own, &how, out, heads, err);
    return measure(model, data, &own, &(mha__shared_statistics){&how, heads}, out, err);
}

void mha_importance_free(mha_importance *importance)
{
    if (!importance) return;
    mha__free(importance->ctx, importance->value);
    mha__free(importance->ctx, importance);
}

/* ---- accessors ---- */

static double at(const mha_importance *i, const double *all, int64_t layer, int64_t head)
{
    const mha__head_set *own = &i->sets.set[MHA_HEADS_OWN];
    const bool there = layer >= 0 && layer < own->layers && head >= 0 && head < own->heads;
    return there ? all[layer * own->heads + head] : NAN;
}

double mha_importance_value(const mha_importance *importance, int64_t layer, int64_t head)
{
    return importance ? at(importance, importance->value, layer, head) : NAN;
}

double mha_importance_low(const mha_importance *importance, int64_t layer, int64_t head)
{
    return importance ? at(importance, importance->low, layer, head) : NAN;
}

double mha_importance_high(const mha_importance *importance, int64_t layer, int64_t head)
{
    return importance ? at(importance, importance->high, layer, head) : NAN;
}

const double *mha_importance_values(const mha_importance *importance, int64_t *count)
{
    const mha__head_set *own = importance ? &importance->sets.set[MHA_HEADS_OWN] : NULL;
    if (count) *count = own ? own->layers * own->heads : 0;
    return own ? importance->value : NULL;
}

int mha_importance_kind(const mha_importance *importance, mha_head_kind kind, mha_importance_heads *heads)
{
    if (!heads) return 0;
    *heads = (mha_importance_heads){0};
    if (!importance || (unsigned)kind >= (unsigned)importance->sets.count) return 0;
    const mha__head_set *set = &importance->sets.set[kind];
    *heads = (mha_importance_heads){.layers = set->layers,
                                    .heads = set->heads,
                                    .values = importance->value + set->first,
                                    .low = importance->low + set->first,
                                    .high = importance->high + set->first};
    return 1;
}

double mha_importance_halves(const mha_importance *importance)
{
    return importance ? importance->halves : NAN;
}

double mha_importance_loss(const mha_importance *importance)
{
    return importance ? importance->loss : NAN;
}

double mha_importance_identity(const mha_importance *importance)
{
    return importance ? importance->identity : NAN;
}

int mha_importance_saturated(const mha_importance *importance)
{
    return importance ? importance->saturated : 0;
}

int64_t mha_importance_texts_used(const mha_importance *importance)
{
    return importance ? importance->texts : 0;
}
