/* compare_models.c - compares two models on the same texts. */
#include "mha/compare_models.h"
#include "base/ctx.h"
#include "base/error.h"
#include "heads/data/evaluate_texts.h"
#include <math.h>

/* ---- sums over texts, in their order ---- */

static void compare_embeddings(const mha__outcome *a, const mha__outcome *b, double *cosines, mha_comparison *out)
{
    const int64_t width = a->model->config.hidden, same = width == b->model->config.hidden;
    double sum = 0;
    out->min_cosine = INFINITY;
    for (int64_t i = 0; i < out->texts; i++) {
        const double cosine = same ? mha__cosine(width, a->embeddings + i * width, b->embeddings + i * width) : NAN;
        if (cosines) cosines[i] = cosine;
        sum += cosine;
        if (!(cosine < out->min_cosine)) continue;
        out->min_cosine = cosine;
        out->worst = i;
    }
    out->mean_cosine = sum / (double)out->texts;
    if (!same) out->min_cosine = NAN;
}

static void sum_losses(const mha__outcome *o, double *losses, double *loss)
{
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < mha_head_data_count(o->data); i++) {
        int64_t tokens = 0;
        mha_head_data_ids(o->data, i, &tokens);
        if (losses) losses[i] = o->predicts && tokens > 1 ? o->losses[i] / (double)(tokens - 1) : NAN;
        sum += o->losses[i];
        count += tokens - 1;
    }
    *loss = o->predicts ? sum / (double)count : NAN;
}

/* ---- the call ---- */

static mha_status run(mha__outcome *o, const mha_model *model, const mha_head_data *data, mha_error *err)
{
    MHA__TRY(mha__outcome_create(model, data, o, err));
    return mha__outcome_run(o, NULL, NULL, "compare", err);
}

mha_status mha_models_compare(const mha_model *a, const mha_model *b, const mha_head_data *data, double *cosines,
                              double *losses, mha_comparison *out, mha_error *err)
{
    mha__outcome x = {0}, y = {0};
    if (!a || !b || !data || !out)
        return mha__fail(err, MHA_ERR_ARG, "mha_models_compare: %s must not be NULL",
                         !a || !b ? "a model"
                         : !data  ? "data"
                                  : "out");
    const int64_t texts = mha_head_data_count(data);
    *out = (mha_comparison){.texts = texts, .tokens = mha_head_data_tokens(data)};
    mha_status status = run(&x, a, data, err);
    if (status == MHA_OK) status = run(&y, b, data, err);
    if (status == MHA_OK) {
        compare_embeddings(&x, &y, cosines, out);
        sum_losses(&x, losses, &out->loss[0]);
        sum_losses(&y, losses ? losses + texts : NULL, &out->loss[1]);
        out->predicted = x.predicts && y.predicts ? out->tokens - texts : 0;
    }
    mha__outcome_free(&x);
    mha__outcome_free(&y);
    return status;
}
