/* test_train_bf16.c - tests training in bf16. Matrix products must match products of the rounded elements in double,
 * and gradients must be close to those of f32. Results must not depend on threads or batch splits, and weights must be
 * stored in f32. tests/golden/test_train_curves.c tests loss curves. */
#include "base/ctx.h"
#include "kernel/kernel.h"
#include "layer/linear/linear.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/model/train_case.h"
#include "support/reference/half.h"
#include "support/reference/layer_ref.h"
#include "train/trainer_struct.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPT2 "models/gpt2-tiny"

static const char *const folders[] = {GPT2, "families/llama-f32", "models/gemma2-tiny", "models/bert-mlm-tiny"};
enum { FOLDERS = sizeof folders / sizeof *folders, B = 3, L = 14 };

static const mha_train_options in_bf16 = {
    .size = sizeof in_bf16, .rate = 1e-2, .decay = 0.1, .clip = 1, .dropout = {0.1, 0.1, 0.1}, .dtype = MHA_BF16};

/* ---- matrix products ---- */

typedef struct shape {
    int64_t m, n, k;
    bool across; /* true if A is stored column by column */
} shape;

static double rounded(float x)
{
    const bool pairs = mha__kernels_f32(mha__ctx_isa(NULL))->dense[MHA__BF16]->left != NULL;
    return pairs ? half_value(half_bits((double)x, BF16_FRACTION), BF16_FRACTION) : (double)x;
}

/* Compares a product C = A B with a reference in double. The rows of C have n + 3 elements. The last three must not be
 * written. */
static void check_product(const shape *s, bool accumulate)
{
    const int64_t row = s->n + 3;
    float *a = random_floats(1, 1, s->m * s->k, 1, 0), *b = random_floats(1, 2, s->k * s->n, 1, 0);
    float *c = random_floats(1, 3, s->m * row, 1, 0), *was = random_floats(1, 3, s->m * row, 1, 0);
    const int64_t a_row = s->across ? 1 : s->k, a_col = s->across ? s->m : 1;
    const mha__matmul job = {.dtype = MHA_BF16,
                             .m = s->m,
                             .n = s->n,
                             .k = s->k,
                             .a = a,
                             .a_row = a_row,
                             .a_col = a_col,
                             .b = b,
                             .b_row = s->n,
                             .b_col = 1,
                             .c = c,
                             .c_row = row,
                             .accumulate = accumulate};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(NULL, &ctx, NULL), MHA_OK);
    assert_int_equal(mha__matmul_run(ctx, &job, NULL), MHA_OK);
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < row; j++) {
            double sum = accumulate || j >= s->n ? (double)was[i * row + j] : 0, size = fabs(sum);
            for (int64_t k = 0; k < s->k && j < s->n; k++) {
                const double term = rounded(a[i * a_row + k * a_col]) * rounded(b[k * s->n + j]);
                sum += term;
                size += fabs(term);
            }
            if (!(fabs((double)c[i * row + j] - sum) <= (j < s->n ? 0x1p-23 * 40 * size : 0)))
                fail_msg("[%d %d %d] (%d, %d): got %.9g, expected %.9g", (int)s->m, (int)s->n, (int)s->k, (int)i,
                         (int)j, (double)c[i * row + j], sum);
        }
    mha_ctx_free(ctx);
    free(a), free(b), free(c), free(was);
}

static void test_product(void **state)
{
    (void)state;
    static const shape shapes[] = {{1, 1, 1, true},
                                   {3, 5, 2, true},
                                   {16, 32, 32, true},
                                   {17, 33, 31, true},
                                   {70, 65, 97, true},
                                   {130, 31, 64, true},
                                   {33, 200, 200, true},
                                   {5, 7, 40, false},
                                   {64, 96, 33, false},
                                   /* these products are split into ranges of k and ranges of rows */
                                   {3, 1400, 1600, true},
                                   {3, 1400, 1600, false},
                                   {1500, 5, 800, true}};
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            check_product(&shapes[n], accumulate != 0);
}

/* ---- gradients ---- */

/* Returns the gradients of the loss on random sequences: of all parameters, then of the gates. The caller must free the
 * array. */
