/* test_logit_lens.c - tests the logit lens: its last entry is the output of the model, every entry the output of a
 * shorter model, order and ranks are those of a sort, and refusals. */
#include "mha/layer.h"
#include "mha/logit_lens.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 7 };

static const char *const folders[] = {"models/gpt2-tiny",     "models/gemma2-tiny", "models/bert-mlm-tiny",
                                      "families/llama",       "families2/cohere",   "families2/granite",
                                      "families2/modernbert", "families2/opt",      "families2/opt-post",
                                      "families2/electra",    "families2/albert",   "families2/bloom"};
enum { FOLDERS = sizeof folders / sizeof *folders };

static int32_t ids[T];

static mha_model *open_model(mha_ctx *ctx, const char *folder)
{
    const mha_model_options options = {.size = sizeof options, .no_tokenizer = 1};
    mha_model *model = case_model(ctx, folder, &options);
    for (int n = 0; n < T; n++)
        ids[n] = (int32_t)((7 + 31 * n) % mha_model_describe(model)->vocab);
    return model;
}

static mha_logit_lens *measure(const mha_model *model, int64_t top, const int32_t *targets)
{
    const mha_logit_lens_options o = {.size = sizeof o, .top = top, .targets = targets};
    mha_logit_lens *lens;
    mha_error err = {0};
    if (mha_logit_lens_measure(model, ids, T, &o, &lens, &err) != MHA_OK) fail_msg("%s", err.message);
    return lens;
}

static double log_sum(const float *logits, int64_t vocab)
{
    double max = -INFINITY, sum = 0;
    for (int64_t v = 0; v < vocab; v++)
        max = fmax(max, (double)logits[v]);
    for (int64_t v = 0; v < vocab; v++)
        sum += exp((double)logits[v] - max);
    return max + log(sum);
}

/* Fails unless entry n of the lens has the top tokens, the target and the rank of a row of logits. */
static void check_row(const mha_logit_lens *lens, int64_t n, const float *logits, int64_t vocab, int32_t target)
{
    const double sum = log_sum(logits, vocab);
    int64_t rank = 0;
    for (int64_t v = 0; v < vocab; v++)
        rank += logits[v] > logits[target] || (logits[v] == logits[target] && v < target);
    assert_int_equal(lens->target_ranks[n], rank);
    assert_true(fabs(lens->target_logprobs[n] - ((double)logits[target] - sum)) < 1e-5);
    for (int64_t i = 0; i < lens->top; i++) {
        const int32_t id = lens->top_ids[n * lens->top + i];
        int64_t before = 0;
        for (int64_t v = 0; v < vocab; v++)
            before += logits[v] > logits[id] || (logits[v] == logits[id] && v < id);
        assert_int_equal(before, i);
        assert_true(fabs(lens->top_probs[n * lens->top + i] - exp((double)logits[id] - sum)) < 1e-5);
    }
}

static void last_entry_is_the_output_of_the_model(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        mha_model *model = open_model(NULL, folders[f]);
        const mha_model_info *info = mha_model_describe(model);
        float *logits = calloc((size_t)(T * info->vocab), sizeof *logits);
        const mha_model_input in = {.size = sizeof in, .batch = 1, .length = T, .ids = ids};
        const mha_model_output out = {.size = sizeof out, .logits = logits};
        assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
        const int32_t targets[T] = {3, 1, 4, 1, 5, 9, 2};
        mha_logit_lens *lens = measure(model, 6, targets);
        assert_int_equal(lens->entries, info->layers + 1);
        for (int t = 0; t < T; t++) {
            const int64_t n = info->layers * T + t;
            check_row(lens, n, logits + t * info->vocab, info->vocab, targets[t]);
            assert_true(lens->divergences[n] == 0);
            for (int64_t entry = 0; entry < info->layers; entry++)
                assert_true(lens->divergences[entry * T + t] > -1e-7);
        }
        mha_logit_lens_free(lens);
        free(logits);
        mha_model_free(model);
    }
}

