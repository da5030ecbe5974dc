/* test_io_json_write.c - tests the JSON writer: layout, escapes, numbers and modified trees. */
#include "io/json/json_number.h"
#include "io/json/json_write.h"
#include "mha/ctx.h"
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static char *written(mha__json_writer *w)
{
    char *text = NULL;
    assert_int_equal(mha__json_written(w, "text", &text, NULL, NULL), MHA_OK);
    return text;
}

/* Fails unless `json` is written as `want` with the given indent. */
static void expect(const char *json, int indent, const char *want)
{
    mha__json_writer w = {.indent = indent};
    mha_error err = {0};
    if (mha__json_put_json(&w, "x", json, &err) != MHA_OK) fail_msg("%s", err.message);
    char *text = written(&w);
    assert_string_equal(text, want);
    mha_free(NULL, text);
}

static void test_layout(void **state)
{
    (void)state;
    static const char json[] = " {\"a\" : [ ], \"b\":{ }, \"c\":[1,[2,{\"d\":null}],true],\"e\":false}";
    expect(json, MHA__JSON_COMPACT, "{\"a\":[],\"b\":{},\"c\":[1,[2,{\"d\":null}],true],\"e\":false}");
    expect(json, 1,
           "{\n \"a\": [],\n \"b\": {},\n \"c\": [\n  1,\n  [\n   2,\n   {\n    \"d\": null\n   }\n  ],\n  true\n ],\n"
           " \"e\": false\n}");
    expect("{}", 2, "{}");
}

static void test_strings(void **state)
{
    (void)state;
    expect("{\"\\u0041\\u00e9\\ud83d\\ude00\\/\":\"\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\\u007f\"}", MHA__JSON_COMPACT,
           "{\"A\xC3\xA9\xF0\x9F\x98\x80/\":\"\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001F\x7F\"}");
    mha__json_writer w = {0};
    mha__json_put_text(&w, "a\xFFz\xC3");
    char *text = written(&w);
    assert_string_equal(text, "\"a\xEF\xBF\xBDz\xEF\xBF\xBD\"");
    mha_free(NULL, text);
}

/* A list of numbers, and the same list as the writer must print it, with up to 17 significant digits. */
static const char numbers[] = "{\"n\":[0,-0,9223372036854775807,-9223372036854775808,2.0,0.1,1e-12,1E+5,1e22,-2.5e-5,"
                              "123456789.123456789,5e-324,1.7976931348623157e308,1e-400,-0.0]}";
static const char numbers_written[] =
    "{\"n\":[0,0,9223372036854775807,-9223372036854775808,2.0,0.10000000000000001,9.9999999999999998e-13,100000.0,1e22,"
    "-2.5000000000000001e-5,123456789.12345679,4.9406564584124654e-324,1.7976931348623157e308,0.0,-0.0]}";

static void test_numbers(void **state)
{
    (void)state;
    expect(numbers, MHA__JSON_COMPACT, numbers_written);
}

/* The reader must return the nearest double for random numbers with any number of digits and any exponent, as strtod
 * does. */
static void test_rounding(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u;
    for (int i = 0; i < 200000; i++) {
        char text[64];
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        const uint64_t digits = seed >> (seed % 61);
        const int exponent = (int)(seed / 64 % 60) - 30;
        snprintf(text, sizeof text, i % 2 ? "%s%" PRIu64 ".%03de%d" : "%s%" PRIu64 ".%d", i % 3 ? "" : "-", digits,
                 abs(exponent), exponent);
        const mha__json_decimal d = mha__json_decimal_of(text);
        const double x = mha__json_real_of(text, &d);
        assert_int_equal(d.n, strlen(text));
        const double want = strtod(text, NULL);
        if (memcmp(&x, &want, sizeof x) != 0) fail_msg("%s: got %.17g, expected %.17g", text, x, want);
    }
}

/* Tests numbers of up to thousands of digits that are the midpoint between two doubles, or slightly above or below
 * it. */
static void test_long_numbers(void **state)
{
    (void)state;
    static const char *const begins[] = {"9007199254740993.", "-9007199254740993.", "900719925474.0993",
                                         "0.0009007199254740993", "9007199254740993"};
    static const char *const ends[] = {"", "1", "e-300", "1e-300", "1e17", "5e-1000", "e1000"};
    static const int zeros[] = {1, 30, 740, 766, 779, 780, 799, 800, 5000};
    static char text[6000];
    for (size_t b = 0; b < sizeof begins / sizeof *begins; b++)
        for (size_t z = 0; z < sizeof zeros / sizeof *zeros; z++)
            for (size_t e = 0; e < sizeof ends / sizeof *ends; e++) {
                snprintf(text, sizeof text, "%s%0*d%s", begins[b], zeros[z], 0, ends[e]);
                const mha__json_decimal d = mha__json_decimal_of(text);
                const double x = mha__json_real_of(text, &d), want = strtod(text, NULL);
                assert_int_equal(d.n, strlen(text));
                if (memcmp(&x, &want, sizeof x) != 0) fail_msg("%s: got %.17g, expected %.17g", text, x, want);
            }
}

/* Writing an absent value (NULL) must fail. */
static void test_absent(void **state)
{
    (void)state;
    mha__json_writer w = {0};
    char *text = NULL;
    mha_error err = {0};
    mha__json_put(&w, NULL);
    assert_int_not_equal(mha__json_written(&w, "text", &text, NULL, &err), MHA_OK);
    assert_null(text);
}

static void test_changes(void **state)
{
    (void)state;
    static const char *const removed[] = {"b", "none", NULL};
    mha__json_writer w = {0};
    char *changed = NULL;
    mha__json_open(&w, '{');
    mha__json_key(&w, "new");
    mha__json_put_bool(&w, false);
    mha__json_key(&w, "b");
    mha__json_put_bool(&w, true);
    mha__json_key(&w, "a");
    mha__json_put_int(&w, 7);
    mha__json_close(&w, '}');
    assert_int_equal(mha__json_changed("x", "{\"a\":1,\"b\":2,\"c\":3}", removed, &w, 0, &changed, NULL), MHA_OK);
    assert_string_equal(changed, "{\"a\":7,\"c\":3,\"new\":false,\"b\":true}");
    mha_free(NULL, changed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),       cmocka_unit_test(test_strings), cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_long_numbers), cmocka_unit_test(test_absent),  cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
