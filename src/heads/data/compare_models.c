/* compare_models.c - compares two models on the same texts. */
#include "mha/compare_models.h"

#include "base/ctx.h"
#include "base/error.h"
#include "heads/data/evaluate_texts.h"
#include "heads/data/head_data.h"
#include "heads/data/measure_steps.h"
#include <math.h>
#include <stdio.h>

typedef struct comparison {
    mha__outcome of[2];
    int64_t texts;
    double *cosine, *loss[2]; /* [texts], in one array; the elements of a text are 0 until its step has run */
} comparison;

/* ---- comparison on one batch ---- */

static double cosine_of(const comparison *c, int64_t text)
{
    const int64_t width = c->of[0].model->config.hidden;
    if (width != c->of[1].model->config.hidden) return NAN;
    return mha__cosine(width, c->of[0].embeddings + text * width, c->of[1].embeddings + text * width);
}

static mha_status run_batch(void *user, int64_t batch, mha_error *err)
{
    comparison *c = user;
    mha_model_input input;
    const int64_t *texts;
    for (int m = 0; m < 2; m++)
        MHA__TRY(mha__outcome_batch(&c->of[m], batch, NULL, NULL, err));
    MHA__TRY(mha__head_data_any(c->of[0].data, batch, &input, &texts, err));
    for (int64_t b = 0; b < input.batch; b++) {
        c->cosine[texts[b]] = cosine_of(c, texts[b]);
        for (int m = 0; m < 2; m++)
            c->loss[m][texts[b]] = c->of[m].losses[texts[b]];
    }
    return MHA_OK;
}

static mha_status run_all(comparison *c, mha_error *err)
{
    char options[64] = "comparison";
    const mha_head_data *data = c->of[0].data;
    if (mha__head_data_work(data)) { /* all processes must use the same second model */
        char second[17];
        MHA__TRY(mha_model_fingerprint(c->of[1].model, second, err));
        snprintf(options, sizeof options, "comparison with model %s", second);
    }
    const mha__measure measure = {.model = c->of[0].model,
                                  .data = data,
                                  .title = "compare",
                                  .options = options,
                                  .steps = mha__head_data_batches(data),
                                  .values = (int64_t *)(void *)c->cosine,
                                  .count = 3 * c->texts,
                                  .user = c,
                                  .run = run_batch};
    return mha__measure_run(&measure, err);
}

/* ---- sums in text order ---- */

static void sum_cosines(const comparison *c, double *cosines, mha_comparison *out)
{
    double sum = 0;
    out->min_cosine = INFINITY;
    for (int64_t i = 0; i < c->texts; i++) {
        const double cosine = c->cosine[i];
        if (cosines) cosines[i] = cosine;
        sum += cosine;
        if (!(cosine < out->min_cosine)) continue;
        out->min_cosine = cosine;
        out->worst = i;
    }
    out->mean_cosine = sum / (double)c->texts;
    if (c->of[0].model->config.hidden != c->of[1].model->config.hidden) out->min_cosine = NAN;
}

static void sum_losses(const comparison *c, int m, double *losses, double *loss)
{
    const mha__outcome *o = &c->of[m];
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < c->texts; i++) {
        int64_t tokens = 0;
        mha_head_data_ids(o->data, i, &tokens);
        if (losses) losses[i] = o->predicts && tokens > 1 ? c->loss[m][i] / (double)(tokens - 1) : NAN;
        sum += c->loss[m][i];
        count += tokens - 1;
    }
    *loss = o->predicts ? sum / (double)count : NAN;
}

/* ---- public function ---- */

static mha_status begin(comparison *c, const mha_model *a, const mha_model *b, const mha_head_data *data,
                        mha_error *err)
{
    const size_t bytes = 3 * (size_t)c->texts * sizeof *c->cosine;
    MHA__TRY(mha__outcome_create(a, data, &c->of[0], err));
    MHA__TRY(mha__outcome_create(b, data, &c->of[1], err));
    c->cosine = mha__calloc(mha_model_ctx(a), 1, bytes);
    if (!c->cosine) return mha__no_memory(err, bytes, "the results of all texts");
    c->loss[0] = c->cosine + c->texts;
    c->loss[1] = c->loss[0] + c->texts;
    return MHA_OK;
}

mha_status mha_models_compare(const mha_model *a, const mha_model *b, const mha_head_data *data, double *cosines,
                              double *losses, mha_comparison *out, mha_error *err)
{
    if (!a || !b || !data || !out)
        return mha__fail(err, MHA_ERR_ARG, "mha_models_compare: %s must not be NULL",
                         !a || !b ? "a model"
                         : !data  ? "data"
                                  : "out");
    const int64_t texts = mha_head_data_count(data);
    comparison c = {.texts = texts};
    *out = (mha_comparison){.texts = texts, .tokens = mha_head_data_tokens(data)};
    mha_status status = begin(&c, a, b, data, err);
    if (status == MHA_OK) status = run_all(&c, err);
    if (status == MHA_OK) {
        sum_cosines(&c, cosines, out);
        sum_losses(&c, 0, losses, &out->loss[0]);
        sum_losses(&c, 1, losses ? losses + texts : NULL, &out->loss[1]);
        out->predicted = c.of[0].predicts && c.of[1].predicts ? out->tokens - texts : 0;
    }
    mha__free(mha_model_ctx(a), c.cosine);
    mha__outcome_free(&c.of[0]);
    mha__outcome_free(&c.of[1]);
    return status;
}