/* Entry n is the output of a model that ends after layer n - 1. */
static void entries_are_outputs_of_shorter_models(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL, "models/gpt2-tiny");
    const mha_model_info *info = mha_model_describe(model);
    mha_logit_lens *lens = measure(model, 4, NULL);
    for (int layers = 1; layers < info->layers; layers++) {
        char text[2000];
        const char *at = strstr(mha_model_config_json(model), "\"n_layer\"");
        assert_non_null(at);
        const char *digit = at + strcspn(at, "0123456789");
        snprintf(text, sizeof text, "%.*s%d%s", (int)(digit - mha_model_config_json(model)),
                 mha_model_config_json(model), layers, digit + strspn(digit, "0123456789"));
        const mha_model_options options = {.size = sizeof options, .no_tokenizer = 1, .config_json = text};
        mha_model *shorter = case_model(NULL, "models/gpt2-tiny", &options);
        mha_logit_lens *less = measure(shorter, 4, NULL);
        const size_t count = (size_t)(T * 4);
        assert_memory_equal(lens->top_ids + (size_t)layers * count, less->top_ids + (size_t)layers * count,
                            count * sizeof(int32_t));
        assert_memory_equal(lens->top_probs + (size_t)layers * count, less->top_probs + (size_t)layers * count,
                            count * sizeof(double));
        mha_logit_lens_free(less);
        mha_model_free(shorter);
    }
    mha_logit_lens_free(lens);
    mha_model_free(model);
}

static void default_targets(void **state)
{
    (void)state;
    mha_model *decoder = open_model(NULL, "models/gpt2-tiny");
    mha_logit_lens *lens = measure(decoder, 0, NULL);
    assert_int_equal(lens->top, 5);
    for (int t = 0; t + 1 < T; t++)
        assert_int_equal(lens->targets[t], ids[t + 1]);
    assert_int_equal(lens->targets[T - 1], MHA_IGNORE);
    assert_int_equal(lens->target_ranks[T - 1], -1);
    assert_true(isnan(lens->target_logprobs[T - 1]));
    mha_logit_lens_free(lens);
    mha_model_free(decoder);
    mha_model *encoder = open_model(NULL, "models/bert-mlm-tiny");
    lens = measure(encoder, 1, NULL);
    assert_memory_equal(lens->targets, ids, sizeof ids);
    mha_logit_lens_free(lens);
    mha_model_free(encoder);
}

/* ---- refusals ---- */

static void refuse(const mha_model *model, mha_logit_lens_options o, mha_status status, const char *words)
{
    mha_logit_lens *lens = NULL;
    mha_error err = {0};
    o.size = sizeof o;
    const mha_status got = mha_logit_lens_measure(model, ids, T, &o, &lens, &err);
    if (got != status || !strstr(err.message, words)) fail_msg("status %d: %s", (int)got, err.message);
    assert_null(lens);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    mha_logit_lens *lens;
    mha_error err = {0};
    mha_model *model = open_model(NULL, "models/gpt2-tiny");
    const int32_t bad[T] = {0, 1, -1};
    refuse(model, (mha_logit_lens_options){.top = -1}, MHA_ERR_ARG, "top must be from 0 to");
    refuse(model, (mha_logit_lens_options){.top = 1 << 30}, MHA_ERR_ARG, "(got 1073741824)");
    refuse(model, (mha_logit_lens_options){.targets = bad}, MHA_ERR_ARG, "targets[2] must be from 0 to");
    ids[3] = 1 << 20;
    refuse(model, (mha_logit_lens_options){0}, MHA_ERR_ARG, "1048576");
    assert_int_equal(mha_logit_lens_measure(model, ids, 0, NULL, &lens, &err), MHA_ERR_ARG);
    assert_int_equal(mha_logit_lens_measure(model, NULL, T, NULL, &lens, &err), MHA_ERR_ARG);
    assert_int_equal(mha_logit_lens_measure(NULL, ids, T, NULL, &lens, &err), MHA_ERR_ARG);
    assert_int_equal(mha_logit_lens_measure(model, ids, T, NULL, NULL, &err), MHA_ERR_ARG);
    mha_logit_lens_free(NULL);
    mha_model_free(model);
    model = open_model(NULL, "models/bert-tiny");
    refuse(model, (mha_logit_lens_options){0}, MHA_ERR_UNSUPPORTED, "output head");
    mha_model_free(model);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    counting count = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&count)};
    mha_ctx *ctx;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = open_model(ctx, "models/bert-mlm-tiny");
    const long live = count.live;
    mha_status status = MHA_ERR_MEMORY;
    int failures = 0;
    for (; status != MHA_OK && failures < 100; failures++) {
        mha_logit_lens *lens = NULL;
        mha_error err = {0};
        count.budget = count.calls + failures;
        status = mha_logit_lens_measure(model, ids, T, NULL, &lens, &err);
        assert_true(status == MHA_OK || (status == MHA_ERR_MEMORY && err.message[0]));
        mha_logit_lens_free(lens);
        assert_int_equal(count.live, live);
    }
    assert_true(failures > 4 && status == MHA_OK);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_entry_is_the_output_of_the_model),
        cmocka_unit_test(entries_are_outputs_of_shorter_models),
        cmocka_unit_test(default_targets),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
