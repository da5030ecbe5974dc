/* test_io_tensor.c - tests reading of tensor values: every type, every conversion, .npy files in every dimension order,
 * and failed allocations. */
#include "mha/io.h"
#include "support/files.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- mha_tensor_read ---- */

static mha_tensor tensor_of(mha_dtype dtype, const void *data, int64_t elements)
{
    static int64_t shape[1];
    shape[0] = elements;
    return (mha_tensor){.name = "x",
                        .dtype = dtype,
                        .dtype_name = mha_dtype_name(dtype),
                        .rank = 1,
                        .shape = shape,
                        .elements = elements,
                        .data = data,
                        .bytes = (size_t)elements * mha_dtype_size(dtype)};
}

static void conversions(void **state)
{
    (void)state;
    static const struct {
        mha_dtype dtype;
        const char *bytes; /* bytes of two elements, little-endian */
        double want[2];
    } cases[] = {
        {MHA_BOOL, "\0\377", {0, 1}},
        {MHA_U8, "\1\377", {1, 255}},
        {MHA_I8, "\1\377", {1, -1}},
        {MHA_U16, "\1\0\377\377", {1, 65535}},
        {MHA_I16, "\1\0\0\200", {1, -32768}},
        {MHA_U32, "\1\0\0\0\0\0\0\377", {1, 4278190080.0}},
        {MHA_I32, "\1\0\0\0\0\0\0\200", {1, -2147483648.0}},
        {MHA_U64, "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\100", {1, 4611686018427387904.0}},
        {MHA_I64, "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\200", {1, -9223372036854775808.0}},
        {MHA_F16, "\0\74\1\0", {1, 0x1p-24}},
        {MHA_BF16, "\200\77\200\377", {1, -INFINITY}},
        {MHA_F32, "\0\0\200\77\0\0\0\300", {1, -2}},
        {MHA_F64, "\0\0\0\0\0\0\360\77\0\0\0\0\0\0\0\300", {1, -2}},
        {MHA_F8_E4M3, "\70\300", {1, -2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char place[17], same[16]; /* tensor data at an unaligned address */
        mha_tensor t = tensor_of(cases[i].dtype, place + 1, 2);
        memcpy(place + 1, cases[i].bytes, t.bytes);
        float f[2];
        double d[2];
        int64_t n[2];
        mha_error err = {0};
        int real = t.dtype == MHA_F16 || t.dtype == MHA_BF16 || t.dtype == MHA_F32 || t.dtype == MHA_F64 ||
                   t.dtype == MHA_F8_E4M3;
        assert_int_equal(mha_tensor_read(&t, MHA_F32, f, &err), MHA_OK);
        assert_int_equal(mha_tensor_read(&t, MHA_F64, d, &err), MHA_OK);
        assert_int_equal(mha_tensor_read(&t, t.dtype, same, &err), MHA_OK);
        assert_memory_equal(same, cases[i].bytes, t.bytes);
        assert_int_equal(mha_tensor_read(&t, MHA_I64, n, &err), real ? MHA_ERR_UNSUPPORTED : MHA_OK);
        for (int k = 0; k < 2; k++)
            if (f[k] != (float)cases[i].want[k] || d[k] != cases[i].want[k] ||
                (!real && n[k] != (int64_t)cases[i].want[k]))
                fail_msg("%s, element %d: got %g as f32 and %g as f64", t.dtype_name, k, (double)f[k], d[k]);
    }
}

/* An integer must be rounded to f32 only once. Rounding to double first would lose the low bit of 2^62 + 2^38 + 1, and
 * the result would be rounded to even. */
static void integers_round_once(void **state)
{
    (void)state;
    const int64_t n = ((int64_t)1 << 62) + ((int64_t)1 << 38) + 1;
    const uint64_t u = (uint64_t)n;
    float f;
    mha_tensor t = tensor_of(MHA_I64, &n, 1);
    assert_int_equal(mha_tensor_read(&t, MHA_F32, &f, NULL), MHA_OK);
    assert_true(f == 0x1p62f + 0x1p39f);
    t = tensor_of(MHA_U64, &u, 1);
    assert_int_equal(mha_tensor_read(&t, MHA_F32, &f, NULL), MHA_OK);
    assert_true(f == 0x1p62f + 0x1p39f);
}

static void unreadable_values(void **state)
{
    (void)state;
    const uint64_t u[2] = {7, (uint64_t)1 << 63};
    int64_t n[2];
    mha_error err = {0};
    mha_tensor t = tensor_of(MHA_U64, u, 2);
    assert_int_equal(mha_tensor_read(&t, MHA_I64, n, &err), MHA_ERR_FORMAT);
    assert_string_equal(err.message, "tensor \"x\": element 1 must be at most 2^63 - 1 to be read as i64");
    assert_int_equal(mha_tensor_read(&t, MHA_BF16, n, &err), MHA_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "tensor \"x\": u64 cannot be read as bf16");
    assert_int_equal(mha_tensor_read(&t, MHA_DTYPE_DEFAULT, n, &err), MHA_ERR_UNSUPPORTED);
    t = tensor_of(MHA_DTYPE_OTHER, u, 2);
    assert_int_equal(mha_tensor_read(&t, MHA_F32, n, &err), MHA_ERR_UNSUPPORTED);
    assert_int_equal(mha_tensor_read(NULL, MHA_F32, n, &err), MHA_ERR_ARG);
    assert_int_equal(mha_tensor_read(&t, MHA_F32, NULL, &err), MHA_ERR_ARG);
}

static void alignment(void **state)
{
    (void)state;
    _Alignas(16) char place[32];
    mha_tensor t = tensor_of(MHA_F32, place, 2);
    assert_true(mha_tensor_aligned(&t));
    t.data = place + 2;
    assert_false(mha_tensor_aligned(&t));
    t.dtype = MHA_F16;
    assert_true(mha_tensor_aligned(&t));
    t.dtype = MHA_DTYPE_OTHER;
    assert_false(mha_tensor_aligned(&t));
}

/* ---- .npy files ---- */

/* Writes an .npy file of format version 1, 2 or 3 with the given header and n bytes of data. Returns its path. */
static const char *write_npy(const char *folder, int version, const char *header, const void *data, size_t n)
{
    char bytes[2048] = "\x93NUMPY";
    size_t length = strlen(header), begin = version == 1 ? 10 : 12;
    bytes[6] = (char)version;
    bytes[8] = (char)(length & 255);
    bytes[9] = (char)(length >> 8);
    memcpy(bytes + begin, header, length);
    if (n) memcpy(bytes + begin + length, data, n);
    const char *path = files_path(folder, "x.npy");
    files_write(path, bytes, begin + length + n);
    return path;
}

#define DESCR "header: descr must be a dtype of real numbers"

static void npy_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int version;
        const char *says; /* words of the error message; NULL = the file must be accepted */
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }          \n", 1, NULL},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", 2, NULL},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", 3, NULL},
        {"{\"shape\":(3 ,),\"fortran_order\":True,\"descr\":\"<f4\"}", 1, NULL},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,3,), }", 1, NULL},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (12,)}", 1, NULL},
        {"{'descr': '>i1', 'fortran_order': False, 'shape': (12,)}", 1, NULL},
        {"{'descr': '|b1', 'fortran_order': False, 'shape': (2, 2, 3)}", 1, NULL},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3)}", 1, "a comma after the only dimension"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 3}", 1, "a tuple for the shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3L,)}", 1, "a comma or )"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (03,)}", 1, "a dimension from 0"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (+3,)}", 1, "a dimension from 0"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3.0,)}", 1, "a comma or )"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,,)}", 1, "a dimension from 0"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)", 1, "a comma or }"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}}", 1, "the end"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)};import os", 1, "the end"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}", 1, "2^63 - 1"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807,)}", 1, "size must fit in 64 bits"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,4294967296,3)}", 1, "size must fit in 64 bits"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 1,
         "data must have the 8 bytes that the shape requires (got 12)"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}", 1,
         "data must have the 16 bytes that the shape requires (got 12)"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}", 1, "True or False"},
        {"{'descr': '<f4', 'fortran_order': False}", 1, "shape is missing"},
        {"{}", 1, "descr is missing"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", 1, "duplicate key \"descr\""},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}", 1, "unknown key \"x\""},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (3,)}", 1,
         DESCR " (got \"|O\": a Python pickle, which can run code and is never read)"},
        {"{'descr': '<U3', 'fortran_order': False, 'shape': (1,)}", 1, DESCR " (got \"<U3\": a string)"},
        {"{'descr': '|S12', 'fortran_order': False, 'shape': (1,)}", 1, DESCR " (got \"|S12\": a string)"},
        {"{'descr': '|V12', 'fortran_order': False, 'shape': (1,)}", 1, DESCR " (got \"|V12\": a structure)"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}", 1, DESCR " (got a structure)"},
        {"{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1,)}", 1, DESCR " (got \"<M8[s]\": a date)"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", 1, DESCR " (got \"<c8\": a complex number)"},
        {"{'descr': '<f16', 'fortran_order': False, 'shape': (3,)}", 1, DESCR ", such as \"<f4\" (got \"<f16\")"},
        {"{'descr': '|f4', 'fortran_order': False, 'shape': (3,)}", 1, DESCR ", such as \"<f4\" (got \"|f4\")"},
        {"{'descr': '=f4', 'fortran_order': False, 'shape': (3,)}", 1, DESCR ", such as \"<f4\" (got \"=f4\")"},
        {"{'descr': 'f4', 'fortran_order': False, 'shape': (3,)}", 1, DESCR ", such as \"<f4\" (got \"f4\")"},
        {"{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (3,)}", 1, "a quoted dtype"},
        {"{'descr': '<f4\", 'fortran_order': False, 'shape': (3,)}", 1, DESCR ", such as \"<f4\" (got \"<f4\", \")"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", 4,
         ".npy version must be 1.0, 2.0 or 3.0 (got 4.0)"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': "
         "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,3)}",
         1, "shape must have at most 32 dimensions"},
        {"", 1, "header length must be positive (got 0)"},
    };
    const char *folder = files_folder();
    const float data[3] = {1, 2, 3};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mha_error err = {0};
        mha_file *file = NULL;
        mha_status status = mha_file_open(NULL, write_npy(folder, cases[i].version, cases[i].header, data, sizeof data),
                                          NULL, &file, &err);
        if ((status == MHA_OK) != !cases[i].says)
            fail_msg("%s must be %s (got %s)", cases[i].header, cases[i].says ? "rejected" : "accepted", err.message);
        if (cases[i].says && !strstr(err.message, cases[i].says))
            fail_msg("%s: message must contain \"%s\" (got %s)", cases[i].header, cases[i].says, err.message);
        if (file) {
            assert_string_equal(mha_file_format(file), "npy");
            assert_int_equal(mha_file_count(file), 1);
            assert_int_equal(mha_file_tensor(file, 0)->bytes, 12);
            assert_ptr_equal(mha_file_find(file, ""), mha_file_tensor(file, 0));
            assert_null(mha_file_find(file, "x"));
            assert_null(mha_file_tensor(file, 1));
            assert_null(mha_file_tensor(file, -1));
        }
        mha_file_free(file);
    }
    files_remove(folder);
}

