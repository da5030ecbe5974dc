/* test_model_layers.c - tests layers that are composed with the config keys mha.feed_forward and mha.attention. Logits
 * are compared with a decoder in double that implements the formulas directly, gradients with finite differences of
 * that decoder, and packed and cached passes with whole passes. */
#include "mha/generate.h"
#include "mha/model_create.h"
#include "support/check.h"
#include "support/model/composed.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 11 };

/* Returns the reference decoder of case `c`, with the weights of `model`. */
static naive_decoder naive_of(const composed *c, bool gpt2, const mha_model *model)
{
    naive_decoder d = {gpt2, V, 32, LAYERS, HEADS, HEADS, 8, 1e-5, {{0}}, NULL, 0};
    mha_trainer *trainer = composed_trainer(model);
    int64_t count;
    const mha_named_tensor *weights = mha_trainer_weights(trainer, &count);
    memcpy(d.layer, c->layer, sizeof c->layer);
    naive_take(&d, weights, count);
    mha_trainer_free(trainer);
    return d;
}

/* ---- comparison with the reference decoder ---- */

static void check_logits(const composed *c, bool gpt2, const mha_model *model)
{
    naive_decoder d = naive_of(c, gpt2, model);
    int32_t ids[B * L];
    double *want = malloc(sizeof(double[L * V])), worst = 0;
    float *got = composed_logits(model, NULL);
    composed_texts(ids);
    for (int b = 0; b < B; b++) {
        naive_logits(&d, ids + b * L, L, want);
        for (int i = 0; i < L * V; i++)
            worst = fmax(worst, fabs(want[i] - (double)got[b * L * V + i]));
    }
    if (!(worst < 2e-5))
        fail_msg("%s: error of the logits must be below 2e-5 (got %g)", composed_config(c, gpt2), worst);
    free(want), free(got);
    naive_free(&d);
}

static void test_logits_against_the_formulas(void **state)
{
    (void)state;
    for (int n = 0; n < 2 * COMPOSED_CASES; n++) {
        mha_model *model = case_create(NULL, composed_config(&composed_cases[n / 2], n % 2), SEED);
        check_logits(&composed_cases[n / 2], n % 2, model);
        mha_model_free(model);
    }
}

