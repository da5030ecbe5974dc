/* test_model_grads_bits.c - gradients of whole models must be bitwise identical for any number of threads, any options,
 * any masked tokens, and for packed and padded sequences. */
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/passes/grads_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = GRADS_B, L = GRADS_L };

/* ---- bitwise identity ---- */

static void test_threads_and_recomputation_change_no_bit(void **state)
{
    (void)state;
    for (int f = 0; f < GRADS_FAMILIES; f++) {
        float *first = NULL;
        double first_loss = 0;
        for (int n = 0; n < 4; n++) {
            const mha_ctx_options o = {.size = sizeof o, .threads = n % 2 ? 5 : 1};
            mha_ctx *ctx = NULL;
            int64_t count = 0;
            assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
            mha_model *model = case_open(ctx, grads_families[f]);
            mha_model_grads *grads = grads_create(model, 0, n / 2);
            const mha_model_input input = grads_input(model, false);
            const double loss = grads_loss(grads, &input, NULL, NULL);
            float *all = grads_all(grads, &count);
            if (!first) first = all, first_loss = loss;
            assert_true(loss == first_loss);
            assert_memory_equal(all, first, (size_t)count * sizeof *all);
            if (all != first) free(all);
            mha_model_grads_free(grads);
            mha_model_free(model);
            mha_ctx_free(ctx);
        }
        free(first);
    }
}

/* Gradients must be bitwise identical if weights are packed for the backward pass, and if only some parameters have
 * gradients. */
static void test_packed_weights_and_parts_change_no_bit(void **state)
{
    (void)state;
    for (int f = 0; f < GRADS_FAMILIES; f++) {
        mha_model *model = case_open(NULL, grads_families[f]);
        const mha_model_info *info = mha_model_describe(model);
        const mha_model_input input = grads_input(model, false);
        const size_t gates = (size_t)(info->layers * B * info->heads);
        mha_model_grads *all = grads_create(model, 0, 0);
        float *want = calloc(gates, sizeof *want), *dgates = calloc(gates, sizeof *dgates);
        const double loss = grads_loss(all, &input, NULL, want);
        for (int n = 0; n < 4; n++) {
            const mha_model_grads_options o = {
                .size = sizeof o, .pack = n % 2, .attention_only = n < 2, .no_parameters = n >= 2};
            mha_model_grads *some = NULL;
            assert_int_equal(mha_model_grads_create(model, &o, &some, NULL), MHA_OK);
            assert_true(grads_loss(some, &input, NULL, dgates) == loss);
            assert_memory_equal(dgates, want, gates * sizeof *want);
            int64_t count = 0;
            const mha_named_tensor *list = mha_model_grads_list(some, &count);
            /* at least two attention matrices per layer */
            assert_true(n < 2 ? count >= 2 * info->layers : count == 0);
            for (int64_t t = 0; t < count; t++) {
                const size_t elements = (size_t)case_elements(&list[t]);
                assert_non_null(strstr(list[t].name, "att"));
                assert_memory_equal(list[t].data, grads_tensor(all, list[t].name)->data, elements * sizeof(float));
            }
            mha_model_grads_free(some);
        }
        mha_model_grads_free(all);
        free(want);
        free(dgates);
        mha_model_free(model);
    }
}

/* Changing masked tokens must leave all gradients bitwise identical. */
static void test_masked_tokens_have_no_effect(void **state)
{
    (void)state;
    for (int f = 0; f < GRADS_FAMILIES; f++)
        for (int holes = 0; holes < 2; holes++) {
            mha_model *model = case_open(NULL, grads_families[f]);
            mha_model_grads *grads = grads_create(model, 0, 0);
            const mha_model_input input = grads_input(model, holes);
            float *all[2];
            int64_t count = 0;
            for (int n = 0; n < 2; n++) {
                mha_model_grads_zero(grads);
                grads_loss(grads, &input, NULL, NULL);
                all[n] = grads_all(grads, &count);
                for (int r = 0; r < B * L; r++)
                    if (!grads_mask[r]) grads_ids[r] = (grads_ids[r] + 1) % 100;
            }
            assert_memory_equal(all[0], all[1], (size_t)count * sizeof(float));
            free(all[0]);
            free(all[1]);
            mha_model_grads_free(grads);
            mha_model_free(model);
        }
}

/* Packed sequences must have the same loss and gradients as a padded batch of the same sequences. */
static void test_packed_is_padded(void **state)
{
    (void)state;
    for (int f = 0; f < GRADS_FAMILIES; f++) {
        mha_model *model = case_open(NULL, grads_families[f]);
        const int64_t heads = mha_model_describe(model)->heads, gates = mha_model_describe(model)->layers * B * heads;
        mha_model_grads *grads = grads_create(model, 0, 0);
        mha_model_input input = grads_input(model, false);
        const int64_t starts[B + 1] = {0, L, L + 8};
        float *all[2], *dgates[2];
        double loss[2];
        int64_t count = 0;
        for (int n = 0; n < 2; n++) {
            dgates[n] = malloc((size_t)gates * sizeof(float));
            mha_model_grads_zero(grads);
            loss[n] = grads_loss(grads, &input, NULL, dgates[n]);
            all[n] = grads_all(grads, &count);
            input.mask = NULL, input.starts = starts; /* the end of the second sequence without its padding */
        }
        assert_true(loss[0] == loss[1]);
        assert_memory_equal(dgates[0], dgates[1], (size_t)gates * sizeof(float));
        assert_memory_equal(all[0], all[1], (size_t)count * sizeof(float));
        for (int n = 0; n < 2; n++) {
            free(all[n]);
            free(dgates[n]);
        }
        mha_model_grads_free(grads);
        mha_model_free(model);
    }
}

/* Gradients must be added up over several calls until they are set to zero. The same object must accept batches of
 * different sizes. */
static void test_gradients_add_up(void **state)
{
    (void)state;
    mha_model *model = case_open(NULL, grads_families[1]);
    mha_model_grads *grads = grads_create(model, 0, 0);
    mha_model_input input = grads_input(model, false);
    int64_t count = 0;
    grads_loss(grads, &input, NULL, NULL);
    float *once = grads_all(grads, &count);
    input.batch = 1;
    grads_loss(grads, &input, NULL, NULL);
    mha_model_grads_zero(grads);
    float *nothing = grads_all(grads, &count);
    for (int64_t n = 0; n < count; n++)
        assert_true(nothing[n] == 0);
    input.batch = B;
    grads_loss(grads, &input, NULL, NULL);
    float *again = grads_all(grads, &count);
    assert_memory_equal(once, again, (size_t)count * sizeof *once);
    grads_loss(grads, &input, NULL, NULL);
    float *twice = grads_all(grads, &count);
    for (int64_t n = 0; n < count; n++)
        assert_true(fabsf(twice[n] - 2 * once[n]) <= 1e-5f * (1 + fabsf(once[n])));
    float *all[] = {once, nothing, again, twice};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        free(all[n]);
    mha_model_grads_free(grads);
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_and_recomputation_change_no_bit),
        cmocka_unit_test(test_packed_weights_and_parts_change_no_bit),
        cmocka_unit_test(test_masked_tokens_have_no_effect),
        cmocka_unit_test(test_packed_is_padded),
        cmocka_unit_test(test_gradients_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
