/* test_train_curves.c - compares the loss of small models over 200 steps with that of PyTorch, recorded by
 * bench/train_torch.py for the same weights, texts and options. Training is in f32 and in bf16, where the curves
 * differ by the rounding of products. tests/live/test_train_torch.py recomputes the curves. */
#include "support/check.h"
#include "support/files.h"
#include "support/model/train_case.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>

static double number(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    if (!json_is_number(value)) fail_msg("%s must be a number", key);
    return json_number_value(value);
}

/* Tolerances of the loss: absolute over the first 50 steps, then relative, and relative at the last step. */
typedef struct limits {
    mha_dtype dtype;
    double early, late, end;
} limits;

static const limits f32 = {MHA_F32, 1e-4, 0.02, 0.02}, bf16 = {MHA_BF16, 1e-2, 0.04, 0.02};

static void follow(const char *folder, const char *recorded, const limits *max)
{
    json_t *root = json_load_file(files_path(MHA_TEST_DATA, recorded), 0, NULL);
    assert_non_null(root);
    const mha_train_options o = {.size = sizeof o,
                                 .rate = number(root, "rate"),
                                 .floor = number(root, "floor"),
                                 .decay = number(root, "decay"),
                                 .clip = number(root, "clip"),
                                 .dtype = max->dtype,
                                 .warmup = (int64_t)number(root, "warmup"),
                                 .steps = (int64_t)number(root, "steps")};
    mha_trainer *trainer = train_case(NULL, folder, &o);
    double early = 0, late = 0, end = 0;
    for (int64_t step = 1; step <= o.steps; step++) {
        const mha_train_report r = train_on(trainer, (int64_t)number(root, "batch"), (int64_t)number(root, "length"));
        const double want = json_number_value(json_array_get(json_object_get(root, "loss"), (size_t)step - 1));
        const double norm = json_number_value(json_array_get(json_object_get(root, "norm"), (size_t)step - 1));
        if (step == 1) assert_true(fabs(r.norm - norm) < max->early * norm);
        if (step <= 50)
            early = fmax(early, fabs(r.loss - want));
        else
            late = fmax(late, end = fabs(r.loss - want) / want);
    }
    printf("%s in %s: within %.1e over the first 50 steps, then within %.2f %%, %.2f %% at the end\n", folder,
           mha_dtype_name(max->dtype), early, 100 * late, 100 * end);
    assert_true(early < max->early && late < max->late && end < max->end);
    mha_trainer_free(trainer);
    json_decref(root);
}

static void test_gpt2(void **state)
{
    (void)state;
    follow("models/gpt2-tiny", "train/gpt2.json", &f32);
}

static void test_llama(void **state)
{
    (void)state;
    follow("families/llama-f32", "train/llama.json", &f32);
}

static void test_gpt2_in_bf16(void **state)
{
    (void)state;
    follow("models/gpt2-tiny", "train/gpt2.json", &bf16);
}

static void test_llama_in_bf16(void **state)
{
    (void)state;
    follow("families/llama-f32", "train/llama.json", &bf16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gpt2), cmocka_unit_test(test_llama),
                                       cmocka_unit_test(test_gpt2_in_bf16), cmocka_unit_test(test_llama_in_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
