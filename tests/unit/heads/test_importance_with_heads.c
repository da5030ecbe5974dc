/* test_importance_with_heads.c - compares mha_importance_with_heads with separate measurements, bit by bit, for all
 * scores and several models; whether passes are shared is visible in the progress reports. */
#include "mha/importance.h"
#include "support/check.h"
#include "support/model/choosing.h"
#include "support/model/model_case.h"
#include "support/text/some_texts.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static int reports_of_heads; /* number of progress reports of a separate pass */

static int count_reports(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user, (void)done, (void)total;
    reports_of_heads += strcmp(what, "measure heads") == 0;
    return 0;
}

static int stop_importance(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user, (void)total;
    return strcmp(what, "importance") == 0 && done >= 4;
}

static mha_ctx *watched(int threads, int (*progress)(void *, const char *, int64_t, int64_t))
{
    mha_ctx *ctx = NULL;
    const mha_ctx_options o = {.size = sizeof o, .threads = threads, .progress = progress};
    assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
    return ctx;
}

/* ---- comparison ---- */

static void same_number(double got, double want)
{
    if (memcmp(&got, &want, sizeof got) != 0 && !(isnan(got) && isnan(want)))
        fail_msg("got %.17g, expected %.17g", got, want);
}

static void same_scores(const mha_importance *got, const mha_importance *want)
{
    mha_importance_heads a, b;
    assert_int_equal(mha_importance_kind(got, MHA_HEADS_OWN, &a), 1);
    assert_int_equal(mha_importance_kind(want, MHA_HEADS_OWN, &b), 1);
    for (int64_t n = 0; n < b.layers * b.heads; n++) {
        same_number(a.values[n], b.values[n]);
        same_number(a.low[n], b.low[n]);
        same_number(a.high[n], b.high[n]);
    }
    same_number(mha_importance_loss(got), mha_importance_loss(want));
    same_number(mha_importance_halves(got), mha_importance_halves(want));
    same_number(mha_importance_identity(got), mha_importance_identity(want));
    assert_int_equal(mha_importance_saturated(got), mha_importance_saturated(want));
    assert_int_equal(mha_importance_texts_used(got), mha_importance_texts_used(want));
}

static void same_statistics(const mha_heads *got, const mha_heads *want)
{
    assert_int_equal(mha_heads_layers(got), mha_heads_layers(want));
    for (int64_t l = 0; l < mha_heads_layers(want); l++)
        for (int64_t h = 0; h < mha_heads_count(want, l); h++) {
            int64_t positions = 0;
            for (mha_head_metric m = 0; m < MHA_HEAD_METRICS; m++)
                same_number(mha_heads_value(got, l, h, m), mha_heads_value(want, l, h, m));
            const double *a = mha_heads_received(got, l, h, NULL), *b = mha_heads_received(want, l, h, &positions);
            for (int64_t j = 0; j < positions; j++)
                same_number(a[j], b[j]);
        }
}

/* Compares both results of a call with those of two calls. Returns true if the call ran no separate pass. */
static bool compare(const mha_model *model, const mha_head_data *data, mha_importance_options how,
                    const mha_heads_options *heads_how)
{
    mha_error err = {0};
    mha_importance *scores = NULL;
    mha_heads *heads = NULL, *want = NULL;
    how.size = sizeof how;
    reports_of_heads = 0;
    if (mha_importance_with_heads(model, data, &how, heads_how, &scores, &heads, &err) != MHA_OK)
        fail_msg("%s: %s", mha_importance_score_key(how.by), err.message);
    const bool shared = reports_of_heads == 0;
    how.state = NULL;
    mha_importance *alone = some_importance(model, data, how);
    assert_int_equal(mha_heads_measure_data(model, data, heads_how, &want, NULL), MHA_OK);
    same_scores(scores, alone);
    same_statistics(heads, want);
    mha_importance_free(scores);
    mha_importance_free(alone);
    mha_heads_free(heads);
    mha_heads_free(want);
    return shared;
}

/* ---- scores and models ---- */

static bool has_backward_pass(mha_importance_score by)
{
    return by <= MHA_IMPORTANCE_JACOBIAN_PROBE;
}

/* Frees the model. */
static void all_scores_of(mha_model *model, mha_head_loss loss)
{
    mha_head_data *data = some_data(model);
    for (int by = 0; by < MHA_IMPORTANCE_SCORES; by++) {
        const mha_importance_options how = {.by = (mha_importance_score)by, .loss = loss, .batch_texts = 2};
        const mha_heads_options heads_how = {
            .size = sizeof heads_how, .no_probe = by % 2, .seed = 5, .thresholds.sink = 0.1};
        assert_int_equal(compare(model, data, how, &heads_how), has_backward_pass(how.by));
    }
    mha_head_data_free(data);
    mha_model_free(model);
}

static void all_scores(const char *folder, mha_head_loss loss, int threads)
{
    mha_ctx *ctx = watched(threads, count_reports);
    all_scores_of(some_model(ctx, folder), loss);
    mha_ctx_free(ctx);
}

static void encoders_and_decoders(void **state)
{
    (void)state;
    all_scores("models/bert-tiny", MHA_LOSS_PAIRS, 1);
    all_scores("models/bert-tiny", MHA_LOSS_PAIRS, 3);
    all_scores("heads/tinylm", MHA_LOSS_LM, 2);
    all_scores("models/gpt2-tiny", MHA_LOSS_AUTO, 1);
    all_scores("models/gemma2-tiny", MHA_LOSS_AUTO, 1);
}

