/* test_importance.c - compares importance scores of heads in small models with their definition, for any number of
 * threads and batches. Also tests errors, confidence intervals and split halves. */
#include "heads/importance/importance_run.h"
#include "mha/importance.h"
#include "mha/mean_interval.h"
#include "mha/model_grads.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/text/some_texts.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- scores and their definition ---- */

/* Compares the Jacobian score of a decoder with finite differences of the log-probabilities, and its estimate from
 * random probes with the exact score. */
static void jacobian_of_a_decoder(void **state)
{
    (void)state;
    mha_model *model = some_model(NULL, "heads/tinylm");
    const mha_model_info *info = mha_model_describe(model);
    const int64_t H = info->heads, V = info->vocab, total = info->layers * H, one_start[] = {0, 9};
    static const int32_t text[9] = {0, 5, 9, 33, 12, 5, 9, 33, 12};
    mha_head_data *data = NULL;
    assert_int_equal(mha_head_data_of_ids(model, text, one_start, 1, NULL, &data, NULL), MHA_OK);
    mha_importance *exact = some_importance(model, data, (mha_importance_options){.by = MHA_IMPORTANCE_JACOBIAN}),
                   *probe = some_importance(
                       model, data,
                       (mha_importance_options){.by = MHA_IMPORTANCE_JACOBIAN_PROBE, .probes = 400, .seed = 3});
    float *gates = malloc((size_t)total * sizeof *gates), *logits[2] = {malloc((size_t)V * 4), malloc((size_t)V * 4)};
    for (int64_t n = 0; n < total; n++) {
        double want = 0, sum[2] = {0};
        for (int side = 0; side < 2; side++) {
            for (int64_t g = 0; g < total; g++)
                gates[g] = g == n ? (side ? 1.02F : 0.98F) : 1;
            const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 9, .ids = text, .gates = gates};
            const mha_model_output output = {.size = sizeof output, .last_logits = logits[side]};
            assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
            for (int64_t v = 0; v < V; v++)
                sum[side] += exp((double)logits[side][v]);
        }
        for (int64_t v = 0; v < V; v++) {
            const double slope = ((double)logits[1][v] - log(sum[1]) - (double)logits[0][v] + log(sum[0])) / 0.04;
            want += 0.5 * slope * slope;
        }
        const double got = mha_importance_value(exact, n / H, n % H);
        assert_true(fabs(got - want) < 0.02 * want + 1e-3);
        assert_true(fabs(mha_importance_value(probe, n / H, n % H) - got) < 0.4 * got);
    }
    mha_importance_free(exact);
    mha_importance_free(probe);
    free(gates);
    free(logits[0]);
    free(logits[1]);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* ---- reference values of a small trained decoder ---- */

static void reference_values(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        mha_importance_score by;
        double limit;
    } cases[] = {{"gate", MHA_IMPORTANCE_GATE, 7.2e-7},
                 {"gate_batch", MHA_IMPORTANCE_GATE_BATCH, 6.5e-7},
                 {"gradmag", MHA_IMPORTANCE_GRADMAG, 6.9e-8},
                 {"taylor_elem", MHA_IMPORTANCE_TAYLOR_ELEM, 2.6e-6},
                 {"confidence", MHA_IMPORTANCE_CONFIDENCE, 1e-6}};
    mha_model *model = some_model(NULL, "heads/tinylm");
    mha_file *golden = case_file("heads/tinylm-golden.safetensors");
    int32_t *tokens = case_ints(golden, "input_ids");
    const int64_t four[] = {0, 31, 62, 93, 124};
    float *loss = case_floats(golden, "loss");
    mha_head_data *data = NULL;
    assert_int_equal(mha_head_data_of_ids(model, tokens, four, 4, NULL, &data, NULL), MHA_OK);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        mha_importance *i = some_importance(model, data, (mha_importance_options){.by = cases[c].by});
        float *want = case_floats(golden, cases[c].name);
        for (int n = 0; n < 8; n++)
            if (!(fabs(mha_importance_value(i, n / 4, n % 4) - (double)want[n]) <= cases[c].limit))
                fail_msg("%s of %d: got %.9g, expected %.9g", cases[c].name, n, mha_importance_value(i, n / 4, n % 4),
                         (double)want[n]);
        if (cases[c].by != MHA_IMPORTANCE_CONFIDENCE)
            assert_true(fabs(mha_importance_loss(i) - (double)*loss) < 2.2e-6);
        free(want);
        mha_importance_free(i);
    }
    free(tokens);
    free(loss);
    mha_head_data_free(data);
    mha_file_free(golden);
    mha_model_free(model);
}

