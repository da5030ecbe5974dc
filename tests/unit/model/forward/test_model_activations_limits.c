/* test_model_activations_limits.c - rejected requests, cancellation and failed allocations of passes with callbacks for
 * activations. */
#include "support/alloc.h"
#include "support/check.h"
#include "support/passes/inner_case.h"
#include <stdlib.h>
#include <string.h>

enum { B = INNER_B, L = INNER_L, TOKENS = B * L, LAYERS = INNER_LAYERS, H = INNER_H, WIDEST = INNER_WIDEST };
static mha_error err;

/* ---- threads, error messages and failed allocations ---- */

static int stop_second(void *user, const mha_model_activations *a)
{
    (void)user;
    return a->layer == 1;
}

static void invalid_requests(void **state)
{
    (void)state;
    float *x = calloc(TOKENS * WIDEST, sizeof *x);
    mha_model *model = inner_open(NULL, INNER_SLIDING, MHA_DTYPE_DEFAULT);
    mha_model_cache *cache = NULL;
    const mha_model_cache_options o = {.size = sizeof o, .batch = B};
    assert_int_equal(mha_model_cache_create(model, &o, &cache, &err), MHA_OK);
    const struct {
        int64_t first;
        const float *hidden;
        mha_model_cache *cache;
        bool no_ids;
        const char *sentence;
    } wrong[] = {
        {1, NULL, NULL, false, "hidden must not be NULL with first_layer = 1"},
        {-1, x, NULL, false, "first_layer must be from 0 to 3 (got -1)"},
        {4, x, NULL, false, "first_layer must be from 0 to 3 (got 4)"},
        {2, x, cache, false, "first_layer must be 0 with cache, since lower layers would not cache the tokens (got 2)"},
        {0, NULL, NULL, true, "ids must not be NULL"},
    };
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        mha_model_input in = inner_input(INNER_PLAIN);
        in.first_layer = wrong[n].first;
        in.hidden = wrong[n].hidden;
        in.cache = wrong[n].cache;
        if (wrong[n].no_ids) in.ids = NULL;
        assert_int_equal(mha_model_forward(model, &in, NULL, &err), MHA_ERR_ARG);
        if (!strstr(err.message, wrong[n].sentence)) fail_msg("%s", err.message);
    }
    mha_model_input changed = inner_input(INNER_PLAIN);
    changed.context = x;
    assert_int_equal(mha_model_forward(model, &changed, NULL, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_model_input: context must be NULL without hidden");
    changed.hidden = x;
    const mha_model_input in = inner_input(INNER_PLAIN);
    const mha_model_output out = {.size = sizeof out, .on_activations = stop_second};
    assert_int_equal(mha_model_forward(model, &changed, &out, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_model_output: on_activations must not be requested with context, because it "
                                     "replaces the output of attention");
    assert_int_equal(mha_model_forward(model, &in, &out, &err), MHA_ERR_CANCELED);
    assert_string_equal(err.message, "stopped by on_activations at layer 1");
    mha_model_cache_free(cache);
    mha_model_free(model);
    free(x);
}

/* The callbacks must not cause further allocations. If an allocation fails, the pass must fail with MHA_ERR_MEMORY. */
static void running_out_of_memory(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&memory)};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
    mha_model *model = inner_open(ctx, INNER_ENCODER, MHA_DTYPE_DEFAULT);
    const long live = memory.live;
    mha_model_input in = inner_input(INNER_FILLED);
    long calls[2];
    for (int shown = 0; shown < 2; shown++) {
        const long before = memory.calls;
        inner_seen s = inner_run(model, &in, shown != 0);
        calls[shown] = memory.calls - before;
        inner_seen_free(&s);
    }
    assert_int_equal(calls[0], 2);
    assert_int_equal(calls[1], 2);
    for (long n = 0; n <= 2; n++) {
        inner_seen s = {.width = mha_model_describe(model)->hidden, .rows = TOKENS};
        const mha_model_output out = {.size = sizeof out, .on_activations = inner_keep_activations, .user = &s};
        memory.budget = memory.calls + n;
        assert_int_equal(mha_model_forward(model, &in, &out, &err), n < 2 ? MHA_ERR_MEMORY : MHA_OK);
        assert_int_equal(memory.live, live);
        inner_seen_free(&s);
    }
    mha_model_free(model);
    mha_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_requests),
        cmocka_unit_test(running_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