/* A pass with rows computes all heads, a backward pass only those that a text has selected. */
static void heads_chosen_per_text(void **state)
{
    static const char layers[] = "[{\"moe_heads\":{\"top_k\":2}},{\"head_pruning\":{\"prune_ratio\":0.5}}]";
    (void)state;
    mha_ctx *ctx = watched(1, count_reports);
    all_scores_of(choosing_model(ctx, choosing_config(layers, 2)), MHA_LOSS_PAIRS);
    mha_ctx_free(ctx);
}

/* The pairs of one loss have more than 1,536 tokens, so that their texts run forward twice. */
static void groups_of_several_batches(void **state)
{
    (void)state;
    enum { MANY = 180, LENGTH = 12 };
    static int32_t tokens[MANY * LENGTH];
    int64_t begins[MANY + 1];
    mha_ctx *ctx = watched(1, count_reports);
    mha_model *model = some_model(ctx, "models/bert-tiny");
    mha_head_data *data = NULL;
    for (int n = 0; n < MANY * LENGTH; n++)
        tokens[n] = 5 + n * 13 % 37;
    for (int n = 0; n <= MANY; n++)
        begins[n] = n * LENGTH;
    assert_int_equal(mha_head_data_of_ids(model, tokens, begins, MANY, NULL, &data, NULL), MHA_OK);
    const mha_importance_options how = {.by = MHA_IMPORTANCE_GRADMAG, .loss = MHA_LOSS_PAIRS};
    assert_true(compare(model, data, how, NULL));
    mha_head_data_free(data);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

/* ---- measurements that do not share passes ---- */

static void apart(void **state)
{
    (void)state;
    char path[] = "with_heads.state";
    mha_ctx *ctx = watched(1, count_reports);
    mha_model *model = some_model(ctx, "models/bert-tiny"), *bf16 = NULL;
    mha_head_data *data = some_data(model);
    const mha_importance_options how = {.by = MHA_IMPORTANCE_JACOBIAN_PROBE};
    mha_importance_options settling = how, stored = how;
    settling.settle = 0.5;
    stored.state = path;
    assert_false(compare(model, data, settling, NULL));
    assert_false(compare(model, data, stored, NULL));
    assert_int_equal(remove(path), 0);
    bf16 = case_model(ctx, "models/bert-tiny",
                      &(mha_model_options){.size = sizeof(mha_model_options), .no_tokenizer = 1, .dtype = MHA_BF16});
    assert_false(compare(bf16, data, how, NULL));
    assert_true(compare(model, data, how, NULL));
    mha_head_data_free(data);
    mha_model_free(model);
    mha_model_free(bf16);
    mha_ctx_free(ctx);
}

/* ---- errors ---- */

/* Fails unless the call returns `want`, a message that contains `words`, and no result. */
static void refused(const mha_model *model, const mha_head_data *data, const mha_importance_options *how,
                    const mha_heads_options *heads_how, mha_status want, const char *words)
{
    mha_error err = {0};
    mha_importance *scores = (mha_importance *)&err;
    mha_heads *heads = (mha_heads *)&err;
    assert_int_equal(mha_importance_with_heads(model, data, how, heads_how, &scores, &heads, &err), want);
    if (!strstr(err.message, words)) fail_msg("got \"%s\", expected \"%s\"", err.message, words);
    assert_null(scores);
    assert_null(heads);
}

static void both_results_or_none(void **state)
{
    static const int32_t out_of_range[] = {1 << 30};
    (void)state;
    mha_ctx *ctx = watched(1, stop_importance);
    mha_model *stopped = some_model(ctx, "models/bert-tiny"), *model = some_model(NULL, "models/bert-tiny");
    mha_head_data *data = some_data(model);
    mha_importance_options how = {.size = sizeof how, .by = MHA_IMPORTANCE_JACOBIAN_PROBE};
    const mha_heads_options bad_probe = {.size = sizeof bad_probe,
                                         .probe = {.ids = out_of_range, .texts = 1, .period = 1}};
    refused(stopped, data, &how, NULL, MHA_ERR_CANCELED, "");
    refused(model, data, &how, &bad_probe, MHA_ERR_ARG, "probe");
    refused(model, NULL, &how, NULL, MHA_ERR_ARG, "data must not be NULL");
    refused(NULL, data, &how, NULL, MHA_ERR_ARG, "model must not be NULL");
    how.by = MHA_IMPORTANCE_LOO;
    refused(stopped, data, &how, NULL, MHA_ERR_CANCELED, "");
    how.probes = -1;
    refused(model, data, &how, NULL, MHA_ERR_ARG, "probes must be from 0");
    mha_head_data_free(data);
    mha_model_free(model);
    mha_model_free(stopped);
    mha_ctx_free(ctx);
}

static void null_results(void **state)
{
    (void)state;
    mha_error err = {0};
    mha_model *model = some_model(NULL, "models/bert-tiny");
    mha_head_data *data = some_data(model);
    mha_importance_options how = {.size = sizeof how, .by = MHA_IMPORTANCE_JACOBIAN_PROBE};
    mha_importance *scores = (mha_importance *)&err;
    mha_heads *heads = (mha_heads *)&err;
    assert_int_equal(mha_importance_with_heads(model, data, &how, NULL, &scores, NULL, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "heads must not be NULL");
    assert_null(scores);
    assert_int_equal(mha_importance_with_heads(model, data, &how, NULL, NULL, &heads, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "out must not be NULL");
    assert_null(heads);
    mha_head_data_free(data);
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoders_and_decoders),     cmocka_unit_test(heads_chosen_per_text),
        cmocka_unit_test(groups_of_several_batches), cmocka_unit_test(apart),
        cmocka_unit_test(both_results_or_none),      cmocka_unit_test(null_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
