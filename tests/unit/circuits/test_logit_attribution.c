/* test_logit_attribution.c - tests logit attributions in every family of decoders: the parts add up to the logit of the
 * model, heads are sums over their sources, and refusals. */
#include "mha/logit_attribution.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 9 };

static const char *const folders[] = {"models/gpt2-tiny",
                                      "models/gemma2-tiny",
                                      "families/llama",
                                      "families/llama-yarn",
                                      "families/llama-f16",
                                      "families/qwen2-window",
                                      "families/qwen3",
                                      "families2/phi3",
                                      "families2/phi",
                                      "families2/gpt-neox",
                                      "families2/gpt-neox-parallel",
                                      "families2/bloom",
                                      "families2/cohere",
                                      "families2/olmo2",
                                      "families2/granite",
                                      "families2/gemma3",
                                      "families2/mixtral",
                                      "families2/deepseek-v3",
                                      "families2/gpt-oss",
                                      "families2/smollm3",
                                      "families2/opt"};
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

static mha_logit_attribution *measure(const mha_model *model, int64_t position, int32_t answer, int32_t wrong)
{
    const mha_logit_attribution_options o = {.size = sizeof o, .position = position, .answer = answer, .wrong = wrong};
    mha_logit_attribution *a;
    mha_error err = {0};
    if (mha_logit_attribution_measure(model, ids, T, &o, &a, &err) != MHA_OK) fail_msg("%s", err.message);
    return a;
}

static double sum_of(const double *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += x[i];
    return sum;
}

static double whole_of(const mha_logit_attribution *a, int n)
{
    const int64_t L = a->layers, H = a->head_count;
    return a->embed[n] + a->pos_embed[n] + a->norm_bias[n] + a->logit_bias[n] + sum_of(a->heads + n * L * H, L * H) +
           sum_of(a->attn_bias + n * L, L) + sum_of(a->mlps + n * L, L);
}

/* Undoes the cap of logits. */
static double uncapped(double logit, double cap)
{
    return cap > 0 ? cap * atanh(logit / cap) : logit;
}

static void parts_add_up_to_the_logits_of_the_model(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        mha_model *model = open_model(NULL, folders[f]);
        const int64_t vocab = mha_model_describe(model)->vocab, position = 3 + f % (T - 3);
        const double cap = strstr(folders[f], "gemma2") ? 6.0 : 0;
        float *logits = calloc((size_t)(T * vocab), sizeof *logits);
        const mha_model_input in = {.size = sizeof in, .batch = 1, .length = T, .ids = ids};
        const mha_model_output out = {.size = sizeof out, .logits = logits};
        assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
        mha_logit_attribution *a = measure(model, position, 11, 23);
        const double answer = uncapped((double)logits[position * vocab + 11], cap);
        const double wrong = uncapped((double)logits[position * vocab + 23], cap);
        double mean = 0;
        for (int64_t v = 0; v < vocab; v++)
            mean += uncapped((double)logits[position * vocab + v], cap) / (double)vocab;
        const double want[] = {answer - wrong, answer, answer - mean};
        for (int n = 0; n < MHA_LOGIT_TARGETS; n++)
            if (!(fabs(a->total[n] - want[n]) < 1e-5 && fabs(whole_of(a, n) - want[n]) < 1e-5))
                fail_msg("%s %d: total %.8g, sum %.8g instead of %.8g", folders[f], n, a->total[n], whole_of(a, n),
                         want[n]);
        assert_true(a->error < 1e-5);
        mha_logit_attribution_free(a);
        free(logits);
        mha_model_free(model);
    }
}

static void heads_are_sums_over_sources(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        mha_model *model = open_model(NULL, folders[f]);
        mha_logit_attribution *a = measure(model, 4, 5, 6);
        for (int64_t i = 0; i < MHA_LOGIT_TARGETS * a->layers * a->head_count; i++) {
            const double *sources = a->sources + i * T;
            assert_true(fabs(sum_of(sources, T) - a->heads[i]) < 1e-5);
            for (int t = 5; t < T; t++)
                assert_true(sources[t] == 0); /* the position does not attend to later tokens */
        }
        mha_logit_attribution_free(a);
        mha_model_free(model);
    }
}

/* In a decoder, tokens after the position change no part, bit by bit. */
static void parts_do_not_depend_on_later_tokens(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL, "families/llama");
    mha_logit_attribution *before = measure(model, 4, 5, 6);
    ids[T - 1] = (ids[T - 1] + 1) % 50;
    mha_logit_attribution *after = measure(model, 4, 5, 6);
    const size_t count = (size_t)(MHA_LOGIT_TARGETS * before->layers * before->head_count);
    assert_memory_equal(before->heads, after->heads, count * sizeof(double));
    assert_memory_equal(before->total, after->total, sizeof before->total);
    mha_logit_attribution_free(before);
    mha_logit_attribution_free(after);
    mha_model_free(model);
}

