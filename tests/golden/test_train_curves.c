/* test_train_curves.c - the loss of small models over 200 steps beside PyTorch's: recorded by bench/train_torch.py from
 * the same weights, texts and options. tests/live/test_train_torch.py computes such curves anew. */
#include "support/check.h"
#include "support/files.h"
#include "support/train_case.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>

static double number(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    if (!json_is_number(value)) fail_msg("no number %s", key);
    return json_number_value(value);
}

static void follow(const char *folder, const char *recorded)
{
    json_t *root = json_load_file(files_path(MHA_TEST_DATA, recorded), 0, NULL);
    assert_non_null(root);
    const mha_train_options o = {.size = sizeof o,
                                 .rate = number(root, "rate"),
                                 .floor = number(root, "floor"),
                                 .decay = number(root, "decay"),
                                 .clip = number(root, "clip"),
                                 .warmup = (int64_t)number(root, "warmup"),
                                 .steps = (int64_t)number(root, "steps")};
    mha_trainer *trainer = train_case(NULL, folder, &o);
    double early = 0, late = 0;
    for (int64_t step = 1; step <= o.steps; step++) {
        const mha_train_report r = train_on(trainer, (int64_t)number(root, "batch"), (int64_t)number(root, "length"));
        const double want = json_number_value(json_array_get(json_object_get(root, "loss"), (size_t)step - 1));
        const double norm = json_number_value(json_array_get(json_object_get(root, "norm"), (size_t)step - 1));
        if (step == 1) assert_true(fabs(r.norm - norm) < 1e-4 * norm);
        if (step <= 50)
            early = fmax(early, fabs(r.loss - want));
        else
            late = fmax(late, fabs(r.loss - want) / want);
    }
    printf("%s: within %.1e over the first 50 steps, then within %.3f %%\n", folder, early, 100 * late);
    assert_true(early < 1e-4);
    assert_true(late < 0.02);
    mha_trainer_free(trainer);
    json_decref(root);
}

static void test_gpt2(void **state)
{
    (void)state;
    follow("models/gpt2-tiny", "train/gpt2.json");
}

static void test_llama(void **state)
{
    (void)state;
    follow("families/llama-f32", "train/llama.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gpt2), cmocka_unit_test(test_llama)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
