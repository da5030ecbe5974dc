/* test_io_tensors.c - tests lists of named tensors: writing, reading, and every error in a list or file. */
#include "mha/io.h"
#include "support/check.h"
#include "support/files.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float a[6] = {1, 2, 3, 4, 5, 6};
static double b[2] = {0.1, -2};
static float scalar = 7;
static mha_error err;

#define LIST                                                                           \
    {                                                                                  \
        {"heads.0.w_q", MHA_F32, 2, {2, 3}, a}, {"b \"quoted\"", MHA_F64, 1, {2}, b},  \
            {"scalar", MHA_F32, 0, {0}, &scalar}, {"empty", MHA_F32, 2, {0, 4}, NULL}, \
    }

static const char *written(const char *folder)
{
    const mha_named_tensor list[] = LIST;
    const char *path = files_path(folder, "layer.safetensors");
    assert_int_equal(mha_tensors_write(NULL, path, list, 4, 1, &err), MHA_OK);
    return path;
}

static void test_round_trip(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = written(folder);
    mha_file *file = NULL;
    assert_int_equal(mha_file_open(NULL, path, NULL, &file, &err), MHA_OK);
    assert_string_equal(mha_file_format(file), "safetensors");
    assert_int_equal(mha_file_count(file), 4);
    float a2[6], scalar2;
    double b2[2], wide[6];
    const mha_named_tensor back[] = {{"scalar", MHA_F32, 0, {0}, &scalar2},
                                     {"heads.0.w_q", MHA_F32, 2, {2, 3}, a2},
                                     {"b \"quoted\"", MHA_F64, 1, {2}, b2},
                                     {"heads.0.w_q", MHA_F64, 2, {2, 3}, wide}};
    assert_int_equal(mha_tensors_read(file, back, 4, &err), MHA_OK);
    assert_memory_equal(a, a2, sizeof a);
    assert_memory_equal(b, b2, sizeof b);
    assert_true(scalar2 == 7 && wide[5] == 6);
    const char *key, *value;
    assert_int_equal(mha_file_metadata(file, 0, &key, &value, NULL), MHA_OK);
    assert_string_equal(key, "format");
    assert_string_equal(value, "pt");
    mha_file_free(file);
    files_remove(folder);
}

/* To align all tensors, the header must be padded to a multiple of 8 bytes, and tensors with larger elements must be
 * written first. */
static void test_bytes(void **state)
{
    (void)state;
    const char *folder = files_folder();
    size_t n;
    char *bytes = files_read(written(folder), &n);
    const size_t header = (unsigned char)bytes[0] + 256u * (unsigned char)bytes[1];
    assert_int_equal(header % 8, 0);
    assert_int_equal(n, 8 + header + sizeof a + sizeof b + sizeof scalar);
    assert_memory_equal(bytes + 8 + header, b, sizeof b);
    assert_memory_equal(bytes + 8 + header + sizeof b, a, sizeof a);
    free(bytes);
    files_remove(folder);
}

static void test_unwritable_tensors(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "x");
    const struct {
        mha_named_tensor tensor[2];
        const char *sentence;
    } wrong[] = {
        {{{"t", MHA_F32, 1, {6}, a}, {"t", MHA_F32, 1, {6}, a}},
         "tensors to write: name \"t\" must be unique and not reserved"},
        {{{"__metadata__", MHA_F32, 1, {6}, a}, {"t", MHA_F32, 1, {6}, a}},
         "tensors to write: name \"__metadata__\" must be unique and not reserved"},
        {{{"t", MHA_Q8_0, 1, {6}, a}, {"u", MHA_F32, 1, {6}, a}},
         "tensor \"t\": dtype must be supported by safetensors (got q8_0)"},
        {{{"t", MHA_F32, 5, {6}, a}, {"u", MHA_F32, 1, {6}, a}}, "tensor \"t\": rank must be from 0 to 4 (got 5)"},
        {{{"t", MHA_F32, 2, {6, -1}, a}, {"u", MHA_F32, 1, {6}, a}},
         "tensor \"t\": shape must not be negative or too large"},
        {{{"t", MHA_F32, 3, {INT32_MAX, INT32_MAX, 8}, a}, {"u", MHA_F32, 1, {6}, a}},
         "tensor \"t\": shape must not be negative or too large"},
        {{{"t", MHA_F32, 1, {6}, NULL}, {"u", MHA_F32, 1, {6}, a}}, "tensor \"t\": data must not be NULL"},
        {{{NULL, MHA_F32, 1, {6}, a}, {"u", MHA_F32, 1, {6}, a}}, "list of tensors: names must not be NULL"},
    };
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        assert_int_equal(mha_tensors_write(NULL, path, wrong[n].tensor, 2, 0, &err), MHA_ERR_ARG);
        assert_string_equal(err.message, wrong[n].sentence);
    }
    assert_int_equal(files_count(folder), 0);
    files_remove(folder);
}

static void test_unreadable_files(void **state)
{
    (void)state;
    const char *folder = files_folder();
    mha_file *file = NULL;
    assert_int_equal(mha_file_open(NULL, written(folder), NULL, &file, &err), MHA_OK);
    float room[6] = {9};
    const struct {
        mha_named_tensor tensor;
        const char *sentence;
    } wrong[] = {
        {{"absent", MHA_F32, 1, {6}, room}, "tensor \"absent\" is missing"},
        {{"heads.0.w_q", MHA_F32, 1, {6}, room}, "tensor \"heads.0.w_q\" must have 1 dimensions (got 2)"},
        {{"heads.0.w_q", MHA_F32, 2, {3, 2}, room}, "tensor \"heads.0.w_q\": dimension 0 must be 3 (got 2)"},
    };
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        const mha_named_tensor list[] = {{"heads.0.w_q", MHA_F32, 2, {2, 3}, room}, wrong[n].tensor};
        char sentence[512];
        snprintf(sentence, sizeof sentence, "%s: %s", mha_file_path(file), wrong[n].sentence);
        assert_int_equal(mha_tensors_read(file, list, 2, &err), MHA_ERR_FORMAT);
        assert_string_equal(err.message, sentence);
        assert_true(room[0] == 9); /* a failed read must leave the buffer unchanged */
    }
    mha_file_free(file);
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_unwritable_tensors),
        cmocka_unit_test(test_unreadable_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
