/* test_safetensors.c - compares all files of data/safetensors with the results of the reference reader, and tests
 * the safetensors and npy files of data/hostile. Every file is opened both mapped and copied; the results must be the
 * same. */
#include "mha/io.h"
#include "support/files.h"
#include "support/sha256.h"
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char folder[] = MHA_TEST_DATA;

/* Files for which the format specification and the reference reader disagree, or the specification is silent
 * ("either" in the index), with the expected error message of mha. NULL = accepted. */
static const struct {
    const char *file, *says;
} ours[] = {
    {"either-bool_value_2", NULL},
    {"either-dtype_C64", NULL},
    {"either-dtype_F4", NULL},
    {"either-dtype_F4_odd", "must fill whole bytes"},
    {"either-dtype_F6_E2M3", NULL},
    {"either-dtype_F8_E4M3FNUZ", NULL},
    {"either-dtype_F8_E8M0", NULL},
    {"either-duplicate_field", "duplicate"},
    {"either-duplicate_metadata", "duplicate"},
    {"either-duplicate_metadata_key", "duplicate"},
    {"either-duplicate_tensor", "duplicate"},
    {"either-duplicate_tensor_other", "duplicate"},
    {"either-leading_space", "must begin with { (got byte 0x20)"},
    {"either-metadata_null", NULL},
    {"either-newline_padding", NULL},
    {"either-shape_exponent", "shape[0] must be an integer >= 0 (got 2.0"},
    {"either-unknown_field", NULL},
    {"st-31-odd-start", NULL},
    {"st-32-name-nul", "NUL"},
    {"st-33-name-path", NULL},
    {"npy-13-big-endian", NULL},
};

static json_t *load_index(const char *part)
{
    json_error_t e;
    json_t *index = json_load_file(files_path(folder, part), 0, &e);
    if (!index) fail_msg("%s: %s", part, e.text);
    return index;
}

/* Returns true if `path` is folder/.../`stem` with any extension. */
static int has_stem(const char *path, const char *stem)
{
    const char *name = strrchr(path, '/') + 1;
    return strncmp(name, stem, strlen(stem)) == 0 && name[strlen(stem)] == '.';
}

static const char *string_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void check_sentence(const char *path, const mha_error *err, const char *says)
{
    if (!strstr(err->message, strrchr(path, '/') + 1))
        fail_msg("%s: message must name the file (got \"%s\")", path, err->message);
    if (says && !strstr(err->message, says))
        fail_msg("%s: message must contain \"%s\" (got \"%s\")", path, says, err->message);
    for (const char *p = err->message; *p; p++)
        if ((unsigned char)*p < 32 || *p == 127) fail_msg("%s: message must not contain control characters", path);
}

static void check_tensor(const char *path, const mha_tensor *t, const json_t *want)
{
    const json_t *shape = json_object_get(want, "shape");
    char hex[65];
    if (!t) fail_msg("%s must have the recorded tensor", path);
    assert_string_equal(t->dtype_name, string_of(want, "dtype"));
    assert_int_equal(t->rank, json_array_size(shape));
    int64_t elements = 1;
    for (int i = 0; i < t->rank; i++) {
        assert_int_equal(t->shape[i], json_integer_value(json_array_get(shape, (size_t)i)));
        elements *= t->shape[i];
    }
    assert_int_equal(t->elements, elements);
    assert_int_equal(t->bytes, json_integer_value(json_object_get(want, "bytes")));
    assert_non_null(t->data);
    sha256_hex(t->data, t->bytes, hex);
    if (strcmp(hex, string_of(want, "sha256")) != 0)
        fail_msg("%s: data of tensor \"%s\" must have the recorded digest", path, t->name);
}

static void check_metadata(const mha_file *file, const json_t *want)
{
    assert_int_equal(mha_file_metadata_count(file), json_object_size(want));
    for (int64_t i = 0; i < mha_file_metadata_count(file); i++) {
        const char *key = NULL, *value = NULL;
        size_t n = 0;
        assert_int_equal(mha_file_metadata(file, i, &key, &value, &n), MHA_OK);
        const json_t *w = json_object_get(want, key);
        assert_non_null(w);
        assert_int_equal(n, json_string_length(w));
        assert_memory_equal(value, json_string_value(w), n + 1);
    }
}

static void check_accepted(const char *path, const mha_file *file, const json_t *row)
{
    const json_t *tensors = json_object_get(row, "tensors");
    const char *name;
    json_t *want;
    assert_string_equal(mha_file_format(file), "safetensors");
    assert_int_equal(mha_file_count(file), json_object_size(tensors));
    json_object_foreach((json_t *)tensors, name, want) check_tensor(path, mha_file_find(file, name), want);
    for (int64_t i = 1; i < mha_file_count(file); i++)
        assert_true(strcmp(mha_file_tensor(file, i - 1)->name, mha_file_tensor(file, i)->name) < 0);
    check_metadata(file, json_object_get(row, "metadata"));
}

