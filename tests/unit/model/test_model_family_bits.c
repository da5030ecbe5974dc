/* test_model_family_bits.c - results of further model families must be bitwise identical for packed and separate texts,
 * for any options of gradients, and for any number of threads. */
#include "mha/model_grads.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <stdlib.h>
#include <string.h>

enum { L = 9 };
static const int32_t ids[L] = {5, 61, 17, 30, 9, 44, 25, 60, 12};

/* The logits of a text must be bitwise identical whether the text is alone, packed or padded. In RoBERTa, positions
 * must restart in each text. */
static void test_packed_and_padded(void **state)
{
    (void)state;
    static const char *const folders[] = {
        "families2/roberta",     "families2/modernbert", "families2/phi3",       "families2/mpnet",
        "families2/electra",     "families2/albert",     "families2/mixtral",    "families2/qwen2-moe",
        "families2/qwen3-moe",   "families2/gpt-oss",    "families2/deberta-v2", "families2/deberta-v3",
        "families2/deepseek-v3", "families2/opt-post",   "families2/opt-mapped", "families2/deberta-v2-convolution"};
    static const int64_t starts[3] = {0, 4, L};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        mha_model *model = case_open(NULL, folders[f]);
        const int64_t V = mha_model_describe(model)->vocab;
        float *together = malloc((size_t)(L * V) * sizeof *together);
        const mha_model_input input = {.size = sizeof input, .batch = 2, .ids = ids, .starts = starts};
        const mha_model_output output = {.size = sizeof output, .logits = together};
        assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
        for (int b = 0; b < 2; b++) {
            const int64_t count = starts[b + 1] - starts[b];
            float *alone = case_logits(model, ids + starts[b], count, NULL);
            assert_memory_equal(alone, together + starts[b] * V, (size_t)(count * V) * sizeof *alone);
            free(alone);
        }
        free(together);
        mha_model_free(model);
    }
}

/* Gradients with packed weights and with recomputed layers must be bitwise identical to those without these options. */
static void check_gradient_options(const char *folder)
{
    const mha_model_grads_options options[3] = {{.size = sizeof options[0]},
                                                {.size = sizeof options[0], .pack = 1},
                                                {.size = sizeof options[0], .recompute = 1}};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
    const mha_model_loss_args args = {.size = sizeof args, .labels = ids};
    mha_model *model = case_open(NULL, folder);
    mha_model_grads *grads[3] = {NULL};
    mha_error err = {0};
    int64_t count = 0;
    for (int n = 0; n < 3; n++)
        if (mha_model_grads_create(model, &options[n], &grads[n], &err) != MHA_OK ||
            mha_model_grads_loss(grads[n], &input, &args, NULL, NULL, &err) != MHA_OK)
            fail_msg("%s: %s", folder, err.message);
    const mha_named_tensor *list = mha_model_grads_list(grads[0], &count);
    for (int64_t t = 0; t < count; t++)
        for (int n = 1; n < 3; n++) {
            const size_t elements = (size_t)case_elements(&list[t]);
            assert_memory_equal(list[t].data, mha_model_grads_list(grads[n], NULL)[t].data, elements * sizeof(float));
        }
    for (int n = 0; n < 3; n++)
        mha_model_grads_free(grads[n]);
    mha_model_free(model);
}

static void test_gradient_options(void **state)
{
    (void)state;
    check_gradient_options("families2/electra");
    check_gradient_options("families2/opt-post");
    check_gradient_options("families2/opt-mapped");
    check_gradient_options("families2/albert");
    check_gradient_options("families2/mixtral");
    check_gradient_options("families2/qwen2-moe");
    check_gradient_options("families2/qwen3-moe");
    check_gradient_options("families2/gpt-oss");
    check_gradient_options("families2/deberta-v2");
    check_gradient_options("families2/deberta-v3");
    check_gradient_options("families2/deberta-v2-convolution");
    check_gradient_options("families2/deepseek-v3");
    check_gradient_options("families2/deepseek-v3-plain");
}

/* Computes the logits and the gradients of all parameters in a context with `threads` threads. */
static void run_threads(const char *folder, int threads, float *logits, float *gradients)
{
    mha_ctx *ctx = NULL;
    mha_model_grads *grads = NULL;
    mha_error err = {0};
    int64_t count = 0, at = 0;
    int32_t many[64];
    for (int n = 0; n < 64; n++)
        many[n] = 4 + n * 7 % 60;
    const mha_ctx_options options = {.size = sizeof options, .threads = threads};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 64, .ids = many};
    const mha_model_output output = {.size = sizeof output, .logits = logits};
    const mha_model_loss_args args = {.size = sizeof args, .labels = many};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = case_open(ctx, folder);
    if (mha_model_forward(model, &input, &output, &err) != MHA_OK ||
        mha_model_grads_create(model, NULL, &grads, &err) != MHA_OK ||
        mha_model_grads_loss(grads, &input, &args, NULL, NULL, &err) != MHA_OK)
        fail_msg("%s: %s", folder, err.message);
    const mha_named_tensor *list = mha_model_grads_list(grads, &count);
    for (int64_t t = 0; t < count; t++) {
        const int64_t elements = case_elements(&list[t]);
        memcpy(gradients + at, list[t].data, (size_t)elements * sizeof(float));
        at += elements;
    }
    assert_int_equal(at, mha_model_describe(model)->parameters);
    mha_model_grads_free(grads);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

/* Results must be bitwise identical for any number of threads, even if groups of rows are divided into several
 * tasks. */
static void test_threads(void **state)
{
    (void)state;
    enum { LOGITS = 64 * 64, GRADIENTS = 1 << 17 };
    static const char *const folders[] = {
        "families2/mixtral",    "families2/qwen2-moe",  "families2/qwen3-moe",   "families2/gpt-oss",
        "families2/deberta-v2", "families2/deberta-v3", "families2/deepseek-v3", "families2/deberta-v2-convolution"};
    float *logits = malloc(2 * LOGITS * sizeof *logits), *gradients = calloc(2 * GRADIENTS, sizeof *gradients);
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        run_threads(folders[f], 1, logits, gradients);
        run_threads(folders[f], 3, logits + LOGITS, gradients + GRADIENTS);
        assert_memory_equal(logits, logits + LOGITS, LOGITS * sizeof *logits);
        assert_memory_equal(gradients, gradients + GRADIENTS, GRADIENTS * sizeof *gradients);
    }
    free(logits);
    free(gradients);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed_and_padded),
        cmocka_unit_test(test_gradient_options),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
