/* test_heads_diversity_limits.c - tests the similarity measures at their limits: texts in several passes,
 * interruptions, heads with zero output, weights that are not finite, errors, and failed allocations. */
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/heads/diversity_case.h"
#include "support/model/model_case.h"
#include "support/stopper.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts in several passes ---- */

/* Opens the decoder with its maximum length increased to 1800 tokens. */
static mha_model *long_model(void)
{
    static const char from[] = "\"max_position_embeddings\": 64", to[] = "\"max_position_embeddings\": 1800";
    const char *folder = files_folder();
    size_t n;
    char *config = files_read(MHA_TEST_DATA "/heads/tinylm/config.json", &n);
    assert_non_null(config);
    const char *at = strstr(config, from);
    assert_non_null(at);
    char *changed = malloc(n + sizeof to);
    assert_non_null(changed);
    const int size = snprintf(changed, n + sizeof to, "%.*s%s%s", (int)(at - config), config, to, at + sizeof from - 1);
    files_write(files_path(folder, "config.json"), changed, (size_t)size);
    free(changed);
    free(config);
    char *weights = files_read(MHA_TEST_DATA "/heads/tinylm/model.safetensors", &n);
    assert_non_null(weights);
    files_write(files_path(folder, "model.safetensors"), weights, n);
    free(weights);
    const mha_model_options options = {.size = sizeof options, .no_tokenizer = 1, .no_map = 1};
    mha_model *model = case_model(NULL, folder, &options);
    files_remove(folder);
    return model;
}

enum { LONG = 1800 };

/* Callback: copies the maps of head 0 of layer 0 and of the last head of layer 1. */
static int keep_two(void *user, int64_t layer, int64_t heads, const float *probs)
{
    float *kept = user;
    const size_t map = (size_t)LONG * LONG;
    if (layer == 0) memcpy(kept, probs, map * sizeof *kept);
    if (layer == 1) memcpy(kept + map, probs + (size_t)(heads - 1) * map, map * sizeof *kept);
    return 0;
}

static double plogp(double x)
{
    return x > 0 ? x * log2(x) : 0;
}

/* The maps of 8 heads, each 1800 x 1800 elements, exceed the memory limit, so the text must be computed in two passes.
 * The values must equal those computed from complete maps. */
