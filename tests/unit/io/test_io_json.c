/* test_io_json.c - tests untrusted JSON: accepted and rejected texts. Error messages must contain the position and the
 * reason. */
#include "base/ctx.h"
#include "io/json/json.h"
#include "support/files.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static mha_status parse(const char *text, size_t n, unsigned flags, mha_error *err)
{
    const mha__json *root = (const mha__json *)&root; /* the parser must store NULL on failure */
    *err = (mha_error){0};
    mha_status status = mha__json_parse(NULL, "some.json", text, n, flags, &root, err);
    assert_true((status == MHA_OK) == (root != NULL));
    assert_int_equal(err->status, status);
    mha__json_free(root);
    return status;
}

#define TEXT(s) s, sizeof s - 1

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        unsigned flags;
        const char *says; /* the message must contain this string */
    } cases[] = {
        {TEXT(""), 0, "empty"},
        {TEXT(" "), 0, "line 1"},
        {TEXT("[1]"), 0, "got an array"},
        {TEXT("\"x\""), 0, "line 1"},
        {TEXT("{\"a\":1,}"), 0, "line 1, column 8"},
        {TEXT("{\"a\":1} x"), 0, "line 1, column 9: next token must be the end of the text (got x)"},
        {TEXT("{\"a\":\n\n 1,,}"), 0, "line 3, column 4: next token must be a key in quotes (got ,)"},
        {TEXT("{\"a\":1}\0"), 0, "must not contain a NUL character (got one at byte 7)"},
        {TEXT("{\"a\":1\0}"), 0, "must not contain a NUL character (got one at byte 6)"},
        {TEXT("{\"a\":[1\0,2]}"), MHA__JSON_HEADER, "must not contain a NUL character (got one at byte 7)"},
        {TEXT("{\"a\":\"\0\"}"), 0, "must not contain a NUL character (got one at byte 6)"},
        {TEXT("{\"a\":1,\"\\u0061\":2}"), 0, "duplicate object key"},
        {TEXT("{\"o\":{\"a\":1,\"a\":1}}"), 0, "duplicate object key"},
        {TEXT("{\"a\":NaN}"), 0, "NaN"},
        {TEXT("{\"a\":Infinity}"), 0, "Infinity"},
        {TEXT("{\"a\":-Infinity}"), 0, "-"},
        {TEXT("{\"a\":1e999}"), 0, "line 1, column 6: real number must fit in a double"},
        {TEXT("{\"a\":99999999999999999999}"), 0, "integer must be at most 2^63 - 1"},
        {TEXT("{\"a\":9223372036854775808}"), 0, "integer must be at most 2^63 - 1"},
        {TEXT("{\"a\":-9223372036854775809}"), 0, "integer must be at least -2^63"},
        {TEXT("{\"a\":1.}"), 0, "some.json: line 1, column 6: next token must be a number (got 1.)"},
        {TEXT("{\"a\":1e}"), 0, "some.json: line 1, column 6: next token must be a number (got 1e)"},
        {TEXT("{\"a\":-}"), 0, "some.json: line 1, column 6: next token must be a number (got -)"},
        {TEXT("{\"a\":nul}"), 0, "some.json: line 1, column 6: next token must be a value (got nul)"},
        {TEXT("{\"a\" 1}"), 0, "some.json: line 1, column 6: next token must be : (got 1)"},
        {TEXT("{\"a\":[1 2]}"), 0, "some.json: line 1, column 9: next token must be , or ] (got 2)"},
        {TEXT("{\"a\":[1}"), 0, "some.json: line 1, column 8: next token must be , or ] (got })"},
        {TEXT("{\"a\":[}"), 0, "some.json: line 1, column 7: next token must be a value (got })"},
        {TEXT("{\"a\":[1,]}"), 0, "some.json: line 1, column 9: next token must be a value (got ])"},
        {TEXT("{\"a\":1"), 0, "some.json: line 1, column 7: next token must be , or } (got the end of the text)"},
        {TEXT("{\"a\":\"\\ud83dx\"}"), 0, "\\uD83D"},
        {TEXT("{\"a\":\"\\u12g4\"}"), 0, "invalid escape"},
        {TEXT("{\"\\n\":1, \"o\":{\"a\":1,\"\\u0061\":1}}"), 0, "line 1, column 21: duplicate object key \"a\""},
        {TEXT("{\"a\":\"\\ud800\"}"), 0, "\\uD800"},
        {TEXT("{\"a\":\"\\udc00\\ud800\"}"), 0, "\\uDC00"},
        {TEXT("{\"a\\u0000\":1}"), 0, "NUL"},
        {TEXT("{'a':1}"), 0, "line 1"},
        {TEXT("{\"a\":01}"), 0, "line 1"},
        {TEXT("{\"a\":.5}"), 0, "line 1"},
        {TEXT("{\"a\":+5}"), 0, "line 1"},
        {TEXT("{/**/\"a\":5}"), 0, "line 1"},
        {TEXT("{\"a\":\"\n\"}"), 0, "line 1"},
        {TEXT("{\"a\":\"\\x41\"}"), 0, "line 1"},
        {TEXT("{\"a"), 0, "line 1"},
        {TEXT("{\"a\\"), 0, "line 1"},
        {TEXT("{\"a\":\"\xC3(\"}"), 0, "must be UTF-8 (got 0xC3 at byte 6)"},
        {TEXT("{\"a\":\"\xED\xA0\x80\"}"), 0, "must be UTF-8 (got 0xED at byte 6)"},
        {TEXT("\xEF\xBB\xBF{}"), 0, "line 1"},
        {TEXT("\xEF\xBB\xBF{}"), MHA__JSON_HEADER, "must begin with { (got byte 0xEF)"},
        {TEXT(" {}"), MHA__JSON_HEADER, "must begin with { (got byte 0x20)"},
        {TEXT("{\"a\":-0}"), MHA__JSON_HEADER, "column 6: size must not be -0"},
        {TEXT("{\"a\":[1,-0 ]}"), MHA__JSON_HEADER, "column 9: size must not be -0"},
        {TEXT("version https://git-lfs.github.com/spec/v1\n"), 0, "Git LFS pointer"},
        {TEXT("<!DOCTYPE html>"), 0, "HTML"},
        {TEXT("{\"\x1b[2J\":1,\"\x1b[2J\":2}"), 0, "line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mha_error err;
        assert_int_equal(parse(cases[i].text, cases[i].n, cases[i].flags, &err), MHA_ERR_FORMAT);
        if (!strstr(err.message, "some.json") || !strstr(err.message, cases[i].says))
            fail_msg("case %zu: message \"%s\" must contain \"%s\"", i, err.message, cases[i].says);
        for (const char *p = err.message; *p; p++)
            assert_true((unsigned char)*p >= 32 && *p != 127);
    }
}

