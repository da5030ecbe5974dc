/* test_base_error.c - error messages must be truncated only between characters, and text quoted from any file must be
 * safe to print on a terminal. */
#include "base/error.h"
#include "base/utf8.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MESSAGE = sizeof((mha_error *)0)->message, QUOTED = sizeof((mha__quoted *)0)->text };

/* ---- truncation of messages ---- */

static void fail_fills_status_and_message(void **state)
{
    mha_error err = {0};
    (void)state;
    assert_int_equal(mha__fail(&err, MHA_ERR_FORMAT, "%s is %d", "x", 7), MHA_ERR_FORMAT);
    assert_int_equal(err.status, MHA_ERR_FORMAT);
    assert_string_equal(err.message, "x is 7");
    assert_int_equal(mha__fail(NULL, MHA_ERR_IO, "%s", "nobody listens"), MHA_ERR_IO);
}

static void fail_may_quote_the_previous_message(void **state)
{
    mha_error err = {0};
    (void)state;
    mha__fail(&err, MHA_ERR_IO, "inner");
    mha__fail(&err, err.status, "outer: %s", err.message);
    assert_string_equal(err.message, "outer: inner");
}

/* Returns a string of `n` bytes: `lead` letters, then copies of a character of `width` bytes. The last copy may be
 * truncated. */
static char *text_of(size_t n, size_t lead, int width)
{
    static const char *const character[] = {"", "a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
    char *text = malloc(n + 1);
    assert_non_null(text);
    memset(text, 'a', lead);
    for (size_t at = lead; at < n; at++)
        text[at] = character[width][(at - lead) % (size_t)width];
    text[n] = '\0';
    return text;
}

static void fail_truncates_between_characters(void **state)
{
    (void)state;
    for (int width = 1; width <= 4; width++) {
        for (size_t lead = 0; lead < (size_t)width; lead++) {
            for (size_t n = MESSAGE - 6; n < MESSAGE + 6; n++) {
                size_t whole = lead + (n - lead) / (size_t)width * (size_t)width;
                char *text = text_of(whole, lead, width);
                mha_error err = {0};
                mha__fail(&err, MHA_ERR_ARG, "%s", text);
                size_t length = strlen(err.message);
                assert_int_equal(mha__utf8_check(err.message, length), length);
                if (whole < MESSAGE) {
                    assert_string_equal(err.message, text);
                } else {
                    /* truncation may remove at most 3 more bytes: those of an incomplete character */
                    assert_true(length >= MESSAGE - 1 - 3);
                    assert_memory_equal(err.message, text, length - 3);
                    assert_string_equal(err.message + length - 3, "...");
                }
                free(text);
            }
        }
    }
}

/* ---- quoted text ---- */

static void quote_keeps_printable_and_escapes_other_characters(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *shown;
    } want[] = {
        {"plain text", 10, "plain text"},
        {"", 0, ""},
        {NULL, 0, ""},
        {"caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", 14, "caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"},
        {"a\nb\tc\r", 6, "a\\x0Ab\\x09c\\x0D"},
        {"nul\0here", 8, "nul\\x00here"},
        {"\x1B[31mred\x07", 9, "\\x1B[31mred\\x07"},
        {"\x7F", 1, "\\x7F"},
        {"\xC2\x9B"
         "31m",
         5, "\\u009B31m"}, /* CSI, a C1 control character */
        {"\xE2\x80\xAE"
         "gpj.exe",
         10, "\\u202Egpj.exe"},                                           /* right-to-left override */
        {"\xE2\x81\xA6\xE2\x81\xA9", 6, "\\u2066\\u2069"},                /* directional isolates */
        {"\xE2\x80\x8E\xE2\x80\x8F\xD8\x9C", 8, "\\u200E\\u200F\\u061C"}, /* directional marks */
        {"\xE2\x80\xA8\xE2\x80\xA9", 6, "\\u2028\\u2029"},                /* line and paragraph separator */
        {"\xEF\xBB\xBF", 3, "\\uFEFF"},
        {"\xFF\xFE", 2, "\\xFF\\xFE"},
        {"\xC0\xAF", 2, "\\xC0\\xAF"},                   /* overlong encoding */
        {"\xED\xA0\x80", 3, "\\xED\\xA0\\x80"},          /* encoded surrogate */
        {"\xF4\x90\x80\x80", 4, "\\xF4\\x90\\x80\\x80"}, /* code point above U+10FFFF */
        {"ab\xE2\x82", 4, "ab\\xE2\\x82"},               /* truncated character */
        {"\xE2\x82z", 3, "\\xE2\\x82z"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        mha__quoted q;
        memset(&q, '?', sizeof q);
        assert_ptr_equal(mha__quote(&q, want[i].bytes, want[i].n), q.text);
        assert_string_equal(q.text, want[i].shown);
    }
}

static void quote_truncates_between_escapes(void **state)
{
    (void)state;
    for (int width = 1; width <= 4; width++) {
        for (size_t n = QUOTED - 8; n < QUOTED + 8; n++) {
            size_t whole = n / (size_t)width * (size_t)width;
            char *text = text_of(whole, 0, width);
            mha__quoted q;
            mha__quote(&q, text, whole);
            size_t length = strlen(q.text);
            assert_true(length < QUOTED);
            assert_int_equal(mha__utf8_check(q.text, length), length);
            if (whole < QUOTED) {
                assert_string_equal(q.text, text);
            } else {
                assert_memory_equal(q.text, text, length - 3);
                assert_string_equal(q.text + length - 3, "...");
                assert_true(length + (size_t)width >= QUOTED - 1);
            }
            free(text);
        }
    }
    char controls[QUOTED];
    memset(controls, 1, sizeof controls);
    mha__quoted q;
    mha__quote(&q, controls, sizeof controls);
    /* the quoted text must end with a complete escape sequence */
    assert_int_equal(strlen(q.text), (QUOTED - 4) / 4 * 4 + 3);
}

static void quote_of_every_byte_pair_is_safe(void **state)
{
    (void)state;
    for (int first = 0; first < 256; first++) {
        for (int second = 0; second < 256; second++) {
            const char bytes[2] = {(char)first, (char)second};
            mha__quoted q;
            mha__quote(&q, bytes, 2);
            size_t length = strlen(q.text);
            assert_int_equal(mha__utf8_check(q.text, length), length);
            for (size_t i = 0; i < length; i++)
                assert_true((unsigned char)q.text[i] >= 0x20 && q.text[i] != 0x7F);
        }
    }
}

/* ---- UTF-8 ---- */

/* Every code point except surrogates must be unchanged by encoding and decoding. Encoding a surrogate must fail. */
static void utf8_reads_what_it_writes(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        if (code >= 0xD800 && code <= 0xDFFF) continue;
        char bytes[4];
        uint32_t back = UINT32_MAX;
        int length = mha__utf8_write(code, bytes);
        if (mha__utf8_read(bytes, sizeof bytes, &back) != length || back != code)
            fail_msg("U+%04X must be unchanged by encoding and decoding (got U+%04X)", (unsigned)code, (unsigned)back);
        if (mha__utf8_read(bytes, (size_t)length - 1, &back) != 0)
            fail_msg("U+%04X must be rejected if its last byte is missing", (unsigned)code);
    }
}

