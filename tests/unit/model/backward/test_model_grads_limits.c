/* test_model_grads_limits.c - rejected calls and failed allocations of gradients of whole models. */
#include "support/alloc.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/passes/grads_case.h"
#include <math.h>
#include <string.h>

enum { B = GRADS_B, L = GRADS_L };

/* ---- error messages and failed allocations ---- */

static void refused(mha_status got, mha_status want, const mha_error *err, const char *part)
{
    assert_int_equal(got, want);
    if (!strstr(err->message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err->message);
}

static int refuse_hidden(void *user, int64_t entry, const float *x)
{
    (void)user, (void)entry, (void)x;
    return 1;
}

static void test_refusals(void **state)
{
    (void)state;
    mha_error err = {0};
    mha_model *model = case_open(NULL, grads_families[1]), *encoder = case_open(NULL, "models/bert-tiny");
    mha_model *empty =
        case_model(NULL, grads_families[1], &(mha_model_options){.size = sizeof(mha_model_options), .no_weights = 1});
    mha_model_grads *grads = grads_create(model, 1, 0), *of_encoder = grads_create(encoder, 0, 0), *none = NULL;
    mha_model_input input = grads_input(model, false);
    float x[4];
    int64_t count = 1;
    assert_true(!mha_model_grads_list(grads, &count) && count == 0);
    refused(mha_model_grads_create(empty, NULL, &none, &err), MHA_ERR_ARG, &err, "no_weights");
    mha_model *half =
        case_model(NULL, grads_families[1], &(mha_model_options){.size = sizeof(mha_model_options), .dtype = MHA_F16});
    refused(mha_model_grads_create(half, NULL, &none, &err), MHA_ERR_UNSUPPORTED, &err,
            "dtype of the model must be f32 or bf16 for gradients (got f16)");
    mha_model_free(half);
    refused(mha_model_grads_create(NULL, NULL, &none, &err), MHA_ERR_ARG, &err, "model must not be NULL");
    refused(mha_model_grads_backward(grads, NULL, &err), MHA_ERR_ARG, &err,
            "mha_model_grads_forward must be called first");
    mha_model_output out = {.size = sizeof out, .on_hidden = refuse_hidden};
    refused(mha_model_grads_forward(grads, &input, &out, &err), MHA_ERR_UNSUPPORTED, &err, "on_hidden");
    out = (mha_model_output){.size = sizeof out, .pooled = x};
    refused(mha_model_grads_forward(grads, &input, &out, &err), MHA_ERR_UNSUPPORTED, &err, "must have a pooler");
    grads_labels[4] = 1 << 20;
    mha_model_loss_args args = {.size = sizeof args, .labels = grads_labels};
    refused(mha_model_grads_loss(grads, &input, &args, NULL, NULL, &err), MHA_ERR_ARG, &err, "1048576");
    args.scale = NAN;
    refused(mha_model_grads_loss(grads, &input, &args, NULL, NULL, &err), MHA_ERR_ARG, &err, "scale");
    refused(mha_model_grads_loss(of_encoder, &input, &args, NULL, NULL, &err), MHA_ERR_UNSUPPORTED, &err,
            "must have an output head");
    grads_ids[2] = -1;
    refused(mha_model_grads_forward(grads, &input, NULL, &err), MHA_ERR_ARG, &err,
            "ids[2] must be from 0 to 639 (got -1)");
    refused(mha_model_grads_backward(grads, NULL, &err), MHA_ERR_ARG, &err,
            "mha_model_grads_forward must be called first");
    mha_model_cache *cache = NULL;
    const mha_model_cache_options o = {.size = sizeof o, .batch = B, .tokens = 2 * L};
    assert_int_equal(mha_model_cache_create(model, &o, &cache, NULL), MHA_OK);
    input = grads_input(model, false);
    input.cache = cache;
    refused(mha_model_grads_forward(grads, &input, NULL, &err), MHA_ERR_UNSUPPORTED, &err, "cache");
    mha_model_cache_free(cache);
    mha_model_grads_free(grads);
    mha_model_grads_free(of_encoder);
    mha_model_free(model);
    mha_model_free(encoder);
    mha_model_free(empty);
}

/* With a budget of 0, 1, 2, ... allocations, each failed call must return MHA_ERR_MEMORY and free its memory. The next
 * call on the same object must succeed. */
static void test_no_memory(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = case_open(ctx, grads_families[0]);
    const mha_model_input input = grads_input(model, false);
    const mha_model_loss_args args = {.size = sizeof args, .labels = grads_labels};
    const long live = memory.live;
    mha_status status = MHA_ERR_MEMORY;
    long n = 0;
    for (; status != MHA_OK; n++) {
        mha_model_grads *grads = NULL;
        memory.budget = memory.calls + n;
        status = mha_model_grads_create(model, NULL, &grads, NULL);
        if (status == MHA_OK) status = mha_model_grads_loss(grads, &input, &args, NULL, NULL, NULL);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        memory.budget = -1;
        if (grads && status != MHA_OK)
            assert_int_equal(mha_model_grads_loss(grads, &input, &args, NULL, NULL, NULL), MHA_OK);
        mha_model_grads_free(grads);
        assert_int_equal(memory.live, live);
    }
    assert_true(n > 20);
    mha_model_free(model);
    mha_ctx_free(ctx);
    assert_int_equal(memory.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