static void test_accepted_values(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        unsigned flags;
    } cases[] = {
        {TEXT("{}"), 0},
        {TEXT(" {\"a\":-0, \"b\":1e-999}\r\n\t "), 0},
        {TEXT("\xEF\xBB\xBF{}"), MHA__JSON_BOM},
        {TEXT("{\"a\":\"\\u0000\"}"), 0},
        {TEXT("{\"a\":\"\\ud83d\\ude00 [[[ \\\" {\"}"), 0},
        {TEXT("{\"a\":[-1,-0.5,-0e1,\"-0\"]}  "), MHA__JSON_HEADER},
        {TEXT("{\"a\":{\"x\":1},\"b\":{\"x\":1}}"), 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mha_error err;
        if (parse(cases[i].text, cases[i].n, cases[i].flags, &err) != MHA_OK)
            fail_msg("case %zu must be accepted: %s", i, err.message);
    }
}

/* Parses {"a":[[...]]} with `depth` levels in total. The brackets are closed only if `closed` is true. */
static mha_status parse_nested(int depth, int closed, mha_error *err)
{
    char *text = malloc((size_t)depth * 2 + 16);
    size_t n = (size_t)sprintf(text, "{\"a\":");
    for (int i = 1; i < depth; i++)
        text[n++] = '[';
    for (int i = 1; closed && i < depth; i++)
        text[n++] = ']';
    text[n++] = '}';
    mha_status status = parse(text, n, 0, err);
    free(text);
    return status;
}

