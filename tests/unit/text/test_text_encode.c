/* test_text_encode.c - tests encoding and decoding: invalid arguments, worst-case texts, failed allocations, and
 * invariants that need no reference. */
#include "base/utf8.h"
#include "mha/text.h"
#include "support/alloc.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static mha_tokenizer *tiny;

static int open_tiny(void **state)
{
    (void)state;
    mha_error err = {0};
    if (mha_tokenizer_open(NULL, MHA_TEST_DATA "/tokenizer/bert-tiny", &tiny, &err)) print_error("%s\n", err.message);
    return tiny ? 0 : -1;
}

static int free_tiny(void **state)
{
    (void)state;
    mha_tokenizer_free(tiny);
    return 0;
}

static mha_encoding *encode(const char *text, size_t n, const mha_encode_options *options)
{
    mha_encoding *e;
    mha_error err = {0};
    if (mha_tokenizer_encode(tiny, text, n, NULL, 0, options, &e, &err)) fail_msg("%s", err.message);
    return e;
}

static void check_refused(const char *text, size_t n, const mha_encode_options *options, const char *sentence)
{
    mha_encoding *e = (mha_encoding *)&tiny;
    mha_error err = {0};
    assert_int_equal(mha_tokenizer_encode(tiny, text, n, NULL, 0, options, &e, &err), MHA_ERR_ARG);
    assert_null(e);
    if (!strstr(err.message, sentence)) fail_msg("message must contain \"%s\" (got \"%s\")", sentence, err.message);
}