static float *gradients(const char *folder, mha_dtype dtype, int pack, int64_t *count, double *loss)
{
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .dtype = dtype};
    const mha_model_grads_options how = {.size = sizeof how, .pack = pack};
    mha_model *model = case_model(NULL, folder, &o);
    const mha_model_info *info = mha_model_describe(model);
    mha_model_grads *grads = NULL;
    mha_error err = {0};
    int32_t ids[B * L];
    int64_t tensors = 0;
    if (mha_model_grads_create(model, &how, &grads, &err) != MHA_OK) fail_msg("%s", err.message);
    const mha_named_tensor *list = mha_model_grads_list(grads, &tensors);
    const int64_t gates = info->layers * B * info->heads;
    *count = gates;
    for (int64_t n = 0; n < tensors; n++) {
        int64_t elements = 1;
        for (int d = 0; d < list[n].rank; d++)
            elements *= list[n].shape[d];
        *count += elements;
    }
    float *all = malloc((size_t)*count * sizeof *all);
    train_texts(1, B, L, ids);
    const mha_model_input input = {.size = sizeof input, .batch = B, .length = L, .ids = ids};
    const mha_model_loss_args args = {
        .size = sizeof args, .labels = info->causal ? NULL : ids, .dgates = all + *count - gates};
    if (mha_model_grads_loss(grads, &input, &args, loss, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    /* all parameter gradients are in one array, which begins at the first tensor */
    memcpy(all, list[0].data, (size_t)(*count - gates) * sizeof *all);
    mha_model_grads_free(grads);
    mha_model_free(model);
    return all;
}

/* The gradients in bf16 must be close to those in f32. Gemma 2 has a higher limit, because its large weights cause
 * larger errors of the hidden states (model.h). */
static void test_gradients_are_near(void **state)
{
    (void)state;
    static const double max[FOLDERS] = {0.03, 0.03, 0.08, 0.03};
    for (int f = 0; f < FOLDERS; f++) {
        int64_t count = 0;
        double loss[2], apart = 0, size = 0;
        float *x = gradients(folders[f], MHA_F32, 0, &count, &loss[0]);
        float *y = gradients(folders[f], MHA_BF16, 0, &count, &loss[1]);
        for (int64_t n = 0; n < count; n++) {
            apart += pow((double)x[n] - (double)y[n], 2);
            size += pow((double)x[n], 2);
        }
        printf("%s: the gradients differ by %.2f %%, the loss by %.2f %%\n", folders[f], 100 * sqrt(apart / size),
               100 * fabs(loss[1] / loss[0] - 1));
        assert_true(apart > 0 && sqrt(apart / size) < max[f]);
        assert_true(fabs(loss[1] / loss[0] - 1) < 0.005);
        free(x), free(y);
    }
}

static void test_weights_packed_before_or_during(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        int64_t count = 0;
        double loss[2];
        float *x = gradients(folders[f], MHA_BF16, 0, &count, &loss[0]);
        float *y = gradients(folders[f], MHA_BF16, 1, &count, &loss[1]);
        assert_true(loss[0] == loss[1]);
        assert_memory_equal(x, y, (size_t)count * sizeof *x);
        free(x), free(y);
    }
}

/* ---- training steps ---- */

static void test_bits_for_any_threads_and_recompute(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++)
        train_check_threads(folders[f], &in_bf16, B, L);
}

static void test_goes_on_bit_for_bit(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++)
        train_check_resume(folders[f], &in_bf16, B, L);
}

/* Updates too small to change a bf16 weight must accumulate in the f32 weights. */
static void test_weights_learn_in_f32(void **state)
{
    (void)state;
    const mha_train_options o = {.size = sizeof o, .rate = 1e-6, .dtype = MHA_BF16};
    mha_trainer *t = train_case(NULL, GPT2, &o);
    int64_t count = 0, moved = 0, shown = 0;
    float *before = train_weights(t, &count);
    train_on(t, B, L);
    float *after = train_weights(t, &count);
    for (int64_t n = 0; n < count; n++) {
        moved += before[n] != after[n];
        shown += half_bits((double)before[n], BF16_FRACTION) != half_bits((double)after[n], BF16_FRACTION);
    }
    assert_true(moved > count / 2);
    assert_true(shown < count / 20);
    free(before), free(after);
    mha_trainer_free(t);
}

/* ---- error messages ---- */

static void test_refusals(void **state)
{
    (void)state;
    mha_error err = {0};
    mha_trainer *t = NULL;
    mha_model_grads *grads = NULL;
    const mha_model_options half = {.size = sizeof half, .no_tokenizer = 1, .dtype = MHA_F16};
    const mha_train_options o = {.size = sizeof o, .dtype = MHA_F16};
    mha_model *model = case_model(NULL, GPT2, &half);
    assert_int_equal(mha_trainer_create(model, &o, &t, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_train_options: dtype must be one of f32, bf16 (got f16)");
    assert_int_equal(mha_model_grads_create(model, NULL, &grads, &err), MHA_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "dtype of the model must be f32 or bf16 for gradients (got f16)");
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_product),
        cmocka_unit_test(test_gradients_are_near),
        cmocka_unit_test(test_weights_packed_before_or_during),
        cmocka_unit_test(test_bits_for_any_threads_and_recompute),
        cmocka_unit_test(test_goes_on_bit_for_bit),
        cmocka_unit_test(test_weights_learn_in_f32),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