/* Compares the gradients of a few elements of each tensor with finite differences of the loss of the reference. */
static void check_gradients(const composed *c, bool gpt2, const mha_model *model, int recompute)
{
    const double step = 1e-5;
    const mha_model_grads_options o = {.size = sizeof o, .recompute = recompute};
    const mha_model_loss_args args = {.size = sizeof args};
    naive_decoder d = naive_of(c, gpt2, model);
    mha_model_grads *grads = NULL;
    int32_t ids[B * L];
    int64_t count;
    double loss;
    mha_error err = {0};
    composed_texts(ids);
    const mha_model_input in = {.size = sizeof in, .batch = B, .length = L, .ids = ids};
    assert_int_equal(mha_model_grads_create(model, &o, &grads, &err), MHA_OK);
    if (mha_model_grads_loss(grads, &in, &args, &loss, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    assert_true(fabs(loss - naive_loss(&d, ids, B, L)) < 1e-5);
    const mha_named_tensor *list = mha_model_grads_list(grads, &count);
    assert_int_equal(count, d.count);
    for (int64_t n = 0; n < count; n++) {
        const int64_t all = list[n].shape[0] * (list[n].rank == 2 ? list[n].shape[1] : 1);
        assert_string_equal(list[n].name, d.weights[n].name);
        for (int64_t k = 0; k < 3; k++) {
            const int64_t at = (5 + 1 + 29 * k + k * all / 3) % all;
            double *w = (double *)d.weights[n].data + at, was = *w, difference;
            *w = was + step;
            difference = naive_loss(&d, ids, B, L);
            *w = was - step;
            difference -= naive_loss(&d, ids, B, L);
            *w = was;
            const double got = (double)((const float *)list[n].data)[at];
            if (!(fabs(difference / (2 * step) - got) < 2e-5))
                fail_msg("%s: %s[%lld]: gradient %g, expected %g by finite differences", composed_config(c, gpt2),
                         list[n].name, (long long)at, got, difference / (2 * step));
        }
    }
    mha_model_grads_free(grads);
    naive_free(&d);
}

static void test_gradients_against_differences(void **state)
{
    (void)state;
    for (int n = 0; n < 2 * COMPOSED_CASES; n++) {
        mha_model *model = case_create(NULL, composed_config(&composed_cases[n / 2], n % 2), SEED);
        check_gradients(&composed_cases[n / 2], n % 2, model, n / 2 % 2);
        mha_model_free(model);
    }
}

/* ---- packed and cached passes ---- */

/* The logits of packed sequences, and of sequences that are passed token by token with a cache, must be bitwise
 * identical to those of the batch. */
static void test_packed_and_cached_are_bitwise_identical(void **state)
{
    (void)state;
    const int64_t starts[] = {0, L, 2 * L};
    int32_t ids[B * L];
    composed_texts(ids);
    for (int n = 0; n < 2 * COMPOSED_CASES; n++) {
        mha_model *model = case_create(NULL, composed_config(&composed_cases[n / 2], n % 2), SEED);
        float *whole = composed_logits(model, NULL), *other = calloc(B * L * V, sizeof *other);
        mha_model_input in = {.size = sizeof in, .batch = B, .ids = ids, .starts = starts};
        mha_model_output out = {.size = sizeof out, .logits = other};
        assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
        composed_same(whole, other, B * L * V, "packed");
        const mha_model_cache_options o = {.size = sizeof o, .page_size = 16};
        mha_model_cache *cache = NULL;
        assert_int_equal(mha_model_cache_create(model, &o, &cache, NULL), MHA_OK);
        for (int i = 0; i < L; i++) {
            in = (mha_model_input){.size = sizeof in, .batch = 1, .length = 1, .ids = ids + i, .cache = cache};
            out = (mha_model_output){.size = sizeof out, .logits = other};
            assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
            composed_same(whole + i * V, other, V, "cached");
        }
        mha_model_cache_free(cache);
        free(whole), free(other);
        mha_model_free(model);
    }
}

/* Greedy generation must give the same tokens with a cache and without one. */
static void test_generates(void **state)
{
    (void)state;
    const int32_t prompt[] = {5, 9, 1, 30, 5, 9};
    for (int n = 0; n < 2 * COMPOSED_CASES; n++) {
        int32_t out[2][16];
        mha_model *model = case_create(NULL, composed_config(&composed_cases[n / 2], n % 2), SEED);
        const mha_prompt p = {prompt, 6};
        for (int again = 0; again < 2; again++) {
            const mha_generate_options o = {.size = sizeof o, .max_new = 16, .eos_count = -1, .no_cache = again};
            int64_t length = 0;
            assert_int_equal(mha_model_generate(model, &p, 1, &o, out[again], &length, NULL), MHA_OK);
            assert_int_equal(length, 16);
        }
        assert_memory_equal(out[0], out[1], sizeof *out);
        mha_model_free(model);
    }
}

/* ---- encoders ---- */

/* Callback: in an encoder, layer 1 must attend to a window of 3 tokens on each side including the query, and other
 * layers to all tokens. */
static int look_at_window(void *user, int64_t layer, int64_t heads, const float *p)
{
    const int64_t window = layer == 1 ? 3 : L;
    for (int64_t n = 0; n < B * heads * L * L; n++) {
        const int64_t i = n / L % L, j = n % L;
        assert_int_equal(p[n] > 0, (i < j ? j - i : i - j) < window);
    }
    ++*(int *)user;
    return 0;
}

static void test_an_encoder_has_a_window(void **state)
{
    (void)state;
    int32_t ids[B * L];
    int seen = 0;
    mha_error err = {0};
    mha_model *model = case_create(
        NULL, "{\"model_type\":\"bert\"," COMPOSED_SIZES "\"mha.attention\":[null,{\"window\":3},{}]}", SEED);
    const mha_model_input in = {.size = sizeof in, .batch = B, .length = L, .ids = ids};
    const mha_model_output out = {.size = sizeof out, .on_attention = look_at_window, .user = &seen};
    composed_texts(ids);
    if (mha_model_forward(model, &in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
    assert_int_equal(seen, LAYERS);
    mha_model_free(model);
}

/* ---- error messages ---- */

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *message;
        mha_status status;
    } wrong[] = {
        {"\"mha.feed_forward\":0", "mha.feed_forward must be true or false (got 0)", MHA_ERR_FORMAT},
        {"\"mha.feed_forward\":\"no\"", "mha.feed_forward must be true or false (got \"no\")", MHA_ERR_FORMAT},
        {"\"mha.feed_forward\":[true,false]", "mha.feed_forward must have 3 elements, true or false per layer (got 2)",
         MHA_ERR_FORMAT},
        {"\"mha.feed_forward\":[true,null,false]", "mha.feed_forward[1] must be true or false (got null)",
         MHA_ERR_FORMAT},
        {"\"mha.attention\":[{},{}]", "mha.attention must have 3 elements, one entry per layer (got 2)",
         MHA_ERR_FORMAT},
        {"\"mha.attention\":7", "mha.attention must be an object, or null for the default of the family (got 7)",
         MHA_ERR_FORMAT},
        {"\"mha.attention\":[{},\"gqa\",{}]",
         "mha.attention[1] must be an object, or null for the default of the family (got \"gqa\")", MHA_ERR_FORMAT},
        {"\"mha.attention\":[{},{},{\"moe_heads\":{}}]",
         "mha.attention[2].moe_heads must be absent in a decoder, because heads are selected by the mean over all "
         "tokens, which would leak later tokens (got model_type gpt2)",
         MHA_ERR_UNSUPPORTED},
        {"\"mha.attention\":{\"heads\":4}",
         "mha.attention.heads: unknown key (known: adaptive_heads, alibi, head_pruning, moe_heads, qk_norm, rotary, "
         "scale, "
         "softcap and window; head counts are in mha.heads and mha.kv_heads)",
         MHA_ERR_FORMAT},
        {"\"mha.attention\":[{\"window\":0},{},{}]",
         "mha.attention[0].window must be an integer from 1 to 2147483648 (got 0)", MHA_ERR_FORMAT},
        {"\"mha.attention\":{\"window\":2.5}", "mha.attention.window must be an integer from 1 to 2147483648 (got 2.5)",
         MHA_ERR_FORMAT},
        {"\"mha.attention\":{\"scale\":-1}", NULL, MHA_ERR_FORMAT},
        {"\"mha.attention\":{\"scale\":1e39}", NULL, MHA_ERR_FORMAT},
        {"\"mha.attention\":{\"softcap\":0}", NULL, MHA_ERR_FORMAT},
        {"\"mha.attention\":{\"alibi\":1}", "mha.attention.alibi must be true or false (got 1)", MHA_ERR_FORMAT},
        {"\"mha.attention\":{\"rotary\":\"yes\"}", "mha.attention.rotary must be true or false (got \"yes\")",
         MHA_ERR_FORMAT},
        {"\"mha.attention\":{\"qk_norm\":[]}", "mha.attention.qk_norm must be true or false (got an array)",
         MHA_ERR_FORMAT},
    };
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        const composed c = {wrong[n].keys, {{0}}};
        mha_model *model = NULL;
        mha_error err = {0};
        assert_int_equal(mha_model_create(NULL, composed_config(&c, true), NULL, &model, &err), wrong[n].status);
        assert_null(model);
        assert_true(strncmp(err.message, "config.json: mha.", 17) == 0);
        if (wrong[n].message) assert_string_equal(err.message + strlen("config.json: "), wrong[n].message);
    }
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    case_create_without_memory(composed_config(&composed_cases[COMPOSED_CASES - 1], false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_against_the_formulas),
        cmocka_unit_test(test_gradients_against_differences),
        cmocka_unit_test(test_packed_and_cached_are_bitwise_identical),
        cmocka_unit_test(test_generates),
        cmocka_unit_test(test_an_encoder_has_a_window),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