/* ---- intervals ---- */

/* Returns the confidence of all heads for texts of four tokens each. */
static mha_importance *confidence_of(const mha_model *model, const int32_t *tokens, int64_t texts)
{
    static const int64_t begins[] = {0, 4, 8};
    mha_head_data *data = NULL;
    assert_int_equal(mha_head_data_of_ids(model, tokens, begins, texts, NULL, &data, NULL), MHA_OK);
    mha_importance *i = some_importance(model, data, (mha_importance_options){.by = MHA_IMPORTANCE_CONFIDENCE});
    mha_head_data_free(data);
    return i;
}

/* With two texts of the same length, the standard error is half of the difference of their scores, and the quantile
 * that of one degree of freedom. */
static void interval_of_two_texts(void **state)
{
    (void)state;
    static const int32_t tokens[] = {5, 9, 12, 30, 7, 21, 33, 40};
    mha_model *model = some_model(NULL, "models/bert-tiny");
    mha_importance *both = confidence_of(model, tokens, 2), *first = confidence_of(model, tokens, 1),
                   *second = confidence_of(model, tokens + 4, 1);
    const double a = mha_importance_value(first, 1, 0), b = mha_importance_value(second, 1, 0);
    assert_float_equal(mha_importance_value(both, 1, 0), (a + b) / 2, 1e-7);
    assert_float_equal(mha_importance_high(both, 1, 0) - mha_importance_value(both, 1, 0),
                       mha_student_quantile(1) * fabs(a - b) / 2, 1e-6);
    assert_true(fabs(a - b) > 1e-3);
    assert_true(isnan(mha_importance_high(first, 1, 0)));
    mha_importance_free(both);
    mha_importance_free(first);
    mha_importance_free(second);
    mha_model_free(model);
}

/* ---- bitwise identity across threads and batches ---- */

static void threads_change_no_bit(void **state)
{
    (void)state;
    for (int by = 0; by < MHA_IMPORTANCE_SCORES; by++) {
        double *want = NULL;
        for (int threads = 1; threads <= 3; threads += 2) {
            mha_ctx *ctx = NULL;
            const mha_ctx_options o = {.size = sizeof o, .threads = threads};
            assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
            mha_model *model = some_model(ctx, "models/bert-tiny");
            mha_head_data *data = some_data(model);
            mha_importance *i = some_importance(
                model, data,
                (mha_importance_options){.by = (mha_importance_score)by, .loss = MHA_LOSS_PAIRS, .batch_texts = 2});
            int64_t count = 0;
            const double *values = mha_importance_values(i, &count);
            const size_t bytes = (size_t)count * sizeof *values;
            if (want)
                assert_memory_equal(values, want, bytes);
            else
                want = memcpy(malloc(bytes), values, bytes);
            mha_importance_free(i);
            mha_head_data_free(data);
            mha_model_free(model);
            mha_ctx_free(ctx);
        }
        free(want);
    }
}