static void test_arguments(void **state)
{
    (void)state;
    mha_encoding *e;
    mha_encode_options o = {.size = sizeof o};
    check_refused(NULL, 1, NULL, "tokenizer and text must not be NULL");
    check_refused("ab\xFFzz", 5, NULL, "text must be UTF-8 (got 0xFF at byte 2)");
    check_refused("\xED\xA0\x80", 3, NULL, "text must be UTF-8 (got 0xED at byte 0)"); /* an encoded surrogate */
    check_refused("abc\xE2\x82", 5, NULL, "text must be UTF-8 (got 0xE2 at byte 3)");  /* a truncated character */
    o.max_tokens = 1;
    check_refused("hello", 5, &o, "max_tokens must be at least the 2 special tokens (got 1");
    o.max_tokens = -1;
    check_refused("hello", 5, &o, "max_tokens must be at least 0; 0 means no limit (got -1");
    assert_int_equal(mha_tokenizer_encode(NULL, "", 0, NULL, 0, NULL, &e, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_tokenizer_encode(tiny, "", 0, NULL, 0, NULL, NULL, NULL), MHA_ERR_ARG);
    mha_error err = {0};
    assert_int_equal(mha_tokenizer_encode(tiny, "ok", 2, "\x80", 1, NULL, &e, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "second text must be UTF-8 (got 0x80 at byte 0)"));
    mha_encoding_free(NULL);
}

static void test_empty(void **state)
{
    (void)state;
    mha_encoding *e = encode(NULL, 0, NULL);
    assert_int_equal(e->count, 2);
    assert_int_equal(e->ids[0], mha_tokenizer_id(tiny, "[CLS]"));
    assert_int_equal(e->ids[1], mha_tokenizer_id(tiny, "[SEP]"));
    assert_int_equal(e->sequence[0], -1);
    mha_encoding_free(e);
    mha_encode_options o = {.size = sizeof o, .no_special = 1};
    e = encode("", 0, &o);
    assert_int_equal(e->count, 0);
    mha_encoding_free(e);
}

static void test_limit(void **state)
{
    (void)state;
    const char *text = "where is the key ?";
    mha_encoding *whole = encode(text, strlen(text), NULL);
    for (int64_t limit = 2; limit <= whole->count + 1; limit++) {
        mha_encode_options o = {.size = sizeof o, .max_tokens = limit};
        mha_encoding *e = encode(text, strlen(text), &o);
        int64_t want = limit < whole->count ? limit : whole->count;
        assert_int_equal(e->count, want);
        assert_int_equal(e->truncated, whole->count - want);
        assert_memory_equal(e->ids, whole->ids, (size_t)(want - 1) * sizeof *e->ids);
        /* truncation must keep [SEP] as the last token */
        assert_int_equal(e->ids[want - 1], whole->ids[whole->count - 1]);
        mha_encoding_free(e);
    }
    mha_encoding_free(whole);
}

static void test_decode(void **state)
{
    (void)state;
    char *text;
    size_t n;
    mha_error err = {0};
    const int32_t ids[] = {mha_tokenizer_id(tiny, "[CLS]"), mha_tokenizer_id(tiny, "the"), 1 << 30};
    assert_int_equal(mha_tokenizer_decode(tiny, ids, 2, 1, &text, &n, NULL), MHA_OK);
    assert_string_equal(text, "the");
    assert_int_equal(n, 3);
    mha_tokenizer_text_free(tiny, text);
    assert_int_equal(mha_tokenizer_decode(tiny, NULL, 0, 0, &text, NULL, NULL), MHA_OK);
    assert_string_equal(text, "");
    mha_tokenizer_text_free(tiny, text);
    assert_int_equal(mha_tokenizer_decode(tiny, ids, 3, 0, &text, &n, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "ids[2] must be at least 0 and below 600 (got 1073741824)");
    assert_null(text);
    assert_int_equal(mha_tokenizer_decode(tiny, ids, -1, 0, &text, &n, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_tokenizer_decode(tiny, NULL, 1, 0, &text, &n, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_tokenizer_decode(tiny, ids, 1, 0, NULL, &n, NULL), MHA_ERR_ARG);
    mha_tokenizer_text_free(tiny, NULL);
}

/* Fails unless the offsets of all tokens are within the text, between characters, and in ascending order. */
static void check_laws(const mha_encoding *e, const char *text, size_t n)
{
    int64_t last = 0;
    for (int64_t i = 1; i + 1 < e->count; i++) {
        assert_non_null(mha_tokenizer_token(tiny, e->ids[i]));
        assert_int_equal(e->sequence[i], 0);
        assert_true(e->begin[i] >= last && e->begin[i] < e->end[i] && (size_t)e->end[i] <= n);
        assert_int_equal(mha__utf8_check(text + e->begin[i], (size_t)(e->end[i] - e->begin[i])),
                         e->end[i] - e->begin[i]);
        last = e->begin[i];
    }
}

/* Encodes worst-case texts of 1 MiB, each a repeated piece. A step that took quadratic time would exceed the time
 * limit. */
static void test_hostile_texts(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "x",                            /* one word */
        "a\xCC\x96\xCC\x81\xCC\xB4",    /* marks that must be reordered */
        "\xCC\x81\xCC\x96",             /* marks without a base letter, in one run */
        "\xE0\xA3\x94\xCC\x96\xD6\xB0", /* a run that includes marks which are kept */
        "[MASK",                        /* an incomplete added token */
        "[MASK][SEP]",                  /* only added tokens */
        "\xE6\x97\xA5",                 /* one word per character */
        "\xF0\x9D\x85\x9E",             /* one character that decomposes into several */
        ".",                            /* punctuation */
        "\xE1\x84\x80\xE1\x85\xA1 ",    /* Hangul */
        "\xC2\xAD",                     /* soft hyphen, which is removed */
        " ",
        "\xEC\x9D\x80",
    };
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES + 16);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        size_t length = strlen(pieces[i]);
        size_t n = 0;
        for (; n < BYTES; n += length)
            memcpy(text + n, pieces[i], length);
        mha_encoding *e = encode(text, n, NULL);
        check_laws(e, text, n);
        mha_encoding_free(e);
    }
    free(text);
}

/* Tests texts of random characters. Many of them have a special meaning in some step. The seed is constant and is
 * printed. */
static void test_random_texts(void **state)
{
    (void)state;
    static const uint32_t special[] = {' ',    ' ',  'a',     'e',   't',   '.',    0x301,  0x323,
                                       0x130,  0xC5, 0xAD,    0x8D4, 0x344, 0x65E5, 0xAC01, 0x1F600,
                                       0xFFFD, 0,    0x2F800, '[',   ']',   0x302E};
    uint64_t seed = 20240613;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 3000; round++) {
        char text[256];
        size_t n = 0;
        while (n < 200) {
            seed = seed * 6364136223846793005u + 1442695040888963407u; /* the generator of Knuth's MMIX */
            uint32_t r = (uint32_t)(seed >> 33);
            uint32_t code = r % 4 ? special[(r >> 2) % (sizeof special / sizeof special[0])] : (r >> 2) % 0x110000;
            if (r % 64 == 1) break;
            if (code < 0xD800 || code > 0xDFFF) n += (size_t)mha__utf8_write(code, text + n);
        }
        mha_encoding *e = encode(text, n, NULL);
        check_laws(e, text, n);
        char *decoded;
        assert_int_equal(mha_tokenizer_decode(tiny, e->ids, e->count, 0, &decoded, NULL, NULL), MHA_OK);
        mha_tokenizer_text_free(tiny, decoded);
        mha_encoding_free(e);
    }
}

