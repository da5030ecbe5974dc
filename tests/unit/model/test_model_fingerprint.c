/* test_model_fingerprint.c - the fingerprint of a model must depend on its config, on every weight, on the type of
 * packed weights and on the ISA, and on nothing else. */
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char FOLDER[] = "models/gpt2-tiny";

/* Writes the fingerprint of a model that is opened only for it. */
static void fingerprint(mha_ctx *ctx, const char *folder, const mha_model_options *options, char text[17])
{
    mha_error err = {0};
    mha_model *model = case_model(ctx, folder, options);
    if (mha_model_fingerprint(model, text, &err) != MHA_OK) fail_msg("%s", err.message);
    assert_int_equal(strlen(text), 16);
    mha_model_free(model);
}

static void repeatable(void **state)
{
    (void)state;
    char first[17], second[17];
    mha_ctx *one;
    assert_int_equal(mha_ctx_create(&(mha_ctx_options){.size = sizeof(mha_ctx_options), .threads = 1}, &one, NULL), 0);
    const char *copy = case_copy(FOLDER);
    fingerprint(NULL, FOLDER, NULL, first);
    fingerprint(one, copy, &(mha_model_options){.size = sizeof(mha_model_options), .no_map = 1}, second);
    assert_string_equal(first, second); /* must not depend on the folder, the threads or the mapping */
    files_remove(copy);
    mha_ctx_free(one);
}

/* Changing the last element of any tensor must change the fingerprint. The last row of the embedding table belongs to a
 * token that the pass of the fingerprint does not contain. */
static void every_weight_counts(void **state)
{
    (void)state;
    char first[17], other[17], path[512];
    fingerprint(NULL, FOLDER, NULL, first);
    snprintf(path, sizeof path, "%s/%s/model.safetensors", MHA_TEST_DATA, FOLDER);
    mha_file *file = case_file(path);
    for (int64_t n = 0; n < mha_file_count(file); n++) {
        const mha_tensor *t = mha_file_tensor(file, n);
        mha_named_tensor tensor = {.name = t->name, .dtype = t->dtype, .rank = t->rank};
        memcpy(tensor.shape, t->shape, (size_t)t->rank * sizeof *t->shape);
        char *data = malloc(t->bytes);
        assert_non_null(data);
        memcpy(data, t->data, t->bytes);
        data[t->bytes - 1] ^= 1;
        tensor.data = data;
        fingerprint(NULL, FOLDER,
                    &(mha_model_options){.size = sizeof(mha_model_options), .tensors = &tensor, .tensor_count = 1},
                    other);
        if (strcmp(first, other) == 0) fail_msg("a changed element of %s must change the fingerprint", t->name);
        free(data);
    }
    mha_file_free(file);
}

static void type_and_isa_count(void **state)
{
    (void)state;
    char first[17], half[17], scalar[17];
    mha_ctx *portable;
    const mha_ctx_options options = {.size = sizeof options, .isa = "scalar"};
    assert_int_equal(mha_ctx_create(&options, &portable, NULL), MHA_OK);
    fingerprint(NULL, FOLDER, NULL, first);
    fingerprint(NULL, FOLDER, &(mha_model_options){.size = sizeof(mha_model_options), .dtype = MHA_F16}, half);
    assert_string_not_equal(first, half);
    fingerprint(portable, FOLDER, NULL, scalar);
    if (strcmp(mha_ctx_isa(NULL), "scalar") != 0) assert_string_not_equal(first, scalar);
    mha_ctx_free(portable);
}

static void model_without_weights_is_rejected(void **state)
{
    (void)state;
    char text[17] = "unchanged";
    mha_error err = {0};
    mha_model *model =
        case_model(NULL, FOLDER, &(mha_model_options){.size = sizeof(mha_model_options), .no_weights = 1});
    assert_int_equal(mha_model_fingerprint(model, text, &err), MHA_ERR_ARG);
    assert_string_equal(text, "unchanged");
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeatable),
        cmocka_unit_test(every_weight_counts),
        cmocka_unit_test(type_and_isa_count),
        cmocka_unit_test(model_without_weights_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