static void settles(void **state)
{
    (void)state;
    enum { MANY = 300 };
    mha_model *model = some_model(NULL, "models/bert-tiny");
    int32_t tokens[MANY * 4];
    int64_t begins[MANY + 1];
    mha_head_data *data = NULL;
    for (int n = 0; n < MANY * 4; n++)
        tokens[n] = 5 + n * 13 % 40;
    for (int n = 0; n <= MANY; n++)
        begins[n] = n * 4;
    assert_int_equal(mha_head_data_of_ids(model, tokens, begins, MANY, NULL, &data, NULL), MHA_OK);
    mha_importance *early = some_importance(
                       model, data, (mha_importance_options){.by = MHA_IMPORTANCE_JACOBIAN_PROBE, .settle = 0.1}),
                   *all = some_importance(model, data, (mha_importance_options){.by = MHA_IMPORTANCE_JACOBIAN_PROBE});
    /* the measurement must stop once the scores of two groups of 64 texts agree */
    assert_int_equal(mha_importance_texts_used(early), 128);
    assert_int_equal(mha_importance_texts_used(all), MANY);
    assert_true(mha_importance_halves(early) >= 0.1);
    mha_importance_free(early);
    mha_importance_free(all);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* ---- canceled and resumed measurements ---- */

static int stop_at_third(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user, (void)total;
    return strcmp(what, "importance") == 0 && done >= 6;
}

static void same(const mha_importance *got, const mha_importance *want)
{
    int64_t count = 0;
    const double *values = mha_importance_values(want, &count);
    assert_memory_equal(mha_importance_values(got, NULL), values, (size_t)count * sizeof *values);
    assert_true(mha_importance_high(got, 0, 0) == mha_importance_high(want, 0, 0));
    assert_true(mha_importance_halves(got) == mha_importance_halves(want));
    assert_true(mha_importance_loss(got) == mha_importance_loss(want));
    assert_int_equal(mha_importance_texts_used(got), SOME_TEXTS);
}

static void resumed_runs_are_bitwise_identical(void **state)
{
    (void)state;
    static const mha_importance_score by[] = {MHA_IMPORTANCE_GRADMAG, MHA_IMPORTANCE_GATE, MHA_IMPORTANCE_LOO_LOSS,
                                              MHA_IMPORTANCE_LOO_MEAN_LOSS};
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .progress = stop_at_third};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = some_model(NULL, "models/gpt2-tiny"), *stopped = some_model(ctx, "models/gpt2-tiny");
    mha_head_data *data = some_data(model);
    for (size_t n = 0; n < sizeof by / sizeof *by; n++) {
        const char *folder = files_folder(), *file = files_path(folder, "importance.state");
        mha_importance_options o = {.size = sizeof o, .by = by[n], .batch_texts = 2};
        mha_importance *want = some_importance(model, data, o), *i = NULL;
        o.state = file;
        assert_int_equal(mha_importance_measure(stopped, data, &o, &i, NULL), MHA_ERR_CANCELED);
        assert_int_equal(files_count(folder), 1);
        mha_importance *got = some_importance(model, data, o), *again = some_importance(model, data, o);
        same(got, want);
        same(again, want); /* the file contains all results; they must be returned unchanged */
        o.seed = 1;
        assert_int_equal(mha_importance_measure(model, data, &o, &i, NULL), MHA_ERR_ARG);
        assert_int_equal(files_count(folder), 1);
        files_remove(folder);
        mha_importance_free(want);
        mha_importance_free(got);
        mha_importance_free(again);
    }
    mha_head_data_free(data);
    mha_model_free(model);
    mha_model_free(stopped);
    mha_ctx_free(ctx);
}

/* ---- error messages ---- */

static void refused(const mha_model *model, const mha_head_data *data, mha_importance_options o, mha_status status,
                    const char *word)
{
    mha_importance *i = (mha_importance *)1;
    mha_error err = {0};
    o.size = sizeof o;
    assert_int_equal(mha_importance_measure(model, data, &o, &i, &err), status);
    assert_null(i);
    if (!strstr(err.message, word)) fail_msg("message must contain \"%s\" (got %s)", word, err.message);
}