static void answers_are_antisymmetric_and_optional(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL, "models/gpt2-tiny");
    mha_logit_attribution *a = measure(model, T - 1, 5, 6), *b = measure(model, T - 1, 6, 5),
                          *one = measure(model, T - 1, 5, -1);
    const int64_t count = a->layers * a->head_count;
    for (int64_t i = 0; i < count; i++) {
        assert_true(fabs(a->heads[i] + b->heads[i]) < 1e-12);
        assert_true(isnan(one->heads[i]) && isnan(one->sources[i * T]));
    }
    assert_true(isnan(one->total[MHA_LOGIT_DIFFERENCE]) && isnan(one->embed[MHA_LOGIT_DIFFERENCE]));
    assert_memory_equal(one->heads + count, a->heads + count, (size_t)(2 * count) * sizeof(double));
    assert_true(one->error == a->error || one->error < 1e-5);
    mha_logit_attribution_free(a);
    mha_logit_attribution_free(b);
    mha_logit_attribution_free(one);
    mha_model_free(model);
}

static void threads_do_not_change_bits(void **state)
{
    (void)state;
    double first[MHA_LOGIT_TARGETS * 64];
    size_t bytes = 0;
    for (int threads = 1; threads <= 4; threads += 3) {
        mha_ctx *ctx;
        const mha_ctx_options options = {.size = sizeof options, .threads = threads};
        assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
        mha_model *model = open_model(ctx, "families/llama");
        mha_logit_attribution *a = measure(model, T - 1, 5, 6);
        bytes = (size_t)(MHA_LOGIT_TARGETS * a->layers * a->head_count) * sizeof(double);
        assert_true(bytes <= sizeof first);
        if (threads == 1) memcpy(first, a->heads, bytes);
        assert_memory_equal(first, a->heads, bytes);
        mha_logit_attribution_free(a);
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
}

/* ---- refusals ---- */

static void refuse(const mha_model *model, mha_logit_attribution_options o, mha_status status, const char *words)
{
    mha_logit_attribution *a = NULL;
    mha_error err = {0};
    o.size = sizeof o;
    const mha_status got = mha_logit_attribution_measure(model, ids, T, &o, &a, &err);
    if (got != status || !strstr(err.message, words)) fail_msg("status %d: %s", (int)got, err.message);
    assert_null(a);
}

static void models_without_an_exact_sum_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"models/bert-mlm-tiny", "got bert: a norm after each layer"},
        {"families2/opt-post", "got opt: a norm after each layer"},
        {"families2/modernbert", "got modernbert: an activation lies before the output matrix"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mha_model *model = open_model(NULL, cases[i][0]);
        refuse(model, (mha_logit_attribution_options){0}, MHA_ERR_UNSUPPORTED, cases[i][1]);
        mha_model_free(model);
    }
}

static void arguments_are_checked(void **state)
{
    (void)state;
    mha_logit_attribution *a;
    mha_error err = {0};
    mha_model *model = open_model(NULL, "models/gpt2-tiny");
    const mha_logit_attribution_options o = {.size = sizeof o};
    refuse(model, (mha_logit_attribution_options){.position = -1}, MHA_ERR_ARG,
           "position must be from 0 to 8 (got -1)");
    refuse(model, (mha_logit_attribution_options){.position = T}, MHA_ERR_ARG, "position must be from 0 to 8 (got 9)");
    refuse(model, (mha_logit_attribution_options){.answer = -1}, MHA_ERR_ARG, "answer must be from 0 to");
    refuse(model, (mha_logit_attribution_options){.answer = 1 << 30}, MHA_ERR_ARG, "(got 1073741824)");
    refuse(model, (mha_logit_attribution_options){.wrong = -2}, MHA_ERR_ARG, "or -1 (got -2)");
    ids[2] = -7;
    refuse(model, (mha_logit_attribution_options){0}, MHA_ERR_ARG, "-7");
    assert_int_equal(mha_logit_attribution_measure(model, ids, 0, &o, &a, &err), MHA_ERR_ARG);
    assert_int_equal(mha_logit_attribution_measure(model, NULL, T, &o, &a, &err), MHA_ERR_ARG);
    assert_int_equal(mha_logit_attribution_measure(model, ids, T, NULL, &a, &err), MHA_ERR_ARG);
    assert_int_equal(mha_logit_attribution_measure(NULL, ids, T, &o, &a, &err), MHA_ERR_ARG);
    assert_int_equal(mha_logit_attribution_measure(model, ids, T, &o, NULL, &err), MHA_ERR_ARG);
    mha_logit_attribution_free(NULL);
    mha_model_free(model);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    counting count = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&count)};
    mha_ctx *ctx;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = open_model(ctx, "families/llama-f16"); /* whose weights are converted during the pass */
    const long live = count.live;
    mha_status status = MHA_ERR_MEMORY;
    int failures = 0;
    for (; status != MHA_OK && failures < 100; failures++) {
        const mha_logit_attribution_options o = {.size = sizeof o, .position = T - 1, .answer = 1, .wrong = 2};
        mha_logit_attribution *a = NULL;
        mha_error err = {0};
        count.budget = count.calls + failures;
        status = mha_logit_attribution_measure(model, ids, T, &o, &a, &err);
        if (status != MHA_OK && (status != MHA_ERR_MEMORY || !err.message[0]))
            fail_msg("%d: %s", (int)status, err.message);
        mha_logit_attribution_free(a);
        assert_int_equal(count.live, live);
    }
    assert_true(failures > 5 && status == MHA_OK);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_add_up_to_the_logits_of_the_model),
        cmocka_unit_test(heads_are_sums_over_sources),
        cmocka_unit_test(parts_do_not_depend_on_later_tokens),
        cmocka_unit_test(answers_are_antisymmetric_and_optional),
        cmocka_unit_test(threads_do_not_change_bits),
        cmocka_unit_test(models_without_an_exact_sum_are_refused),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
