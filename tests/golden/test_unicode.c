/* test_unicode.c - normalizes and splits every code point and compares the results with the reference library
 * (data/unicode). */
#include "base/utf8.h"
#include "text/tokenizer.h"
#include "text/unicode.h"
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { POINTS = 0x110000 };

/* a tokenizer with BertNormalizer and BertPreTokenizer, whose settings are changed below */
static mha_tokenizer *tokenizer;

static bool is_surrogate(uint32_t code)
{
    return code >= 0xD800 && code <= 0xDFFF;
}

static json_t *load(const char *name)
{
    char path[512];
    json_error_t e;
    snprintf(path, sizeof path, MHA_TEST_DATA "/unicode/%s", name);
    json_t *json = json_load_file(path, 0, &e);
    if (!json) fail_msg("%s: %s", path, e.text);
    return json;
}

/* Returns one byte per code point: 1 if a range of the class contains it. */
static uint8_t *members(const json_t *classes, const char *name)
{
    uint8_t *is = calloc(POINTS, 1);
    const json_t *list = json_object_get(classes, name);
    const json_t *range;
    size_t i;
    assert_non_null(is);
    assert_true(json_array_size(list) > 0);
    json_array_foreach(list, i, range) for (json_int_t c = json_integer_value(json_array_get(range, 0));
                                            c <= json_integer_value(json_array_get(range, 1)); c++) is[c] = 1;
    return is;
}

/* Returns the normalized form of one character, in pass->normal. */
static mha__slice normalize(mha__pass *pass, uint32_t code, char text[4])
{
    mha__slice in = {.bytes = text, .n = (size_t)mha__utf8_write(code, text)};
    mha__slice out;
    pass->text = text;
    pass->text_bytes = in.n;
    assert_int_equal(mha__normalize(tokenizer, pass, &in, &out), MHA_OK);
    return out;
}

static bool is_text(const mha__slice *slice, const char *text, size_t n)
{
    return slice->n == n && memcmp(slice->bytes, text, n) == 0;
}

static void settings(bool clean, bool chinese, bool strip, bool lower)
{
    tokenizer->normalizer.items[0].bert.clean_text = clean;
    tokenizer->normalizer.items[0].bert.chinese = chinese;
    tokenizer->normalizer.items[0].bert.strip_accents = strip;
    tokenizer->normalizer.items[0].bert.lowercase = lower;
}

static void test_clean_and_chinese(void **state)
{
    (void)state;
    json_t *classes = load("classes.json");
    uint8_t *removed = members(classes, "bert_removed");
    uint8_t *blanked = members(classes, "bert_to_space");
    uint8_t *chinese = members(classes, "bert_cjk");
    mha__pass pass = {0};
    for (uint32_t c = 0; c < POINTS; c++) {
        char text[4];
        char apart[8] = " ";
        if (is_surrogate(c)) continue;
        settings(true, false, false, false);
        mha__slice out = normalize(&pass, c, text);
        size_t n = (size_t)mha__utf8_write(c, text);
        bool fine = removed[c] ? out.n == 0 : blanked[c] ? is_text(&out, " ", 1) : is_text(&out, text, n);
        settings(false, true, false, false);
        out = normalize(&pass, c, text);
        memcpy(apart + 1, text, n);
        apart[n + 1] = ' ';
        fine = fine && (chinese[c] ? is_text(&out, apart, n + 2) : is_text(&out, text, n));
        if (!fine) fail_msg("U+%04X must be cleaned and separated as in the reference", (unsigned)c);
    }
    mha__pass_free(&pass);
    free(removed);
    free(blanked);
    free(chinese);
    json_decref(classes);
}

static void test_splitting(void **state)
{
    (void)state;
    json_t *classes = load("classes.json");
    uint8_t *space = members(classes, "bert_whitespace");
    uint8_t *punctuation = members(classes, "bert_punctuation");
    mha__pass pass = {0};
    for (uint32_t c = 0; c < POINTS; c++) {
        char text[8] = "a";
        if (is_surrogate(c)) continue;
        size_t n = 1 + (size_t)mha__utf8_write(c, text + 1);
        text[n++] = 'a';
        mha__slice in = {.bytes = text, .n = n};
        assert_int_equal(mha__edits_run(&tokenizer->splitter, &pass, pass.rewritten, &in), MHA_OK);
        if (pass.word_count != (space[c] ? 2u : punctuation[c] ? 3u : 1u))
            fail_msg("U+%04X must split words as in the reference", (unsigned)c);
    }
    mha__pass_free(&pass);
    free(space);
    free(punctuation);
    json_decref(classes);
}

/* Decomposes a Hangul syllable. The mappings do not contain Hangul syllables, which are decomposed by arithmetic
 * (Unicode, section 3.12). */
static size_t hangul(uint32_t c, char *text)
{
    uint32_t s = c - 0xAC00;
    size_t n = (size_t)mha__utf8_write(0x1100 + s / 588, text);
    n += (size_t)mha__utf8_write(0x1161 + s % 588 / 28, text + n);
    if (s % 28) n += (size_t)mha__utf8_write(0x11A7 + s % 28, text + n);
    return n;
}

