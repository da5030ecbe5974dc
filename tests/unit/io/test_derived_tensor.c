/* test_derived_tensor.c - tests tensors that are computed from codes and scales: their elements must be bitwise those
 * of PyTorch (data/quantized/elements.safetensors), whether they are read at once or in parts; codes and scales that
 * do not match must be refused. */
#include "io/block_types.h"
#include "io/derived_tensor.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mha_file *open_elements(void)
{
    return case_file(MHA_TEST_DATA "/quantized/elements.safetensors");
}

/* Compares elements bitwise; NaN may have any bits. */
static void same(const float *got, const float *want, int64_t count, const char *name, int64_t first)
{
    for (int64_t i = 0; i < count; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0 && !(got[i] != got[i] && want[i] != want[i]))
            fail_msg("%s: element %lld must be %g (got %g)", name, (long long)(first + i), want[i], got[i]);
}

/* Reads the tensor at once, and in parts of many sizes. */
static void check_elements(const mha_file *file, const mha_tensor *t, const char *expected)
{
    static const int64_t sizes[] = {1, 7, 19, 20, 300, 1000};
    float *want = case_floats(file, expected), *got = malloc((size_t)t->elements * sizeof *got);
    mha_error err = {0};
    assert_int_equal(t->elements, mha_file_find(file, expected)->elements);
    assert_int_equal(mha_tensor_read(t, MHA_F32, got, &err), MHA_OK);
    same(got, want, t->elements, expected, 0);
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (int64_t first = 0, count; first < t->elements; first += count) {
            count = t->elements - first < sizes[n] ? t->elements - first : sizes[n];
            assert_int_equal(mha__tensor_read_part(t, first, count, got, &err), MHA_OK);
            same(got, want + first, count, expected, first);
        }
    free(got);
    free(want);
}

static void mxfp4(void **state)
{
    (void)state;
    mha_file *file = open_elements();
    mha_tensor t;
    mha_error err = {0};
    assert_int_equal(mha__derive_mxfp4(file, "x", mha_file_find(file, "mxfp4_blocks"),
                                       mha_file_find(file, "mxfp4_scales"), &t, &err),
                     MHA_OK);
    assert_int_equal(t.rank, 3);
    assert_memory_equal(t.shape, ((int64_t[]){2, 288, 19}), 3 * sizeof(int64_t));
    check_elements(file, &t, "mxfp4");
    assert_int_equal(mha_tensor_aligned(&t), 0);
    assert_int_equal(mha_tensor_read(&t, MHA_F64, &err, &err), MHA_ERR_UNSUPPORTED);
    mha_file_free(file);
}

static void floats_of_8_bits(void **state)
{
    (void)state;
    static const char *const types[] = {"e4m3", "e5m2"}, *const kinds[] = {"blocks", "rows", "one"};
    static const int64_t block[2] = {5, 100};
    mha_file *file = open_elements();
    for (int n = 0; n < 6; n++) {
        char codes[40], scales[40], expected[40];
        mha_tensor t;
        mha_error err = {0};
        snprintf(codes, sizeof codes, "%s.weight", types[n / 3]);
        snprintf(scales, sizeof scales, "%s.%s", types[n / 3], kinds[n % 3]);
        snprintf(expected, sizeof expected, "%s.by_%s", types[n / 3], kinds[n % 3]);
        if (mha__derive_fp8(file, codes, mha_file_find(file, codes), mha_file_find(file, scales), n % 3 ? NULL : block,
                            &t, &err) != MHA_OK)
            fail_msg("%s", err.message);
        check_elements(file, &t, expected);
    }
    mha_file_free(file);
}

/* Rows of two matrices alternate. The tensor has the type of the stored ones only if they have the same type. */
static void types_of_matrices(void **state)
{
    (void)state;
    static const char zeros[96 * sizeof(float)];
    static const int64_t shape[] = {1, 3, 32};
    static const struct {
        const char *first, *second, *name;
        mha_dtype dtype;
    } cases[] = {{"BF16", "BF16", "BF16", MHA_BF16},  {"F16", NULL, "F16", MHA_F16},
                 {"F16", "BF16", "F32", MHA_F32},     {"BF16", "MXFP4", "F32", MHA_F32},
                 {"MXFP4", "BF16", "F32", MHA_F32},   {"MXFP4", "Q8_0", "F32", MHA_F32},
                 {"MXFP4", "MXFP4", "MXFP4", MHA_F32}};
    mha_file *file = open_elements();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_tensor t, parts[2];
        mha_error err = {0};
        for (int k = 0; k < 2; k++) {
            const mha__block_type *type =
                mha__block_type_named(k && cases[n].second ? cases[n].second : cases[n].first);
            parts[k] = (mha_tensor){.name = "stored",
                                    .dtype = type->dtype,
                                    .dtype_name = type->name,
                                    .rank = 3,
                                    .shape = shape,
                                    .elements = 96,
                                    .data = zeros,
                                    .bytes = 96 / (size_t)type->elements * type->bytes};
            assert_int_equal(mha__tensor_dtype(&parts[k]), type->dtype);
        }
        if (mha__derive_matrices(file, "x", &parts[0], cases[n].second ? &parts[1] : NULL, &t, &err) != MHA_OK)
            fail_msg("%s", err.message);
        assert_string_equal(t.dtype_name, cases[n].name);
        assert_int_equal(mha__tensor_dtype(&t), cases[n].dtype);
    }
    mha_file_free(file);
}

