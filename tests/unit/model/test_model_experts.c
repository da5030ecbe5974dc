/* test_model_experts.c - each token must be computed only by its chosen experts; also tests training in bf16. */
#include "mha/model_grads.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { L = 9 };
static const int32_t ids[L] = {5, 61, 17, 30, 9, 44, 25, 60, 12};

/* Returns true if the logits of one token are unchanged when all weights of an expert are NAN. */
static bool skips(const char *folder, const char *name, const float *want)
{
    static const int64_t elements = 16 * 32;
    float *poison = malloc((size_t)elements * sizeof *poison);
    for (int64_t n = 0; n < elements; n++)
        poison[n] = NAN;
    const mha_named_tensor tensor = {.name = name, .dtype = MHA_F32, .rank = 2, .shape = {16, 32}, .data = poison};
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .tensors = &tensor, .tensor_count = 1};
    mha_model *model = case_model(NULL, folder, &o);
    float *got = case_logits(model, ids, 1, NULL);
    const bool same = memcmp(got, want, (size_t)mha_model_describe(model)->vocab * sizeof *got) == 0;
    free(got);
    mha_model_free(model);
    free(poison);
    return same;
}

/* A token must use 3 of the 6 experts of a layer, and the other experts must not be computed. */
static void test_chosen_experts(void **state)
{
    (void)state;
    mha_model *model = case_open(NULL, "families2/qwen3-moe");
    float *want = case_logits(model, ids, 1, NULL);
    assert_int_equal(mha_model_describe(model)->feed_forward_per_layer[0], 40);
    assert_int_equal(mha_model_describe(model)->feed_forward_per_layer[1], 3 * 16);
    for (int layer = 1; layer < 4; layer += 2) {
        int skipped = 0;
        for (int e = 0; e < 6; e++) {
            char name[80];
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.up_proj.weight", layer, e);
            skipped += skips("families2/qwen3-moe", name, want);
        }
        assert_int_equal(skipped, 3);
    }
    free(want);
    mha_model_free(model);
}

/* In bf16, the loss must be near that of f32, and gradients must be finite. */
static void test_experts_in_bf16(void **state)
{
    (void)state;
    const mha_model_options rounded = {.size = sizeof rounded, .no_tokenizer = 1, .dtype = MHA_BF16};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
    const mha_model_loss_args args = {.size = sizeof args, .labels = ids};
    double loss[2] = {0};
    for (int n = 0; n < 2; n++) {
        mha_model *model =
            n ? case_model(NULL, "families2/qwen2-moe", &rounded) : case_open(NULL, "families2/qwen2-moe");
        mha_model_grads *grads = NULL;
        int64_t count = 0;
        assert_int_equal(mha_model_grads_create(model, NULL, &grads, NULL), MHA_OK);
        assert_int_equal(mha_model_grads_loss(grads, &input, &args, &loss[n], NULL, NULL), MHA_OK);
        const mha_named_tensor *list = mha_model_grads_list(grads, &count);
        for (int64_t t = 0; t < count; t++)
            assert_true(isfinite(((const float *)list[t].data)[0]));
        mha_model_grads_free(grads);
        mha_model_free(model);
    }
    assert_true(fabs(loss[0] - loss[1]) < 0.03 * loss[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chosen_experts),
        cmocka_unit_test(test_experts_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