static void check_mapping(const json_t *mappings, const char *name, bool strip, bool lower)
{
    const json_t *map = json_object_get(mappings, name);
    mha__pass pass = {0};
    assert_true(json_object_size(map) > 1000);
    settings(false, false, strip, lower);
    for (uint32_t c = 0; c < POINTS; c++) {
        char key[16];
        char text[4];
        char want[16];
        if (is_surrogate(c)) continue;
        mha__slice out = normalize(&pass, c, text);
        snprintf(key, sizeof key, "%X", (unsigned)c);
        const json_t *to = json_object_get(map, key);
        size_t n = to ? json_string_length(to) : (size_t)mha__utf8_write(c, want);
        if (to) memcpy(want, json_string_value(to), n);
        if (strip && c >= 0xAC00 && c <= 0xD7A3) n = hangul(c, want);
        if (!is_text(&out, want, n)) fail_msg("%s: U+%04X must have the recorded mapping", name, (unsigned)c);
        for (size_t i = 0; i < out.n; i++)
            assert_int_equal(out.from[i], 0);
    }
    mha__pass_free(&pass);
}

static void test_mappings(void **state)
{
    (void)state;
    json_t *mappings = load("mappings.json");
    check_mapping(mappings, "bert_lowercase", false, true);
    check_mapping(mappings, "bert_strip_accents", true, false);
    check_mapping(mappings, "bert_lowercase_strip_accents", true, true);
    json_decref(mappings);
}

/* Compares NFC and NFKC of every character with the reference. */
static void check_form(const json_t *mappings, const char *name, bool compatible)
{
    const json_t *map = json_object_get(mappings, name);
    const mha__edit_list list = {.items = {{.run = mha__edit_form, .rewrites = true, .form = {compatible, true}}},
                                 .count = 1};
    mha__pass pass = {0};
    assert_true(json_object_size(map) > 1000);
    for (uint32_t c = 0; c < POINTS; c++) {
        char text[4];
        char key[8];
        if (is_surrogate(c)) continue;
        mha__slice out = {.bytes = text, .n = (size_t)mha__utf8_write(c, text)};
        size_t n = out.n;
        pass.text = text;
        assert_int_equal(mha__edits_run(&list, &pass, pass.normal, &out), MHA_OK);
        snprintf(key, sizeof key, "%X", (unsigned)c);
        const json_t *want = json_object_get(map, key);
        bool fine = want ? is_text(&out, json_string_value(want), json_string_length(want)) : is_text(&out, text, n);
        if (!fine) fail_msg("%s of U+%04X must equal the recorded form", name, (unsigned)c);
    }
    mha__pass_free(&pass);
}

static void test_forms(void **state)
{
    (void)state;
    json_t *mappings = load("mappings.json");
    check_form(mappings, "nfc", false);
    check_form(mappings, "nfkc", true);
    json_decref(mappings);
}

/* Returns the number of words into which the split pattern of GPT-2 splits a character between two characters
 * `side`. */
static size_t words_between(const mha__edit_list *list, mha__pass *pass, char side, uint32_t c)
{
    char text[8] = {side};
    size_t n = 1 + (size_t)mha__utf8_write(c, text + 1);
    text[n++] = side;
    mha__slice in = {.bytes = text, .n = n};
    assert_int_equal(mha__edits_run(list, pass, pass->rewritten, &in), MHA_OK);
    return pass->word_count;
}

/* Tests letters, numbers and white space in the split patterns. */
static void test_regex_classes(void **state)
{
    (void)state;
    json_t *classes = load("classes.json");
    uint8_t *letter = members(classes, "regex_L");
    uint8_t *number = members(classes, "regex_N");
    uint8_t *space = members(classes, "regex_s");
    mha__regex_list regexes = {0};
    mha__edit_list list = {.items = {{.run = mha__edit_cut, .cut = {.how = MHA__ISOLATED}}}, .count = 1};
    mha__pass pass = {0};
    assert_int_equal(mha__regex_make(NULL, &regexes, mha__regex_gpt2, &list.items[0].cut.pattern.regex, NULL), MHA_OK);
    for (uint32_t c = 0; c < POINTS; c++) {
        if (is_surrogate(c)) continue;
        bool fine = (words_between(&list, &pass, 'x', c) == 1) == letter[c] &&
                    (words_between(&list, &pass, '1', c) == 1) == number[c] &&
                    (words_between(&list, &pass, '!', c) == 1) == (!letter[c] && !number[c] && !space[c]);
        if (!fine) fail_msg("U+%04X must be in the recorded classes", (unsigned)c);
    }
    mha__pass_free(&pass);
    mha__regex_list_free(NULL, &regexes);
    free(letter);
    free(number);
    free(space);
    json_decref(classes);
}

static int open_tokenizer(void **state)
{
    (void)state;
    mha_error err = {0};
    if (mha_tokenizer_open(NULL, MHA_TEST_DATA "/tokenizer/bert-tiny", &tokenizer, &err))
        print_error("%s\n", err.message);
    return tokenizer ? 0 : -1;
}

static int free_tokenizer(void **state)
{
    (void)state;
    mha_tokenizer_free(tokenizer);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean_and_chinese), cmocka_unit_test(test_splitting),
        cmocka_unit_test(test_mappings),          cmocka_unit_test(test_forms),
        cmocka_unit_test(test_regex_classes),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, free_tokenizer);
}