/* Reads an array of shape (2, 3, 4) with element [i][j][k] = 100 i + 10 j + k, for both dimension orders and both byte
 * orders. */
static void npy_orders(void **state)
{
    (void)state;
    const char *folder = files_folder();
    for (int fortran = 0; fortran < 2; fortran++)
        for (int big = 0; big < 2; big++)
            for (int no_map = 0; no_map < 2; no_map++) {
                unsigned char data[48];
                for (int e = 0; e < 24; e++) {
                    int i = fortran ? e % 2 : e / 12, j = fortran ? e / 2 % 3 : e / 4 % 3, k = fortran ? e / 6 : e % 4;
                    int value = 100 * i + 10 * j + k;
                    data[2 * e + big] = (unsigned char)(value & 255);
                    data[2 * e + !big] = (unsigned char)(value >> 8);
                }
                char header[128];
                snprintf(header, sizeof header, "{'descr': '%ci2', 'fortran_order': %s, 'shape': (2, 3, 4), }\n",
                         big ? '>' : '<', fortran ? "True" : "False");
                const mha_file_options options = {.size = sizeof options, .no_map = no_map};
                mha_file *file = NULL;
                mha_error err = {0};
                mha_status status =
                    mha_file_open(NULL, write_npy(folder, 1, header, data, sizeof data), &options, &file, &err);
                if (status != MHA_OK) fail_msg("%s", err.message);
                const mha_tensor *t = mha_file_tensor(file, 0);
                assert_int_equal(t->rank, 3);
                assert_int_equal(t->shape[2], 4);
                int64_t values[24];
                assert_int_equal(mha_tensor_read(t, MHA_I64, values, &err), MHA_OK);
                for (int e = 0; e < 24; e++)
                    assert_int_equal(values[e], 100 * (e / 12) + 10 * (e / 4 % 3) + e % 4);
                mha_file_free(file);
            }
    files_remove(folder);
}