/* With a budget of 0, 1, 2, ... allocations, each failed call must return MHA_ERR_MEMORY and free its memory. The
 * tokenizer must remain usable. */
static void test_starvation(void **state)
{
    (void)state;
    const char *text = "e\xCC\x81\xCC\x96 o \xCC\x96\xCC\x81 [MASK] jamais 3.14 na\xC3\xAFve xyzxyz";
    counting c = {.budget = -1};
    mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&c)};
    mha_ctx *ctx;
    mha_tokenizer *t;
    mha_error err = {0};
    assert_int_equal(mha_ctx_create(&options, &ctx, &err), MHA_OK);
    assert_int_equal(mha_tokenizer_open(ctx, MHA_TEST_DATA "/tokenizer/bert-tiny", &t, &err), MHA_OK);
    long before = c.live;
    long budget = 0;
    for (mha_status status = MHA_ERR_MEMORY; status == MHA_ERR_MEMORY; budget++) {
        mha_encoding *e = NULL;
        char *decoded = NULL;
        c.calls = 0;
        c.budget = budget;
        status = mha_tokenizer_encode(t, text, strlen(text), text, strlen(text), NULL, &e, &err);
        if (status == MHA_OK) status = mha_tokenizer_decode(t, e->ids, e->count, 0, &decoded, NULL, &err);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        mha_encoding_free(e);
        mha_tokenizer_text_free(t, decoded);
        assert_int_equal(c.live, before);
    }
    assert_true(budget > 8);
    c.budget = -1;
    mha_tokenizer_free(t);
    mha_ctx_free(ctx);
    assert_int_equal(c.live, 0);
}

/* ---- stored limits and special tokens ---- */

/* A WordPiece vocabulary of letters with a template, whose "[X]" is a special token that is matched in lower case. */
#define LETTERS(limits) WITH(limits, LOWERCASE)
#define LOWERCASE "{\"type\":\"Lowercase\"}"
#define WITH(limits, normalizer) ADDED(limits, normalizer, TOKEN(1, "[X]", "false"), "[X]")
#define TOKEN(id, content, strip)                                                                                  \
    "{\"id\":" #id ",\"content\":\"" content "\",\"single_word\":false,\"lstrip\":" strip ",\"rstrip\":" strip "," \
    "\"normalized\":true,\"special\":true}"
#define ADDED(limits, normalizer, tokens, content)                                                \
    "{" limits "\"added_tokens\":[" tokens "],\"normalizer\":" normalizer ","                     \
    "\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"decoder\":null,"                          \
    "\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"s\",2],\"cls\":[\"c\",3]},"       \
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"continuing_subword_prefix\":\"##\"," \
    "\"max_input_chars_per_word\":100,\"vocab\":{\"u\":0,\"" content "\":1,\"s\":2,\"c\":3,\"a\":4}}}"
#define PADDING(strategy)                                                                                   \
    "\"padding\":{\"strategy\":" strategy ",\"direction\":\"Right\",\"pad_to_multiple_of\":4,\"pad_id\":0," \
    "\"pad_type_id\":0,\"pad_token\":\"u\"},"
#define TRUNCATION(length, strategy) \
    "\"truncation\":{\"max_length\":" #length ",\"strategy\":\"" strategy "\",\"stride\":0,\"direction\":\"Right\"},"

/* Returns the number of tokens of a text with the stored limits; -1 if it is refused. */
static int64_t limited_count(const char *json, const char *text)
{
    mha_tokenizer *t;
    mha_encoding *e;
    mha_error err = {0};
    const mha_encode_options options = {.size = sizeof options, .stored_limits = 1};
    if (mha_tokenizer_open_memory(NULL, json, strlen(json), &t, &err)) fail_msg("%s", err.message);
    const mha_status status = mha_tokenizer_encode(t, text, strlen(text), NULL, 0, &options, &e, &err);
    const int64_t count = status ? -1 : e->count;
    mha_encoding_free(e);
    mha_tokenizer_free(t);
    return count;
}

/* The values are those of the tokenizers library 0.23. */
static void test_stored_limits(void **state)
{
    (void)state;
    assert_int_equal(limited_count(LETTERS(PADDING("{\"Fixed\":6}")), "a"), 8);
    assert_int_equal(limited_count(LETTERS(PADDING("{\"Fixed\":6}")), "a a a a a a a"), 9); /* longer: not padded */
    assert_int_equal(limited_count(LETTERS(PADDING("{\"Fixed\":0}")), "a"), 3);
    assert_int_equal(limited_count(LETTERS(PADDING("\"BatchLongest\"")), "a a a"), 8);
    assert_int_equal(limited_count(LETTERS(TRUNCATION(3, "OnlySecond")), "a a"), -1);
    assert_int_equal(limited_count(LETTERS(TRUNCATION(2, "OnlySecond")), "a a"), 2);
    assert_int_equal(limited_count(LETTERS(TRUNCATION(2, "OnlyFirst")), "a a"), 2);
    assert_int_equal(limited_count(LETTERS(TRUNCATION(2, "LongestFirst")), "a a"), 2);
}