static void test_depth(void **state)
{
    (void)state;
    mha_error err;
    assert_int_equal(parse_nested(MHA__JSON_DEPTH, 1, &err), MHA_OK);
    assert_int_equal(parse_nested(MHA__JSON_DEPTH + 1, 1, &err), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "at most 64 levels deep"));
    assert_int_equal(parse_nested(1000000, 0, &err), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "at most 64 levels deep"));
}

static void test_string_limit(void **state)
{
    (void)state;
    size_t n = MHA__STRING_BYTES;
    char *text = malloc(n + 16);
    memcpy(text, "{\"a\":\"", 6);
    memset(text + 6, 'x', n + 1);
    mha_error err;
    memcpy(text + 6 + n, "\"}", 2);
    assert_int_equal(parse(text, n + 8, 0, &err), MHA_OK);
    memcpy(text + 6 + n, "x\"}", 3);
    assert_int_equal(parse(text, n + 9, 0, &err), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "at most 16777216 bytes"));
    free(text);
}

static void test_getters(void **state)
{
    (void)state;
    static const char text[] = "{\"i\":7,\"f\":32.0,\"g\":2.5,\"s\":\"gelu\",\"z\":\"a\\u0000b\",\"n\":null,\"t\":true,"
                               "\"o\":{\"type\":\"Foo\\u001b\"},\"l\":[1],\"m\":-3,\"big\":9223372036854775807}";
    const mha__json *root;
    mha_error err = {0};
    assert_int_equal(mha__json_parse(NULL, "c.json", text, sizeof text - 1, 0, &root, &err), MHA_OK);
    const mha__json_obj o = {.json = root, .file = "c.json"};

    int64_t i = 5;
    assert_int_equal(mha__json_int(&o, "i", MHA__REQUIRED, 1, 7, &i, &err), MHA_OK);
    assert_int_equal(i, 7);
    assert_int_equal(mha__json_int(&o, "none", MHA__OPTIONAL, 1, 7, &i, &err), MHA_OK);
    assert_int_equal(mha__json_int(&o, "n", MHA__OPTIONAL, 1, 7, &i, &err), MHA_OK);
    assert_int_equal(i, 7);
    assert_int_equal(mha__json_int(&o, "big", MHA__OPTIONAL, 0, INT64_MAX, &i, &err), MHA_OK);
    assert_true(i == INT64_MAX);
    assert_int_equal(mha__json_int(&o, "i", MHA__REQUIRED, 1, 6, &i, &err), MHA_ERR_FORMAT);
    assert_string_equal(err.message, "c.json: i must be an integer from 1 to 6 (got 7)");
    assert_int_equal(mha__json_int(&o, "f", MHA__OPTIONAL, 1, 60, &i, &err), MHA_ERR_FORMAT);
    assert_string_equal(err.message, "c.json: f must be an integer from 1 to 60 (got 32.0)");
    assert_int_equal(mha__json_int(&o, "none", MHA__REQUIRED, 1, 7, &i, &err), MHA_ERR_FORMAT);
    assert_string_equal(err.message, "c.json: none must be an integer from 1 to 7 (got nothing)");
    assert_int_equal(mha__json_int(&o, "n", MHA__REQUIRED, 1, 7, &i, &err), MHA_ERR_FORMAT);
    assert_string_equal(err.message, "c.json: n must be an integer from 1 to 7 (got null)");
    assert_int_equal(mha__json_int(&o, "t", MHA__OPTIONAL, 0, 7, &i, &err), MHA_ERR_FORMAT);

    assert_int_equal(mha__json_dim(&o, "f", MHA__REQUIRED, 64, &i, &err), MHA_OK);
    assert_int_equal(i, 32);
    assert_int_equal(mha__json_dim(&o, "g", MHA__REQUIRED, 64, &i, &err), MHA_ERR_FORMAT);
    assert_string_equal(err.message, "c.json: g must be an integer from 1 to 64 (got 2.5)");
    assert_int_equal(mha__json_dim(&o, "f", MHA__REQUIRED, 31, &i, &err), MHA_ERR_FORMAT);
    assert_int_equal(mha__json_dim(&o, "m", MHA__REQUIRED, 64, &i, &err), MHA_ERR_FORMAT);
    assert_int_equal(i, 32);

    double x = 0;
    assert_int_equal(mha__json_number(&o, "g", MHA__REQUIRED, 0, 3, &x, &err), MHA_OK);
    assert_true(x == 2.5);
    assert_int_equal(mha__json_number(&o, "i", MHA__REQUIRED, 0, 30, &x, &err), MHA_OK);
    assert_true(x == 7);
    assert_int_equal(mha__json_number(&o, "m", MHA__REQUIRED, 0, 30, &x, &err), MHA_ERR_FORMAT);
    assert_string_equal(err.message, "c.json: m must be a number from 0 to 30 (got -3)");

    bool b = false;
    assert_int_equal(mha__json_bool(&o, "t", MHA__REQUIRED, &b, &err), MHA_OK);
    assert_true(b);
    assert_int_equal(mha__json_bool(&o, "i", MHA__OPTIONAL, &b, &err), MHA_ERR_FORMAT);

    const char *s = NULL;
    size_t n = 0;
    assert_int_equal(mha__json_string(&o, "s", MHA__REQUIRED, &s, NULL, &err), MHA_OK);
    assert_string_equal(s, "gelu");
    assert_int_equal(mha__json_string(&o, "z", MHA__REQUIRED, &s, NULL, &err), MHA_ERR_FORMAT);
    assert_string_equal(err.message, "c.json: z must be a string without NUL characters (got \"a\\x00b\")");
    assert_int_equal(mha__json_string(&o, "z", MHA__REQUIRED, &s, &n, &err), MHA_OK);
    assert_int_equal(n, 3);

    mha__json_obj inner;
    assert_int_equal(mha__json_object(&o, "o", MHA__REQUIRED, &inner, &err), MHA_OK);
    assert_int_equal(mha__json_refuse(&inner, "type", "BertNormalizer", &err), MHA_ERR_FORMAT);
    assert_string_equal(err.message, "c.json: o.type must be BertNormalizer (got \"Foo\\x1B\")");
    assert_int_equal(mha__json_object(&o, "none", MHA__OPTIONAL, &inner, &err), MHA_OK);
    assert_null(inner.json);
    assert_int_equal(mha__json_object(&o, "l", MHA__OPTIONAL, &inner, &err), MHA_ERR_FORMAT);
    assert_string_equal(err.message, "c.json: l must be an object (got an array)");
    const mha__json *list = NULL;
    assert_int_equal(mha__json_array(&o, "l", MHA__REQUIRED, &list, &err), MHA_OK);
    assert_int_equal(mha__json_size(list), 1);
    assert_true(mha__json_has(&o, "i"));
    assert_false(mha__json_has(&o, "n"));
    mha__json_free(root);
}