static void npy_without_elements(void **state)
{
    (void)state;
    const char *folder = files_folder();
    mha_file *file = NULL;
    const char *path = write_npy(folder, 1, "{'descr': '>f8', 'fortran_order': True, 'shape': (3, 0), }\n", NULL, 0);
    assert_int_equal(mha_file_open(NULL, path, NULL, &file, NULL), MHA_OK);
    assert_int_equal(mha_file_tensor(file, 0)->elements, 0);
    assert_non_null(mha_file_tensor(file, 0)->data);
    mha_file_free(file);
    files_remove(folder);
}

/* ---- failed allocations ---- */

typedef struct starving {
    long calls, live, budget; /* the allocation after `budget` calls fails, all others succeed */
} starving;

static void *starving_alloc(void *user, size_t bytes, size_t align)
{
    starving *s = user;
    void *memory = NULL;
    if (s->calls++ == s->budget || posix_memalign(&memory, align, bytes) != 0) return NULL;
    s->live++;
    return memory;
}

static void starving_free(void *user, void *memory)
{
    ((starving *)user)->live--;
    free(memory);
}

static void starve(const char *path, int no_map, int want_calls)
{
    starving s = {.budget = -1};
    const mha_ctx_options options = {
        .size = sizeof options, .threads = 1, .allocator = {starving_alloc, starving_free, &s}};
    const mha_file_options how = {.size = sizeof how, .no_map = no_map};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    const long before = s.live;
    mha_status status = MHA_ERR_MEMORY;
    int failing = 0;
    for (; status == MHA_ERR_MEMORY; failing++) {
        mha_file *file = NULL;
        mha_error err = {0};
        s.calls = 0;
        s.budget = failing;
        status = mha_file_open(ctx, path, &how, &file, &err);
        assert_true((status == MHA_OK) == (file != NULL));
        if (status != MHA_OK && !strstr(err.message, "out of memory: "))
            fail_msg("message must contain \"out of memory: \" (got \"%s\")", err.message);
        mha_file_free(file);
        assert_int_equal(s.live, before);
    }
    assert_int_equal(status, MHA_OK); /* no allocation failed, because the call makes at most `budget` allocations */
    assert_int_equal(failing - 1, want_calls);
    s.budget = -1;
    mha_ctx_free(ctx);
    assert_int_equal(s.live, 0);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const char *folder = files_folder();
    const char *safe = files_path(MHA_TEST_DATA "/safetensors", "accept-metadata.safetensors");
    starve(safe, 0, 7); /* allocations: the file, its path, the header, records, metadata, shapes and strings */
    starve(safe, 1, 8); /* the same allocations and the copied data */
    const char *npy =
        write_npy(folder, 1, "{'descr': '>f4', 'fortran_order': True, 'shape': (1, 3), }\n", "123456789012", 12);
    starve(npy, 0, 7); /* allocations: the file, its path, the header, record, shape, strings and the reordered data */
    starve(npy, 1, 8); /* the same allocations and the copied data */
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversions),          cmocka_unit_test(integers_round_once),
        cmocka_unit_test(unreadable_values),    cmocka_unit_test(alignment),
        cmocka_unit_test(npy_headers),          cmocka_unit_test(npy_orders),
        cmocka_unit_test(npy_without_elements), cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