/* The expression is that of DebertaV2Tokenizer in transformers 5. A replaced text joins two words. */
static void test_replaced_spaces(void **state)
{
    (void)state;
#define REPLACE(text) "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"" text "\"},\"content\":\"a\"}"
    const char *both = WITH("", REPLACE("\\\\s{2,}|[\\\\n\\\\r\\\\t]")),
               *lines = WITH("", REPLACE("[\\\\n\\\\r\\\\t]"));
    assert_int_equal(limited_count(both, "a a"), 4);
    assert_int_equal(limited_count(both, "a\na"), 3);
    assert_int_equal(limited_count(both, "a  a"), 3);
    assert_int_equal(limited_count(both, "a\xE2\x80\x83\xC2\x85 a"), 3);
    assert_int_equal(limited_count(lines, "a\ta"), 3);
    assert_int_equal(limited_count(lines, "a  a"), 4);
}

/* U+1ACF extends a cluster in Unicode 17, but not across a line break: the reference replaces only the line break. */
static void test_mark_after_line_break(void **state)
{
    (void)state;
    static const int32_t want[] = {3, 2, 38, 1};
    const char *text = "\n\xE1\xAB\x8F"
                       "0";
    mha_tokenizer *t;
    mha_encoding *e;
    mha_error err = {0};
    if (mha_tokenizer_open(NULL, MHA_TEST_DATA "/tokenizer/unigram", &t, &err)) fail_msg("%s", err.message);
    if (mha_tokenizer_encode(t, text, strlen(text), NULL, 0, NULL, &e, &err)) fail_msg("%s", err.message);
    assert_int_equal(e->count, 4);
    assert_memory_equal(e->ids, want, sizeof want);
    mha_encoding_free(e);
    mha_tokenizer_free(t);
}

/* The white space around a token may contain the token again: it then belongs to the first one. */
static void test_adjacent_white_space(void **state)
{
    (void)state;
    const char *json = ADDED("", "null", TOKEN(1, "\\t", "true"), "\\t");
    assert_int_equal(limited_count(json, "a\t\t a"), 5);
    assert_int_equal(limited_count(json, " \t \t\t"), 3);
    assert_int_equal(limited_count(json, "\ta\t"), 5);
}

/* Compares the text of ids 1 and 4, decoded without special tokens, with `want`. */
static void check_shown(const char *json, const char *want)
{
    mha_tokenizer *t;
    mha_error err = {0};
    char *text;
    if (mha_tokenizer_open_memory(NULL, json, strlen(json), &t, &err)) fail_msg("%s", err.message);
    assert_true(mha_tokenizer_is_special(t, 1));
    assert_false(mha_tokenizer_is_special(t, 4));
    assert_int_equal(mha_tokenizer_decode(t, (const int32_t[]){1, 4}, 2, 1, &text, NULL, &err), MHA_OK);
    assert_string_equal(text, want);
    mha_tokenizer_text_free(t, text);
    mha_tokenizer_free(t);
}

/* "[X]" is shown as "[x]", which may be the content of another special token. A token of white space may be shown as an
 * empty text. */
static void test_changed_special(void **state)
{
    (void)state;
    check_shown(LETTERS(""), "[x] a");
    check_shown(ADDED("", LOWERCASE, TOKEN(1, "[X]", "false") "," TOKEN(5, "[x]", "false"), "[X]"), "a");
#define STRIP "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}"
    check_shown(ADDED("", STRIP, TOKEN(1, "  ", "false"), "  "), " a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),       cmocka_unit_test(test_empty),
        cmocka_unit_test(test_limit),           cmocka_unit_test(test_decode),
        cmocka_unit_test(test_hostile_texts),   cmocka_unit_test(test_random_texts),
        cmocka_unit_test(test_starvation),      cmocka_unit_test(test_stored_limits),
        cmocka_unit_test(test_replaced_spaces), cmocka_unit_test(test_mark_after_line_break),
        cmocka_unit_test(test_changed_special), cmocka_unit_test(test_adjacent_white_space),
    };
    return cmocka_run_group_tests(tests, open_tiny, free_tiny);
}