static void test_show_long(void **state)
{
    (void)state;
    mha__quoted q;
    mha_error err;
    const mha__json *root;
    char text[320] = "{\"a\":\"";
    memset(text + 6, 'a', 99);
    for (int i = 105; i < 306; i += 3)
        memcpy(text + i, "\xE6\x97\xA5", 3);
    memcpy(text + 306, "\"}", 3);
    assert_int_equal(mha__json_parse(NULL, "c.json", text, strlen(text), 0, &root, &err), MHA_OK);
    mha__json_show(&q, mha__json_get(root, "a"));
    assert_int_equal(strlen(q.text), 99 + 5); /* the text must be truncated between characters */
    assert_string_equal(q.text + 96, "aaaa...\"");
    mha__json_free(root);
}

static void test_read(void **state)
{
    (void)state;
    const char *folder = files_folder();
    files_write(files_path(folder, "config.json"), "\xEF\xBB\xBF{\"a\":1}", 10);
    mha_error err = {0};
    const mha__json *root = NULL;
    assert_int_equal(mha__json_read(NULL, folder, "config.json", 10, &root, &err), MHA_OK);
    assert_int_equal(mha__json_size(root), 1);
    mha__json_free(root);
    assert_int_equal(mha__json_read(NULL, folder, "config.json", 9, &root, &err), MHA_ERR_FORMAT);
    assert_string_equal(err.message, "config.json: size must be at most 9 bytes (got 10)");
    assert_null(root);
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_accepted_values), cmocka_unit_test(test_depth),
        cmocka_unit_test(test_string_limit), cmocka_unit_test(test_getters),         cmocka_unit_test(test_show_long),
        cmocka_unit_test(test_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
