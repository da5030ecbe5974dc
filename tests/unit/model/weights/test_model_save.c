/* test_model_save.c - tests the files of a saved model: the saved model must give bitwise identical results; types,
 * tensors of the caller, and config keys. */
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/save_case.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const tiny = "models/gpt2-tiny";

static void expect_same_bytes(const char *a, const char *b)
{
    size_t n = 0, m = 0;
    char *x = files_read(a, &n), *y = files_read(b, &m);
    assert_true(x && y && n == m && memcmp(x, y, n) == 0);
    free(x);
    free(y);
}

static void test_the_same_model_comes_out(void **state)
{
    (void)state;
    static const char *const folders[] = {"models/gpt2-tiny", "models/gemma2-tiny", "models/bert-mlm-tiny",
                                          "models/bert-mlm-tiny-hubnames"};
    const char *folder = files_folder();
    for (int f = 0; f < 4; f++) {
        save_path at_out;
        const char *out = save_path_of(&at_out, folder, "out");
        mha_model *model = case_open(NULL, folders[f]);
        mha_file *before = NULL, *after = NULL;
        char stored[300];
        save_model(model, out, SAVE(.overwrite = f > 0));
        assert_true(save_hash_in(out) == save_hash(model));
        snprintf(stored, sizeof stored, "%s/%s", MHA_TEST_DATA, folders[f]);
        before = case_file(files_path(stored, "model.safetensors"));
        after = case_file(files_path(out, "model.safetensors"));
        assert_int_equal(mha_file_count(before), mha_file_count(after));
        for (int64_t n = 0; n < mha_file_count(before); n++) {
            const mha_tensor *x = mha_file_tensor(before, n), *y = mha_file_tensor(after, n);
            assert_string_equal(x->name, y->name);
            assert_true(x->dtype == y->dtype && x->bytes == y->bytes && x->rank == y->rank);
            assert_memory_equal(x->shape, y->shape, (size_t)x->rank * sizeof *x->shape);
            assert_memory_equal(x->data, y->data, x->bytes);
            assert_true(mha_tensor_aligned(y));
        }
        assert_true(mha_file_metadata_count(after) >= 1);
        expect_same_bytes(files_path(stored, "config.json"), files_path(out, "config.json"));
        expect_same_bytes(files_path(stored, "tokenizer.json"), files_path(out, "tokenizer.json"));
        mha_file_free(before);
        mha_file_free(after);
        mha_model_free(model);
        assert_null(save_others_in(folder, "out"));
    }
    files_remove(files_path(folder, "out"));
    files_remove(folder);
}

/* A saved config must contain a dtype even if the given config has none, because transformers 5 assumes f32 if it is
 * absent. */
static void test_a_config_without_a_type(void **state)
{
    (void)state;
    const char *folder = files_folder();
    mha_model *model = case_open(NULL, tiny);
    save_path at_out;
    const char *out = save_path_of(&at_out, folder, "out");
    json_t *config = json_loads(mha_model_config_json(model), 0, NULL);
    json_object_del(config, "dtype");
    json_object_del(config, "torch_dtype");
    char *bare = json_dumps(config, 0);
    save_model(model, out, SAVE(.dtype = MHA_BF16, .config_json = bare));
    json_decref(config);
    config = json_load_file(files_path(out, "config.json"), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(config, "dtype")), "bfloat16");
    assert_null(json_object_get(config, "torch_dtype"));
    json_decref(config);
    free(bare);
    mha_model_free(model);
    files_remove(folder);
}

static void test_other_types(void **state)
{
    (void)state;
    static const mha_dtype dtypes[] = {MHA_BF16, MHA_F16, MHA_F32};
    static const char *const names[] = {"bfloat16", "float16", "float32"};
    const char *folder = files_folder();
    mha_model *model = case_open(NULL, tiny);
    for (int d = 0; d < 3; d++) {
        save_path at_out;
        const char *out = save_path_of(&at_out, folder, names[d]);
        size_t bytes = 0;
        save_model(model, out, SAVE(.dtype = dtypes[d]));
        mha_model *other = case_open(NULL, out);
        assert_int_equal(mha_model_describe(other)->dtype, dtypes[d]);
        assert_true((save_hash(other) == save_hash(model)) == (dtypes[d] == MHA_F32));
        char *config = files_read(files_path(out, "config.json"), &bytes);
        assert_true(config && strstr(config, names[d]) && strstr(config, "\"layer_norm_epsilon\""));
        free(config);
        mha_file *file = case_file(files_path(out, "model.safetensors"));
        const mha_tensor *words = mha_file_find(file, "transformer.wte.weight");
        assert_true(words && words->dtype == dtypes[d]);
        mha_file_free(file);
        mha_model_free(other);
        files_remove(out);
    }
    mha_model_free(model);
    files_remove(folder);
}

/* ---- tensors of the caller ---- */

/* Tensors of the caller must replace stored tensors of the same name or be added. A tensor of the wrong shape must be
 * rejected. */