/* Opens `path` mapped and copied. Returns the file, or NULL after checking the message. `expect` is accept, reject,
 * refuse or either. */
static mha_file *open_checked(const char *path, const char *expect, int no_map)
{
    const mha_file_options options = {.size = sizeof options, .no_map = no_map};
    mha_file *file = (mha_file *)&options; /* must be set to NULL on failure */
    mha_error err = {0};
    mha_status status = mha_file_open(NULL, path, &options, &file, &err);
    const char *says = NULL;
    int accept = strcmp(expect, "accept") == 0;
    if (strcmp(expect, "either") == 0) {
        size_t i = 0;
        while (i < sizeof ours / sizeof ours[0] && !has_stem(path, ours[i].file))
            i++;
        if (i == sizeof ours / sizeof ours[0]) fail_msg("%s: the behavior of mha must be listed", path);
        says = ours[i].says;
        accept = says == NULL;
    }
    if (accept && status != MHA_OK) fail_msg("%s must be accepted (got %s)", path, err.message);
    if (!accept && status == MHA_OK) fail_msg("%s must be rejected", path);
    if (status == MHA_OK) return file;
    assert_null(file);
    assert_int_equal(status, MHA_ERR_FORMAT);
    assert_int_equal(err.status, status);
    check_sentence(path, &err, says);
    return NULL;
}

static void test_reference(void **state)
{
    (void)state;
    json_t *index = load_index("safetensors/index.json");
    const json_t *cases = json_object_get(index, "cases");
    assert_int_equal(json_array_size(cases), 107);
    for (size_t i = 0; i < json_array_size(cases); i++)
        for (int no_map = 0; no_map < 2; no_map++) {
            const json_t *row = json_array_get(cases, i);
            char path[512];
            snprintf(path, sizeof path, "%s/safetensors/%s", folder, string_of(row, "file"));
            mha_file *file = open_checked(path, string_of(row, "expect"), no_map);
            if (file) check_accepted(path, file, row);
            mha_file_free(file);
        }
    json_decref(index);
}

/* Reads all data of an accepted file, so that sanitizers detect invalid pointers. */
static void read_all(const char *path, const mha_file *file)
{
    static const mha_dtype kinds[] = {MHA_F32, MHA_F64, MHA_I64};
    for (int64_t i = 0; i < mha_file_count(file); i++) {
        const mha_tensor *t = mha_file_tensor(file, i);
        double *out = malloc((size_t)t->elements * 8 + 8);
        for (size_t k = 0; k < 3; k++) {
            mha_error err = {0};
            mha_status status = mha_tensor_read(t, kinds[k], out, &err);
            if (status != MHA_OK && status != MHA_ERR_UNSUPPORTED) fail_msg("%s: %s", path, err.message);
        }
        free(out);
    }
}

static void test_hostile(void **state)
{
    (void)state;
    json_t *index = load_index("hostile/index.json");
    const json_t *cases = json_object_get(index, "cases");
    int tried = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *row = json_array_get(cases, i);
        const char *kind = string_of(row, "kind");
        if (strcmp(kind, "safetensors") != 0 && strcmp(kind, "npy") != 0) continue;
        for (int no_map = 0; no_map < 2; no_map++) {
            char path[512];
            snprintf(path, sizeof path, "%s/hostile/%s", folder, string_of(row, "path"));
            mha_file *file = open_checked(path, string_of(row, "expect"), no_map);
            if (file) read_all(path, file);
            mha_file_free(file);
        }
        tried++;
    }
    assert_int_equal(tried, 39 + 13);
    json_decref(index);
}

/* Tests two values of the hostile index: "if taken, b is 4, 5, without a misaligned load" and "if taken, 1, 2, 3". */
static void test_hostile_values(void **state)
{
    (void)state;
    mha_error err = {0};
    mha_file *file = NULL;
    float x[3];
    assert_int_equal(
        mha_file_open(NULL, files_path(folder, "hostile/safetensors/st-31-odd-start.safetensors"), NULL, &file, &err),
        MHA_OK);
    assert_int_equal(mha_tensor_read(mha_file_find(file, "b"), MHA_F32, x, &err), MHA_OK);
    assert_true(x[0] == 4 && x[1] == 5);
    mha_file_free(file);
    assert_int_equal(mha_file_open(NULL, files_path(folder, "hostile/npy/npy-13-big-endian.npy"), NULL, &file, &err),
                     MHA_OK);
    assert_int_equal(mha_tensor_read(mha_file_tensor(file, 0), MHA_F32, x, &err), MHA_OK);
    assert_true(x[0] == 1 && x[1] == 2 && x[2] == 3);
    mha_file_free(file);
}

static void test_sha256(void **state)
{
    (void)state;
    char hex[65];
    sha256_hex("abc", 3, hex); /* example of FIPS 180-4 */
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_hostile_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
