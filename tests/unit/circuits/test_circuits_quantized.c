/* test_circuits_quantized.c - tests logit attributions and copying scores of models whose tables of the vocabulary are
 * quantized: they must be bitwise those of the model that is saved from them in f32. */
#include "mha/logit_attribution.h"
#include "mha/model_save.h"
#include "mha/weight_circuits.h"
#include "support/check.h"
#include "support/files.h"
#include "support/gguf/gguf_case.h"
#include "support/model/model_case.h"
#include "support/quantized/fp8_case.h"
#include <string.h>

static mha_logit_attribution *attribute(const mha_model *model)
{
    static const int32_t ids[] = {3, 17, 40, 9, 63, 22};
    const mha_logit_attribution_options o = {.size = sizeof o, .position = 4, .answer = 37, .wrong = 6};
    mha_logit_attribution *a;
    mha_error err = {0};
    if (mha_logit_attribution_measure(model, ids, 6, &o, &a, &err) != MHA_OK) fail_msg("%s", err.message);
    return a;
}

static void same_attribution(const mha_model *a, const mha_model *b)
{
    mha_logit_attribution *x = attribute(a), *y = attribute(b);
    assert_true(x->error < 1e-4);
    assert_memory_equal(x->total, y->total, sizeof x->total);
    assert_memory_equal(x->embed, y->embed, sizeof x->embed);
    assert_memory_equal(x->mlps, y->mlps, sizeof *x->mlps * (size_t)(MHA_LOGIT_TARGETS * x->layers));
    assert_memory_equal(x->heads, y->heads, sizeof *x->heads * (size_t)(MHA_LOGIT_TARGETS * x->layers * x->head_count));
    mha_logit_attribution_free(x);
    mha_logit_attribution_free(y);
}

static void same_copying(const mha_model *a, const mha_model *b)
{
    const mha_weight_circuits_options o = {.size = sizeof o, .what = 1U << MHA_CIRCUIT_COPYING};
    const mha_model_info *info = mha_model_describe(a);
    mha_weight_circuits *x, *y;
    mha_error err = {0};
    if (mha_weight_circuits_measure(a, &o, &x, &err) != MHA_OK) fail_msg("%s", err.message);
    if (mha_weight_circuits_measure(b, &o, &y, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int64_t l = 0; l < info->layers; l++)
        for (int64_t h = 0; h < info->heads; h++) {
            const double got = mha_weight_circuits_copying(x, l, h, 1);
            assert_true(got >= -1 && got <= 1);
            assert_true(got == mha_weight_circuits_copying(y, l, h, 1));
        }
    mha_weight_circuits_free(x);
    mha_weight_circuits_free(y);
}

/* Compares the measures of a model with those of the folder that is saved from it. */
static void check(const char *path)
{
    const mha_model_save_options o = {.size = sizeof o, .dtype = MHA_F32, .overwrite = 1};
    const char *plain = files_folder();
    mha_error err = {0};
    mha_model *a = gguf_open(path, 1);
    if (mha_model_save(a, plain, &o, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_model *b = gguf_open(plain, 1);
    same_attribution(a, b);
    same_copying(a, b);
    mha_model_free(a);
    mha_model_free(b);
    files_remove(plain);
}

static void codes_of_8_bits(void **state)
{
    (void)state;
    const char *folder = fp8_tables(0.5F, 0.25F);
    check(folder);
    files_remove(folder);
}

static void blocks_of_gguf(void **state)
{
    (void)state;
    const char *work = files_folder();
    const char *path = files_path(work, "q8_0.gguf");
    mha_model *model = gguf_open(MHA_TEST_DATA "/families/llama", 1);
    gguf_save(model, path, MHA_Q8_0);
    mha_model_free(model);
    check(path);
    files_remove(work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_of_8_bits),
        cmocka_unit_test(blocks_of_gguf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