static void test_replaced_tensors(void **state)
{
    (void)state;
    enum { E = 48 };
    static float gain[E], extra[6];
    save_path at_out;
    const char *folder = files_folder(), *out = save_path_of(&at_out, folder, "out");
    mha_model *model = case_open(NULL, tiny);
    mha_named_tensor tensors[] = {{"transformer.ln_f.weight", MHA_F32, 1, {E}, gain},
                                  {"something.new", MHA_F32, 2, {2, 3}, extra}};
    for (int n = 0; n < E; n++)
        gain[n] = (float)n;
    save_model(model, out, SAVE(.tensors = tensors, .count = 2));
    mha_file *file = case_file(files_path(out, "model.safetensors"));
    assert_memory_equal(mha_file_find(file, "transformer.ln_f.weight")->data, gain, sizeof gain);
    assert_int_equal(mha_file_find(file, "something.new")->elements, 6);
    mha_file_free(file);
    assert_true(save_hash_in(out) != save_hash(model));
    tensors[0].shape[0] = E - 1;
    const uint64_t kept = save_hash_in(out);
    save_refused(model, out, SAVE(.tensors = tensors, .count = 1, .overwrite = 1), MHA_ERR_FORMAT, "ln_f.weight");
    save_refused(model, out, SAVE(.config_json = "{\"model_type\": \"gpt2\"}", .overwrite = 1), MHA_ERR_FORMAT,
                 "shape");
    save_refused(model, out, SAVE(.config_json = "{", .overwrite = 1), MHA_ERR_FORMAT, "config.json");
    assert_true(save_hash_in(out) == kept);
    assert_null(save_others_in(folder, "out"));
    tensors[1].name = tensors[0].name = "twice";
    save_refused(model, out, SAVE(.tensors = tensors, .count = 2, .overwrite = 1), MHA_ERR_ARG, "twice");
    tensors[0].dtype = MHA_F64;
    save_refused(model, out, SAVE(.tensors = tensors, .count = 1), MHA_ERR_ARG, "tensors[0] must be f32");
    save_refused(model, out, SAVE(.dtype = MHA_F64), MHA_ERR_ARG, "dtype must be one of f32, bf16, f16 (got f64)");
    save_refused(model, NULL, NULL, MHA_ERR_ARG, "folder must not be NULL");
    save_refused(NULL, out, NULL, MHA_ERR_ARG, "model must not be NULL");
    mha_model_free(model);
    files_remove(out);
    files_remove(folder);
}

/* A model opened with tensors of the caller must use these tensors and save them. */
static void test_replaced_at_opening(void **state)
{
    (void)state;
    enum { E = 48 };
    static float gain[E];
    save_path at_out;
    const char *folder = files_folder(), *out = save_path_of(&at_out, folder, "out");
    mha_named_tensor tensors[] = {{"transformer.ln_f.weight", MHA_F32, 1, {E}, gain},
                                  {"a.new.one", MHA_F32, 1, {E}, gain}};
    mha_model_options options = {.size = sizeof options, .no_tokenizer = 1, .tensors = tensors, .tensor_count = 2};
    for (int n = 0; n < E; n++)
        gain[n] = (float)n / E;
    mha_model *plain = case_open(NULL, tiny), *model = case_model(NULL, tiny, &options), *none = NULL;
    assert_true(save_hash(model) != save_hash(plain));
    save_model(model, out, NULL);
    assert_true(save_hash_in(out) == save_hash(model));
    mha_file *file = case_file(files_path(out, "model.safetensors"));
    assert_memory_equal(mha_file_find(file, "a.new.one")->data, gain, sizeof gain);
    mha_file_free(file);
    mha_error err = {0};
    tensors[1].name = tensors[0].name;
    assert_int_equal(mha_model_open(NULL, out, &options, &none, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "names of tensors must be unique (got \"transformer.ln_f.weight\" twice)"));
    tensors[0].shape[0] = 1, options.tensor_count = 1;
    assert_int_equal(mha_model_open(NULL, out, &options, &none, &err), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "must be [48], as config.json requires (got [1])"));
    tensors[0].data = NULL;
    assert_int_equal(mha_model_open(NULL, out, &options, &none, &err), MHA_ERR_ARG);
    options.tensor_count = -1;
    assert_int_equal(mha_model_open(NULL, out, &options, &none, &err), MHA_ERR_ARG);
    mha_model_free(plain);
    mha_model_free(model);
    files_remove(out);
    files_remove(folder);
}

/* ---- config keys ---- */

/* Saving must preserve the keys of pruned models and unknown keys. */
static void test_keys_stay(void **state)
{
    (void)state;
    save_path at_out;
    const char *copy = case_copy(tiny), *folder = files_folder(), *out = save_path_of(&at_out, folder, "out");
    size_t n = 0;
    char *config = files_read(files_path(copy, "config.json"), &n), *more = malloc(n + 200);
    assert_non_null(config);
    char *brace = strchr(config, '{');
    mha_model *plain = case_open(NULL, copy);
    const mha_model_info *info = mha_model_describe(plain);
    int used = sprintf(more, "{\"my.key\": [1, {\"a\": null}], \"mha.heads\": [");
    for (int64_t layer = 0; layer < info->layers; layer++) {
        used += sprintf(more + used, "%s[", layer ? ", " : "");
        for (int64_t h = 0; h < info->heads; h++)
            used += sprintf(more + used, "%s%d", h ? ", " : "", (int)h);
        used += sprintf(more + used, "]");
    }
    strcpy(more + used + sprintf(more + used, "], "), brace + 1);
    mha_model_free(plain);
    files_write(files_path(copy, "config.json"), more, strlen(more));
    mha_model *model = case_open(NULL, copy);
    save_model(model, out, NULL);
    expect_same_bytes(files_path(copy, "config.json"), files_path(out, "config.json"));
    save_model(model, out, SAVE(.dtype = MHA_BF16, .overwrite = 1));
    char *written = files_read(files_path(out, "config.json"), &n);
    assert_true(strstr(written, "\"my.key\"") && strstr(written, "\"mha.heads\""));
    mha_model_free(case_open(NULL, out));
    mha_model_free(model);
    free(written);
    free(config);
    free(more);
    files_remove(out);
    files_remove(folder);
    files_remove(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_model_comes_out),
        cmocka_unit_test(test_a_config_without_a_type),
        cmocka_unit_test(test_other_types),
        cmocka_unit_test(test_replaced_tensors),
        cmocka_unit_test(test_replaced_at_opening),
        cmocka_unit_test(test_keys_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
