/* test_heads_measure.c - measuring a tiny model: pooling over texts, threads, the probe's seed, cancelling, lack of
 * memory. */
#include "support/check.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "mha/heads.h"
#include "support/alloc.h"

static const char folder[] = MHA_TEST_DATA "/models/bert-tiny";
static const char *const texts[] = {"you keep the count", "and then again, they said", "wait for the tank"};
enum { TEXTS = 3 };

static mha_model *open_model(mha_ctx *ctx)
{
    mha_model *model;
    mha_error err = {0};
    if (mha_model_open(ctx, folder, NULL, &model, &err) != MHA_OK) fail_msg("%s", err.message);
    return model;
}

static mha_heads *measure(const mha_model *model, const char *const *some, int64_t count, mha_heads_options options)
{
    mha_heads *heads;
    mha_error err = {0};
    options.size = sizeof options;
    if (mha_heads_measure(model, some, count, &options, &heads, &err) != MHA_OK) fail_msg("%s", err.message);
    return heads;
}

/* Every score of every head of both, bit for bit (NAN equals NAN). */
static bool equal(const mha_heads *a, const mha_heads *b)
{
    for (int64_t l = 0; l < mha_heads_layers(a); l++)
        for (int64_t h = 0; h < mha_heads_count(a, l); h++)
            for (mha_head_metric m = 0; m < MHA_HEAD_METRICS; m++) {
                double x = mha_heads_value(a, l, h, m), y = mha_heads_value(b, l, h, m);
                if (memcmp(&x, &y, sizeof x) != 0) return false;
            }
    return true;
}

static void threads_change_nothing(void **state)
{
    (void)state;
    mha_model *plain = open_model(NULL);
    mha_heads *want = measure(plain, texts, TEXTS, (mha_heads_options){0});
    for (int threads = 1; threads <= 7; threads += 2) {
        mha_ctx *ctx;
        const mha_ctx_options options = {.size = sizeof options, .threads = threads};
        assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
        mha_model *model = open_model(ctx);
        mha_heads *heads = measure(model, texts, TEXTS, (mha_heads_options){0});
        assert_true(equal(heads, want));
        mha_heads_free(heads);
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
    mha_heads_free(want);
    mha_model_free(plain);
}

/* Together is the mean over rows: texts of n and m tokens weigh n and m. */
static void texts_pool_by_rows(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL);
    const mha_heads_options plain = {.no_probe = 1}, map = {.no_probe = 1, .keep_maps = 1};
    mha_heads *both = measure(model, texts, 2, plain), *a = measure(model, texts, 1, map),
              *b = measure(model, texts + 1, 1, map);
    double n = (double)mha_heads_tokens(a)->count, m = (double)mha_heads_tokens(b)->count;
    assert_true(n != m);
    for (int64_t l = 0; l < mha_heads_layers(both); l++)
        for (int64_t h = 0; h < mha_heads_count(both, l); h++) {
            double want =
                (n * mha_heads_value(a, l, h, MHA_HEAD_ENTROPY) + m * mha_heads_value(b, l, h, MHA_HEAD_ENTROPY)) /
                (n + m);
            assert_true(fabs(mha_heads_value(both, l, h, MHA_HEAD_ENTROPY) - want) < 1e-12);
            assert_true(isnan(mha_heads_value(both, l, h, MHA_HEAD_DUP_PROBE)));
        }
    mha_heads_free(both);
    mha_heads_free(a);
    mha_heads_free(b);
    mha_model_free(model);
}

static void seeds(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL);
    mha_heads *a = measure(model, texts, 1, (mha_heads_options){.seed = 1}),
              *again = measure(model, texts, 1, (mha_heads_options){.seed = 1}),
              *other = measure(model, texts, 1, (mha_heads_options){.seed = 2});
    assert_true(equal(a, again));
    assert_false(equal(a, other));
    mha_heads_free(a);
    mha_heads_free(again);
    mha_heads_free(other);
    mha_model_free(model);
}