/* A state file in which the count at `at` has an invalid value must be rejected with `sentence`. The original bytes are
 * then restored. */
static void refused_counts(const mha_model *model, const mha_head_data *data, mha_importance_options o, char *whole,
                           size_t bytes, char *at, const char *sentence)
{
    static const int64_t no_counts[] = {-1, 0, 1, SOME_TEXTS + 1, INT64_MAX};
    int64_t was;
    memcpy(&was, at, sizeof was);
    for (size_t n = 0; n < sizeof no_counts / sizeof *no_counts; n++) {
        char got[128];
        snprintf(got, sizeof got, "importance\\x1B.state: %s must be %lld (got %lld)", sentence, (long long)was,
                 (long long)no_counts[n]);
        memcpy(at, &no_counts[n], sizeof was);
        files_write(o.state, whole, bytes);
        refused(model, data, o, MHA_ERR_FORMAT, got);
    }
    memcpy(at, &was, sizeof was);
}

static void broken_state(void **state)
{
    (void)state;
    const char *folder = files_folder();
    mha_model *model = some_model(NULL, "models/gpt2-tiny");
    mha_head_data *data = some_data(model);
    const mha_importance_options o = {
        .by = MHA_IMPORTANCE_GATE, .batch_texts = 2, .state = files_path(folder, "importance\033.state")};
    mha_importance_free(some_importance(model, data, o));
    const mha_model_info *info = mha_model_describe(model);
    /* number of sums after the counts in the file */
    const size_t behind = 1 + 2 * (size_t)(info->layers * info->heads);
    size_t bytes;
    char *whole = files_read(o.state, &bytes);
    char *counts = whole + bytes - behind * sizeof(mha__fixed) - MHA__COUNTS * sizeof(int64_t);
    refused_counts(model, data, o, whole, bytes, counts + MHA__TEXTS * sizeof(int64_t),
                   "the number of texts after 5 steps");
    refused_counts(model, data, o, whole, bytes, counts + MHA__GROUPS * sizeof(int64_t),
                   "the number of groups after 5 steps");
    files_write(o.state, whole, bytes);
    mha_importance_free(some_importance(model, data, o));
    free(whole);
    files_remove(folder);
    mha_head_data_free(data);
    mha_model_free(model);
}

static void refusals(void **state)
{
    (void)state;
    mha_model *encoder = some_model(NULL, "models/bert-tiny"), *decoder = some_model(NULL, "models/gpt2-tiny");
    mha_head_data *data = some_data(encoder), *other = some_data(decoder);
    typedef mha_importance_options o;
    for (int by = 0; by < MHA_IMPORTANCE_SCORES; by++)
        if (mha_importance_score_needs_loss((mha_importance_score)by))
            refused(encoder, data, (o){.by = (mha_importance_score)by}, MHA_ERR_ARG, "requires a loss");
    assert_true(mha_importance_score_needs_loss(MHA_IMPORTANCE_GATE));
    assert_false(mha_importance_score_needs_loss(MHA_IMPORTANCE_JACOBIAN));
    assert_false(mha_importance_score_needs_loss(MHA_IMPORTANCE_SCORES));
    refused(encoder, data, (o){.by = MHA_IMPORTANCE_GRADMAG, .loss = MHA_LOSS_LM}, MHA_ERR_ARG, "\"lm\"");
    refused(decoder, other, (o){.by = MHA_IMPORTANCE_GATE, .loss = MHA_LOSS_MLM}, MHA_ERR_ARG, "\"mlm\"");
    refused(encoder, data, (o){.loss = MHA_LOSS_PAIRS, .batch_texts = 1}, MHA_ERR_ARG,
            "batch_texts must be at least 2");
    refused(encoder, NULL, (o){.by = MHA_IMPORTANCE_JACOBIAN}, MHA_ERR_ARG, "data must not be NULL");
    refused(encoder, data, (o){.by = MHA_IMPORTANCE_SCORES}, MHA_ERR_ARG, "by must be");
    refused(encoder, data, (o){.by = MHA_IMPORTANCE_JACOBIAN, .probes = 5000}, MHA_ERR_ARG, "5000");
    refused(encoder, data, (o){.by = MHA_IMPORTANCE_JACOBIAN, .settle = 1.5}, MHA_ERR_ARG, "settle");
    mha_head_data_free(data);
    mha_head_data_free(other);
    mha_model_free(encoder);
    mha_model_free(decoder);
}

