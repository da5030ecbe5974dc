/* test_base_status.c - tests the names of statuses, the names and sizes of data types, and the version. */
#include "mha/mha.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void every_status_has_its_text(void **state)
{
    (void)state;
#define CHECK(name, value, text)   \
    assert_int_equal(name, value); \
    assert_string_equal(mha_status_text(name), text);
    MHA_STATUS_MAP(CHECK)
#undef CHECK
    assert_string_equal(mha_status_text((mha_status)-1), "unknown status");
    assert_string_equal(mha_status_text((mha_status)8), "unknown status");
}

static void every_dtype_has_its_name_and_size(void **state)
{
    static const struct {
        mha_dtype dtype;
        const char *name;
        size_t size;
    } want[] = {{MHA_F32, "f32", sizeof(float)},
                {MHA_F64, "f64", sizeof(double)},
                {MHA_BF16, "bf16", 2},
                {MHA_F16, "f16", 2},
                {MHA_Q8_0, "q8_0", 0},
                {MHA_BOOL, "bool", 1},
                {MHA_U8, "u8", 1},
                {MHA_I8, "i8", 1},
                {MHA_U16, "u16", 2},
                {MHA_I16, "i16", 2},
                {MHA_U32, "u32", 4},
                {MHA_I32, "i32", 4},
                {MHA_U64, "u64", 8},
                {MHA_I64, "i64", 8},
                {MHA_DTYPE_OTHER, "other", 0},
                {MHA_DTYPE_DEFAULT, "default", 0},
                {MHA_Q4_0, "q4_0", 0},
                {MHA_F8_E4M3, "f8_e4m3", 1},
                {(mha_dtype)(MHA_F8_E4M3 + 1), "unknown", 0},
                {(mha_dtype)-1, "unknown", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        assert_string_equal(mha_dtype_name(want[i].dtype), want[i].name);
        assert_int_equal(mha_dtype_size(want[i].dtype), want[i].size);
    }
}

static void version_is_that_of_the_header(void **state)
{
    char want[32];
    (void)state;
    snprintf(want, sizeof want, "%d.%d.%d", MHA_VERSION_MAJOR, MHA_VERSION_MINOR, MHA_VERSION_PATCH);
    assert_string_equal(mha_version(), want);
    assert_string_equal(mha_version(), MHA_TEST_VERSION); /* must be the version of project() in CMakeLists.txt */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_text),
        cmocka_unit_test(every_dtype_has_its_name_and_size),
        cmocka_unit_test(version_is_that_of_the_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