/* ---- refusals ---- */

static void says(mha_status status, mha_status must, const mha_error *err, const char *part)
{
    if (status != must || !strstr(err->message, part) || !strstr(err->message, "elements.safetensors"))
        fail_msg("message must contain \"%s\" (got status %d, \"%s\")", part, (int)status, err->message);
}

static void refused_mxfp4(void **state)
{
    (void)state;
    mha_file *file = open_elements();
    const mha_tensor *codes = mha_file_find(file, "mxfp4_blocks"), *scales = mha_file_find(file, "mxfp4_scales");
    const int64_t shape[] = {0, 1, (int64_t)1 << 59, 16}; /* 32 elements per group would overflow */
    const mha_tensor empty = {.name = "empty", .dtype = MHA_U8, .dtype_name = "U8", .rank = 4, .shape = shape};
    const mha_tensor no_scales = {.name = "none", .dtype = MHA_U8, .dtype_name = "U8", .rank = 3, .shape = shape};
    const struct {
        const mha_tensor *codes, *scales;
        mha_status status;
        const char *part;
    } cases[] = {
        {scales, scales, MHA_ERR_FORMAT,
         "shape of tensor \"mxfp4_scales\" must be [experts, rows, groups, 16] (got [2, 19, 9])"},
        {codes, codes, MHA_ERR_FORMAT,
         "shape of tensor \"mxfp4_blocks\" must be [2, 19, 9], a scale per group (got [2, 19, 9, 16])"},
        {&empty, &no_scales, MHA_ERR_FORMAT,
         "must be [experts, rows, groups, 16] (got [0, 1, 576460752303423488, 16])"},
        {mha_file_find(file, "mxfp4"), scales, MHA_ERR_UNSUPPORTED, "type of tensor \"mxfp4\" must be U8 (got F32)"},
        {codes, mha_file_find(file, "mxfp4"), MHA_ERR_UNSUPPORTED, "type of tensor \"mxfp4\" must be U8 (got F32)"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_tensor t;
        mha_error err = {0};
        says(mha__derive_mxfp4(file, "x", cases[n].codes, cases[n].scales, &t, &err), cases[n].status, &err,
             cases[n].part);
    }
    mha_file_free(file);
}

static void refused_floats(void **state)
{
    (void)state;
    mha_file *file = open_elements();
    static const int64_t other[2] = {4, 100};
    const mha_tensor *codes = mha_file_find(file, "e4m3.weight"), *blocks = mha_file_find(file, "e4m3.blocks");
    const struct {
        const mha_tensor *codes, *scales;
        const int64_t *block;
        mha_status status;
        const char *part;
    } cases[] = {
        {codes, blocks, NULL, MHA_ERR_FORMAT,
         "shape of tensor \"e4m3.blocks\" must be [] or [24, 1], a scale per row (got [5, 3])"},
        {codes, blocks, other, MHA_ERR_FORMAT, "must be [], [24, 1] or [6, 3], a scale per 4 x 100 elements (got [5"},
        {codes, codes, NULL, MHA_ERR_FORMAT, "\"e4m3.weight\" must be [] or [24, 1]"},
        {blocks, blocks, NULL, MHA_ERR_UNSUPPORTED, "\"e4m3.blocks\" must be F8_E4M3 or F8_E5M2"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_tensor t;
        mha_error err = {0};
        says(mha__derive_fp8(file, "x", cases[n].codes, cases[n].scales, cases[n].block, &t, &err), cases[n].status,
             &err, cases[n].part);
    }
    mha_file_free(file);
}

/* A tensor with the dtype of derived tensors, but the shape or type name of another tensor, has no description. */
static void copies_with_another_shape(void **state)
{
    (void)state;
    mha_file *file = open_elements();
    mha_tensor t[2];
    float element;
    mha_error err = {0};
    for (int n = 0; n < 2; n++)
        assert_int_equal(mha__derive_mxfp4(file, "x", mha_file_find(file, "mxfp4_blocks"),
                                           mha_file_find(file, "mxfp4_scales"), &t[n], &err),
                         MHA_OK);
    assert_non_null(mha__derived_of(&t[0]));
    assert_string_equal(t[0].dtype_name, "MXFP4");
    const int64_t shape[3] = {2, 288, 19};
    mha_tensor copy = t[0];
    assert_true(mha__derived_of(&copy) == mha__derived_of(&t[0]));
    copy.shape = shape;
    assert_null(mha__derived_of(&copy));
    copy = t[0];
    copy.shape = t[1].shape;
    assert_null(mha__derived_of(&copy));
    copy = t[0];
    copy.dtype_name = "MXFP4";
    assert_null(mha__derived_of(&copy));
    assert_int_equal(mha__tensor_read_part(&copy, 0, 1, &element, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "MXFP4 cannot be read as"));
    mha_file_free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mxfp4),
        cmocka_unit_test(floats_of_8_bits),
        cmocka_unit_test(types_of_matrices),
        cmocka_unit_test(refused_mxfp4),
        cmocka_unit_test(refused_floats),
        cmocka_unit_test(copies_with_another_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