static void no_memory(void **state)
{
    (void)state;
    static const mha_importance_score some[] = {MHA_IMPORTANCE_GATE, MHA_IMPORTANCE_GRADMAG,
                                                MHA_IMPORTANCE_JACOBIAN_PROBE, MHA_IMPORTANCE_CONFIDENCE,
                                                MHA_IMPORTANCE_OV_NORM};
    for (size_t n = 0; n < sizeof some / sizeof *some; n++) {
        counting count = {.budget = -1};
        mha_ctx *ctx = NULL;
        const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&count)};
        assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
        mha_model *model = some_model(ctx, "models/bert-tiny");
        mha_head_data *data = some_data(model);
        const long live = count.live;
        const mha_importance_options o = {.size = sizeof o, .by = some[n], .loss = MHA_LOSS_PAIRS};
        mha_status status = MHA_ERR_MEMORY;
        for (long budget = 0; status == MHA_ERR_MEMORY; budget += 1 + budget / 8) {
            mha_importance *i = NULL;
            count.budget = budget;
            status = mha_importance_measure(model, data, &o, &i, NULL);
            count.budget = -1;
            mha_importance_free(i);
            assert_int_equal(count.live, live);
        }
        assert_int_equal(status, MHA_OK);
        mha_head_data_free(data);
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
}

/* ---- sums and rank correlation, calculated by hand ---- */

static void tally_by_hand(void **state)
{
    (void)state;
    mha__tally t;
    const double s[4] = {1, 2, 4, 9};
    assert_int_equal(mha__tally_create(NULL, 1, 0, &t, NULL), MHA_OK);
    assert_true(isnan(mha__tally_mean(&t, 0)) && isnan(mha__tally_error(&t, 0)));
    for (int n = 0; n < 4; n++)
        mha__tally_add(&t, n, s + n, 1);
    assert_true(mha__tally_mean(&t, 0) == 4);
    assert_true(fabs(mha__tally_error(&t, 0) - sqrt((9. + 4 + 0 + 25) / 3 / 4)) < 1e-12);
    assert_true(mha__tally_half(&t, 0, 0) == 2.5 && mha__tally_half(&t, 1, 0) == 5.5);
    mha__tally_free(NULL, &t);
}

static void spearman_by_hand(void **state)
{
    (void)state;
    const double a[6] = {1, 2, 3, 4, 5, (double)NAN}, b[6] = {10, 20, 20, 90, 40, 7}, down[6] = {5, 4, 3, 2, 1, 0};
    double r = 0;
    assert_int_equal(mha__spearman(NULL, a, b, 6, &r, NULL), MHA_OK);
    /* the ranks of b are 0, 1.5, 1.5, 4, 3; the head with NaN must be excluded */
    assert_true(fabs(r - 8.5 / sqrt(95)) < 1e-12);
    assert_int_equal(mha__spearman(NULL, a, down, 6, &r, NULL), MHA_OK);
    assert_true(r == -1);
    assert_int_equal(mha__spearman(NULL, a, a + 5, 1, &r, NULL), MHA_OK);
    assert_true(isnan(r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jacobian_of_a_decoder),
        cmocka_unit_test(reference_values),
        cmocka_unit_test(interval_of_two_texts),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(settles),
        cmocka_unit_test(resumed_runs_are_bitwise_identical),
        cmocka_unit_test(broken_state),
        cmocka_unit_test(refusals),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(tally_by_hand),
        cmocka_unit_test(spearman_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
