/* test_tokenizer.c - compares encodings with data/tokenizer/cases.json, recorded from the tokenizers library, for
 * the tokenizers of all-MiniLM-L6-v2, of the tiny models of each family (in two versions of the file) and of small
 * models that use every option. */
#include "mha/text.h"
#include "text/tokenizer.h"
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static json_t *golden;

static int load_golden(void **state)
{
    (void)state;
    json_error_t e;
    golden = json_load_file(MHA_TEST_DATA "/tokenizer/cases.json", JSON_ALLOW_NUL, &e);
    if (!golden) print_error("cases.json: %s\n", e.text);
    return golden ? 0 : -1;
}

static int free_golden(void **state)
{
    (void)state;
    json_decref(golden);
    return 0;
}

static const char *text_of(const json_t *c, const char *key, size_t *n)
{
    const json_t *text = json_object_get(c, key);
    *n = json_string_length(text);
    return json_string_value(text);
}

/* Compares element `k` of the list `key` and reports a difference. */
static void check_number(const json_t *list, const char *what, int64_t k, int64_t got, const json_t *c)
{
    int64_t want = json_integer_value(json_array_get(list, (size_t)k));
    if (got == want) return;
    size_t n;
    fail_msg("%s[%lld] of \"%.200s\": expected %lld, got %lld", what, (long long)k, text_of(c, "text", &n),
             (long long)want, (long long)got);
}

static void check_encoding(const mha_encoding *e, const json_t *c)
{
    const json_t *ids = json_object_get(c, "ids");
    size_t n;
    if ((size_t)e->count != json_array_size(ids))
        fail_msg("\"%.200s\": expected %zu tokens, got %lld", text_of(c, "text", &n), json_array_size(ids),
                 (long long)e->count);
    for (int64_t k = 0; k < e->count; k++) {
        const json_t *offsets = json_array_get(json_object_get(c, "offsets"), (size_t)k);
        check_number(ids, "ids", k, e->ids[k], c);
        check_number(json_object_get(c, "type_ids"), "type_ids", k, e->type_ids[k], c);
        check_number(json_object_get(c, "sequence"), "sequence", k, e->sequence[k], c);
        check_number(offsets, "begin", 0, e->begin[k], c);
        check_number(offsets, "end", 1, e->end[k], c);
    }
}

static void check_decoded(const mha_tokenizer *t, const mha_encoding *e, const json_t *c, const char *key, int skip)
{
    size_t want_n;
    size_t n;
    char *text;
    mha_error err = {0};
    const char *want = text_of(c, key, &want_n);
    if (!want) return;
    if (mha_tokenizer_decode(t, e->ids, e->count, skip, &text, &n, &err)) fail_msg("%s", err.message);
    assert_int_equal(n, want_n);
    assert_memory_equal(text, want, n);
    mha_tokenizer_text_free(t, text);
}

/* Compares the normalized text and the words, which are recorded for the whole text, not split at added tokens. */
static void check_stages(const mha_tokenizer *t, const char *text, size_t n, const json_t *c)
{
    const json_t *words = json_object_get(c, "pretokens");
    if (!words) return;
    size_t want_n;
    const char *want = text_of(c, "normalized", &want_n);
    mha__pass pass = {.ctx = t->ctx, .text = text, .text_bytes = n};
    mha__slice whole = {.bytes = text, .n = n};
    mha__slice normal;
    assert_int_equal(mha__normalize(t, &pass, &whole, &normal), MHA_OK);
    assert_int_equal(normal.n, want_n);
    assert_memory_equal(normal.bytes, want, want_n);
    assert_int_equal(mha__edits_run(&t->splitter, &pass, pass.rewritten, &normal), MHA_OK);
    assert_int_equal(pass.word_count, json_array_size(words));
    for (size_t i = 0; i < pass.word_count; i++) {
        const json_t *word = json_array_get(words, i);
        assert_int_equal(pass.words[i].end - pass.words[i].begin, json_string_length(word));
        assert_memory_equal(normal.bytes + pass.words[i].begin, json_string_value(word), json_string_length(word));
    }
    mha__pass_free(&pass);
}

static void check_case(const mha_tokenizer *t, const json_t *c)
{
    size_t n;
    size_t pair_n;
    const char *text = text_of(c, "text", &n);
    const char *pair = text_of(c, "pair", &pair_n);
    mha_encode_options options = {.size = sizeof options,
                                  .no_special = json_is_true(json_object_get(c, "no_special")),
                                  .max_tokens = json_integer_value(json_object_get(c, "max_tokens")),
                                  .stored_limits = json_is_true(json_object_get(c, "stored_limits"))};
    mha_encoding *e;
    mha_error err = {0};
    mha_status status = mha_tokenizer_encode(t, text, n, pair, pair_n, &options, &e, &err);
    if (json_object_get(c, "fails")) {
        assert_int_equal(status, MHA_ERR_ARG);
        assert_non_null(strstr(err.message, "max_tokens"));
        return;
    }
    if (status) fail_msg("\"%.200s\": %s", text, err.message);
    check_encoding(e, c);
    check_decoded(t, e, c, "decoded", 0);
    check_decoded(t, e, c, "decoded_skip_special", 1);
    check_stages(t, text, n, c);
    mha_encoding_free(e);
}

static void test_cases(void **state)
{
    (void)state;
    size_t g;
    size_t i;
    size_t total = 0;
    const json_t *group;
    const json_t *c;
    json_array_foreach(json_object_get(golden, "groups"), g, group)
    {
        char folder[512];
        mha_tokenizer *t;
        mha_error err = {0};
        snprintf(folder, sizeof folder, MHA_TEST_DATA "/tokenizer/%s",
                 json_string_value(json_object_get(group, "folder")));
        print_message("%s\n", folder + sizeof MHA_TEST_DATA);
        if (mha_tokenizer_open(NULL, folder, &t, &err)) fail_msg("%s", err.message);
        json_array_foreach(json_object_get(group, "cases"), i, c) check_case(t, c);
        total += i;
        mha_tokenizer_free(t);
    }
    assert_true(total > 600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, load_golden, free_golden);
}