static void a_long_text_runs_in_passes(void **state)
{
    (void)state;
    static const int64_t length = LONG;
    mha_model *model = long_model();
    mha_head_data *data = diversity_data(model, &length, 1, 0);
    mha_error err = {0};
    int64_t n;
    const int32_t *ids = mha_head_data_ids(data, 0, &n);
    assert_int_equal(n, LONG);
    mha_diversity *d = diversity_of(model, data, (mha_diversity_options){0});
    float *kept = malloc(2 * sizeof *kept * LONG * LONG);
    assert_non_null(kept);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = LONG, .ids = ids};
    const mha_model_output output = {.size = sizeof output, .on_attention = keep_two, .user = kept};
    if (mha_model_forward(model, &input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
    double sum = 0;
    for (int64_t i = 0; i < (int64_t)LONG * LONG; i++) {
        const double p = (double)kept[i], q = (double)kept[(int64_t)LONG * LONG + i];
        sum += (plogp(p) + plogp(q)) / 2 - plogp((p + q) / 2);
    }
    const double got = mha_diversity_value(d, MHA_DIVERSITY_JS, 0, 0, 1, 3);
    if (!(fabs(got - sum / LONG) < 3e-7)) fail_msg("js: got %.9g, expected %.9g", got, sum / LONG);
    free(kept);
    mha_diversity_free(d);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* ---- interruptions ---- */

static int stop(void *user, const char *what, int64_t done, int64_t total)
{
    stopper *s = user;
    if (strcmp(what, "diversity") != 0) return 0;
    assert_true(done <= total);
    return ++s->calls == s->stop_at;
}

static void stopped_and_resumed(void **state)
{
    (void)state;
    stopper s = {0};
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .progress = stop, .progress_user = &s};
    mha_ctx *ctx;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = diversity_model(ctx, DIVERSITY_ENCODER, NULL, 0);
    mha_head_data *data = diversity_data(model, diversity_lengths, DIVERSITY_TEXTS, 40);
    mha_diversity *want = diversity_of(model, data, (mha_diversity_options){0}), *d;
    assert_int_equal(s.calls, 6); /* the callback must run before each of 5 batches and after the last */
    const char *folder = files_folder();
    mha_diversity_options how = {.size = sizeof how, .state = files_path(folder, "state")};
    int stops = 0;
    mha_status status = MHA_ERR_CANCELED;
    for (; status == MHA_ERR_CANCELED; stops++) {
        s = (stopper){.stop_at = 2}; /* stops before the second batch */
        status = mha_diversity_measure(model, data, &how, &d, NULL);
        assert_int_equal(d != NULL, status == MHA_OK);
    }
    assert_int_equal(status, MHA_OK);
    assert_int_equal(stops, 6);
    assert_true(diversity_equal(model, d, want));
    mha_diversity_free(d);
    how.max_rows = 7; /* must be rejected, because the state file is from a run over all rows */
    assert_int_equal(mha_diversity_measure(model, data, &how, &d, NULL), MHA_ERR_ARG);
    files_remove(folder);
    mha_diversity_free(want);
    mha_head_data_free(data);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

/* ---- heads with zero output, and weights that are not finite ---- */

/* Returns a copy of a weight [48, 48] of the encoder (heads of width 12), with a block of elements set to x. */
static float *changed(const char *name, int64_t first_row, int64_t rows, int64_t first, int64_t columns, float x)
{
    mha_file *file = case_file("models/bert-tiny/model.safetensors");
    float *w = case_floats(file, name);
    for (int64_t r = first_row; r < first_row + rows; r++)
        for (int64_t c = first; c < first + columns; c++)
            w[r * 48 + c] = x;
    mha_file_free(file);
    return w;
}

static void a_head_with_zero_output(void **state)
{
    (void)state;
    static const char name[] = "encoder.layer.0.attention.output.dense.weight";
    float *w = changed(name, 0, 48, 12, 12, 0);
    const mha_named_tensor tensor = {.name = name, .dtype = MHA_F32, .rank = 2, .shape = {48, 48}, .data = w};
    mha_model *model = diversity_model(NULL, DIVERSITY_ENCODER, &tensor, 1);
    mha_head_data *data = diversity_data(model, diversity_lengths, DIVERSITY_TEXTS, 0);
    mha_diversity *d = diversity_of(model, data, (mha_diversity_options){0});
    for (int64_t b = 0; b < 4; b++) {
        assert_true(isnan(mha_diversity_value(d, MHA_DIVERSITY_CKA, 0, 1, 0, b)));
        assert_true(isnan(mha_diversity_value(d, MHA_DIVERSITY_SUBSPACE, 0, b, 0, 1)));
        assert_int_equal(isnan(mha_diversity_value(d, MHA_DIVERSITY_UNIQUE, 0, b, 0, b)), b == 1);
        assert_false(isnan(mha_diversity_value(d, MHA_DIVERSITY_CKA, 0, 2, 0, b == 1 ? 2 : b)));
        assert_false(isnan(mha_diversity_value(d, MHA_DIVERSITY_COSINE, 0, 1, 0, b)));
    }
    assert_true(isnan(mha_diversity_layer(d, MHA_DIVERSITY_CKA, 0)));
    mha_diversity_free(d);
    mha_head_data_free(data);
    mha_model_free(model);
    free(w);
}

static void non_finite_values_are_named(void **state)
{
    (void)state;
    static const char *const names[] = {"encoder.layer.0.attention.self.query.weight",
                                        "encoder.layer.0.attention.self.value.weight"};
    static const uint32_t what[] = {1U << MHA_DIVERSITY_JS, 1U << MHA_DIVERSITY_CKA};
    for (int i = 0; i < 2; i++) {
        float *w = changed(names[i], 24, 12, 0, 48, NAN); /* rows 24 to 35 belong to head 2 */
        const mha_named_tensor tensor = {.name = names[i], .dtype = MHA_F32, .rank = 2, .shape = {48, 48}, .data = w};
        mha_model *model = diversity_model(NULL, DIVERSITY_ENCODER, &tensor, 1);
        mha_head_data *data = diversity_data(model, diversity_lengths, DIVERSITY_TEXTS, 0);
        const mha_diversity_options options = {.size = sizeof options, .what = what[i]};
        mha_diversity *d;
        mha_error err = {0};
        assert_int_equal(mha_diversity_measure(model, data, &options, &d, &err), MHA_ERR_ARG);
        assert_null(d);
        assert_non_null(strstr(err.message, "head 2 of layer 0 must be finite"));
        mha_head_data_free(data);
        mha_model_free(model);
        free(w);
    }
}

/* A text shorter than 64 tokens is in one half only. The measure `unique` requires two halves, so it must be NAN. */
static void unique_requires_two_halves(void **state)
{
    (void)state;
    mha_model *model = diversity_model(NULL, DIVERSITY_ENCODER, NULL, 0);
    mha_head_data *data = diversity_data(model, diversity_lengths, 1, 0);
    mha_diversity *d = diversity_of(model, data, (mha_diversity_options){0});
    assert_true(isnan(mha_diversity_value(d, MHA_DIVERSITY_UNIQUE, 0, 0, 0, 0)));
    assert_false(isnan(mha_diversity_value(d, MHA_DIVERSITY_CKA, 0, 0, 0, 1)));
    mha_diversity_free(d);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* ---- error messages ---- */

static void refusals(void **state)
{
    (void)state;
    mha_model *model = diversity_model(NULL, DIVERSITY_ENCODER, NULL, 0);
    mha_head_data *data = diversity_data(model, diversity_lengths, DIVERSITY_TEXTS, 0);
    mha_error err = {0};
    mha_diversity *d;
    mha_diversity_options options = {.size = sizeof options, .what = 1U << MHA_DIVERSITIES};
    assert_int_equal(mha_diversity_measure(model, data, &options, &d, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "0x80"));
    options = (mha_diversity_options){.size = sizeof options, .max_rows = -3};
    assert_int_equal(mha_diversity_measure(model, data, &options, &d, &err), MHA_ERR_ARG);
    assert_true(check_has_word(err.message, "-3"));
    assert_int_equal(mha_diversity_measure(NULL, data, NULL, &d, &err), MHA_ERR_ARG);
    assert_int_equal(mha_diversity_measure(model, NULL, NULL, &d, &err), MHA_ERR_ARG);
    assert_int_equal(mha_diversity_measure(model, data, NULL, NULL, &err), MHA_ERR_ARG);
    float out[81];
    assert_int_equal(mha_head_rollout(model, data, DIVERSITY_TEXTS, out, &err), MHA_ERR_ARG);
    assert_true(check_has_word(err.message, "9"));
    assert_int_equal(mha_head_rollout(model, data, -1, out, &err), MHA_ERR_ARG);
    assert_int_equal(mha_head_rollout(model, data, 0, NULL, &err), MHA_ERR_ARG);
    mha_diversity_free(NULL);
    mha_head_data_free(data);
    mha_model_free(model);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    mha_ctx *ctx;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = diversity_model(ctx, DIVERSITY_ENCODER, NULL, 0);
    mha_head_data *data = diversity_data(model, diversity_lengths, DIVERSITY_TEXTS, 0);
    const long before = memory.live;
    float out[81];
    mha_status status = MHA_ERR_MEMORY;
    long budget = 0;
    for (; status != MHA_OK; budget++) {
        mha_error err = {0};
        mha_diversity *d;
        memory.budget = memory.calls + budget;
        status = mha_diversity_measure(model, data, NULL, &d, &err);
        if (status == MHA_OK) status = mha_head_rollout(model, data, 0, out, &err);
        mha_diversity_free(d);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        assert_int_equal(memory.live, before);
    }
    assert_true(budget > 40);
    memory.budget = -1;
    mha_head_data_free(data);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_text_runs_in_passes), cmocka_unit_test(stopped_and_resumed),
        cmocka_unit_test(a_head_with_zero_output),    cmocka_unit_test(non_finite_values_are_named),
        cmocka_unit_test(unique_requires_two_halves), cmocka_unit_test(refusals),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