static void cut_and_out_of_range(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL);
    mha_heads *heads = measure(model, texts, 1, (mha_heads_options){.max_tokens = 3, .keep_maps = 1});
    assert_int_equal(mha_heads_tokens(heads)->count, 3);
    assert_non_null(mha_heads_map(heads, 2, 3));
    assert_null(mha_heads_map(heads, 3, 0));
    assert_null(mha_heads_map(heads, 0, 4));
    assert_int_equal(mha_heads_count(heads, -1), 0);
    assert_true(isnan(mha_heads_value(heads, 0, 0, MHA_HEAD_METRICS)));
    assert_true(isnan(mha_heads_value(heads, 0, -1, MHA_HEAD_SELF)));
    mha_heads_free(heads);
    mha_heads_free(NULL);
    mha_model_free(model);
}

static void on_log(void *user, int level, const char *message)
{
    if (level == 0) snprintf(user, 1024, "%s", message);
}

/* A cut at the model's maximum is a warning, one that was asked for is none; a bad text is named. */
static void cuts_and_refusals_name_the_text(void **state)
{
    (void)state;
    char text[120 * 4 + 1] = "", heard[1024] = "";
    for (int i = 0; i < 120; i++)
        memcpy(text + 4 * i, "the ", 5);
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .log = on_log, .log_user = heard};
    mha_ctx *ctx;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = open_model(ctx);
    const char *both[] = {"the", text};
    mha_heads_free(measure(model, both, 2, (mha_heads_options){.max_tokens = 5, .no_probe = 1}));
    assert_string_equal(heard, "");
    mha_heads_free(measure(model, both, 2, (mha_heads_options){.no_probe = 1}));
    assert_string_equal(heard, "text 2 of 2: 122 tokens, 26 were cut off; the model takes 96");
    mha_heads *none;
    mha_error err = {0};
    both[1] = "a\xC3";
    assert_int_equal(mha_heads_measure(model, both, 2, NULL, &none, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "text 2 of 2: byte 1 (0xC3) of the text is not UTF-8");
    both[1] = NULL;
    assert_int_equal(mha_heads_measure(model, both, 2, NULL, &none, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "text 2 of 2 is NULL");
    mha_model_free(model);
    mha_ctx_free(ctx);
}

static int stop_at_second(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user;
    (void)total;
    return strcmp(what, "measure heads") == 0 && done >= 1;
}

static void cancelled(void **state)
{
    (void)state;
    mha_ctx *ctx;
    const mha_ctx_options options = {.size = sizeof options, .progress = stop_at_second};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = open_model(ctx);
    mha_heads *heads;
    assert_int_equal(mha_heads_measure(model, texts, TEXTS, NULL, &heads, NULL), MHA_ERR_CANCELLED);
    assert_null(heads);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

/* Every allocation fails in turn: a status, nothing left behind, and the model still usable. */
static void no_memory(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    mha_ctx *ctx;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = open_model(ctx);
    const long live = memory.live;
    const mha_heads_options kept = {.size = sizeof kept, .keep_maps = 1};
    long failures = 0;
    for (;; failures++) {
        mha_heads *heads;
        memory.budget = memory.calls + failures;
        mha_status status = mha_heads_measure(model, texts, 1, &kept, &heads, NULL);
        memory.budget = -1;
        if (status == MHA_OK) {
            mha_heads_free(heads);
            assert_int_equal(memory.live, live);
            break;
        }
        assert_int_equal(status, MHA_ERR_MEMORY);
        assert_null(heads);
        assert_int_equal(memory.live, live);
    }
    assert_true(failures >= 8);
    mha_model_free(model);
    mha_ctx_free(ctx);
    assert_int_equal(memory.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(texts_pool_by_rows),
        cmocka_unit_test(seeds),
        cmocka_unit_test(cut_and_out_of_range),
        cmocka_unit_test(cuts_and_refusals_name_the_text),
        cmocka_unit_test(cancelled),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