/* Returns true if `second` may be the second byte after `first` according to table 3-7 of the Unicode standard
 * (well-formed byte sequences). */
static bool may_follow(unsigned first, unsigned second)
{
    static const struct {
        unsigned char first, last, low, high;
    } row[] = {{0xC2, 0xDF, 0x80, 0xBF}, {0xE0, 0xE0, 0xA0, 0xBF}, {0xE1, 0xEC, 0x80, 0xBF}, {0xED, 0xED, 0x80, 0x9F},
               {0xEE, 0xEF, 0x80, 0xBF}, {0xF0, 0xF0, 0x90, 0xBF}, {0xF1, 0xF3, 0x80, 0xBF}, {0xF4, 0xF4, 0x80, 0x8F}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        if (first >= row[i].first && first <= row[i].last) return second >= row[i].low && second <= row[i].high;
    return false;
}

static void utf8_refuses_what_is_not_well_formed(void **state)
{
    (void)state;
    for (unsigned first = 0x80; first < 256; first++) {
        for (unsigned second = 0; second < 256; second++) {
            const char bytes[4] = {(char)first, (char)second, (char)0x80, (char)0x80};
            uint32_t code;
            int length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
            int want = may_follow(first, second) ? length : 0;
            const int got = mha__utf8_read(bytes, 4, &code);
            if (got != want) fail_msg("%02X %02X 80 80: length must be %d (got %d)", first, second, want, got);
        }
    }
    uint32_t code;
    assert_int_equal(mha__utf8_read("\xE2\x82z", 3, &code), 0);
    assert_int_equal(mha__utf8_read("\xF0\x9F\x98z", 4, &code), 0);
    assert_int_equal(mha__utf8_read("", 0, &code), 0);
}

static void utf8_check_finds_the_first_bad_byte(void **state)
{
    (void)state;
    assert_int_equal(mha__utf8_check("abc", 3), 3);
    assert_int_equal(mha__utf8_check("", 0), 0);
    assert_int_equal(mha__utf8_check("a\xC3\xA9\xFFz", 5), 3);
    assert_int_equal(mha__utf8_check("ab\xE2\x82\xAC", 4), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_fills_status_and_message),
        cmocka_unit_test(fail_may_quote_the_previous_message),
        cmocka_unit_test(fail_truncates_between_characters),
        cmocka_unit_test(quote_keeps_printable_and_escapes_other_characters),
        cmocka_unit_test(quote_truncates_between_escapes),
        cmocka_unit_test(quote_of_every_byte_pair_is_safe),
        cmocka_unit_test(utf8_reads_what_it_writes),
        cmocka_unit_test(utf8_refuses_what_is_not_well_formed),
        cmocka_unit_test(utf8_check_finds_the_first_bad_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
