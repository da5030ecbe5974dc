/* test_model_forward_errors.c - tests error messages of forward passes: invalid token ids, types, lengths and outputs,
 * and options that a decoder rejects. */
#include "mha/generate.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <stdio.h>
#include <string.h>

#define TINY "models/bert-tiny"
enum { L = 41, E = 48 };

static void refused(const mha_model *model, const mha_model_input *input, const char *part)
{
    mha_error err = {0};
    float hidden[L * E];
    const mha_model_output output = {.size = sizeof output, .last_hidden = hidden};
    assert_int_equal(mha_model_forward(model, input, &output, &err), MHA_ERR_ARG);
    if (!strstr(err.message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err.message);
}

/* A decoder without token types must reject type ids other than 0, and caches must reject the type f64. */
static void test_refused_by_a_decoder(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, "models/gpt2-tiny", NULL);
    const int32_t some[3] = {1, 2, 3};
    int32_t kinds[3] = {0, 0, 0}, out[8];
    int64_t length;
    mha_error err = {0};
    mha_model_input in = {.size = sizeof in, .batch = 1, .length = 3, .ids = some, .type_ids = kinds};
    const mha_model_output none = {.size = sizeof none};
    /* type ids of 0, as a tokenizer returns them, must be accepted */
    assert_int_equal(mha_model_forward(model, &in, &none, &err), MHA_OK);
    kinds[2] = 1;
    refused(model, &in, "type_ids[2] must be 0, since gpt2 has no token types (got 1)");

    mha_model_cache *cache = NULL;
    const mha_model_cache_options f64 = {.size = sizeof f64, .dtype = MHA_F64};
    assert_int_equal(mha_model_cache_create(model, &f64, &cache, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_model_cache_options: dtype must be one of f32, bf16, f16, q8_0, q4_0, "
                                     "f8_e4m3 (got f64)");

    const mha_prompt prompt = {some, 3};
    for (int64_t min = -1; min <= 9; min += 10) {
        const mha_generate_options o = {.size = sizeof o, .max_new = 8, .min_new = min};
        char want[80];
        snprintf(want, sizeof want, "min_new must be from 0 to max_new = 8 (got %lld)", (long long)min);
        assert_int_equal(mha_model_generate(model, &prompt, 1, &o, out, &length, &err), MHA_ERR_ARG);
        assert_non_null(strstr(err.message, want));
    }
    mha_model_free(model);
}

static void test_refusals(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, TINY, NULL), *no_pooler = case_model(NULL, "models/bert-mlm-tiny", NULL);
    int32_t bad_ids[3] = {1, 2, 600}, bad_types[3] = {0, 2, 0}, good[97] = {0};
    const uint8_t padded[3] = {1, 1, 0};
    mha_model_input in = {.size = sizeof in, .batch = 1, .length = 3, .ids = bad_ids};
    refused(model, &in, "ids[2] must be from 0 to 599 (got 600");
    in.mask = padded; /* ids of masked tokens must also be in the vocabulary */
    refused(model, &in, "ids[2] must be from 0 to 599 (got 600");
    bad_ids[2] = -1;
    refused(model, &in, "ids[2] must be from 0 to 599 (got -1)");
    in.ids = good;
    in.type_ids = bad_types;
    refused(model, &in, "type_ids[1] must be from 0 to 1 (got 2");
    in.type_ids = NULL;
    in.length = 97;
    refused(model, &in, "length must be from 1 to 96 (got 97)");
    in.length = 0;
    refused(model, &in, "length must be from 1 to 96 (got 0)");
    in.length = 3;
    in.batch = -1;
    refused(model, &in, "batch must be at least 1 (got -1)");
    in.batch = INT64_MAX;
    refused(model, &in, "batch must fit in memory (got 9223372036854775807)");
    in.batch = 1;
    in.ids = NULL;
    refused(model, &in, "ids must not be NULL");
    in.ids = good;
    in.size = 0;
    refused(model, &in, "size");
    in.size = sizeof in;
    float pooled[E];
    mha_error err = {0};
    const mha_model_output want_pooled = {.size = sizeof want_pooled, .pooled = pooled};
    assert_int_equal(mha_model_forward(no_pooler, &in, &want_pooled, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "must have a pooler"));
    assert_int_equal(mha_model_forward(NULL, &in, NULL, &err), MHA_ERR_ARG);
    mha_model_free(model);
    mha_model_free(no_pooler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_by_a_decoder),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
