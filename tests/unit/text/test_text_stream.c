/* test_text_stream.c - tests the streaming decoder: it must return only complete characters and lose no text. Also
 * tests invalid arguments and failed allocations. */
#include "base/utf8.h"
#include "mha/text.h"
#include "support/alloc.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static mha_tokenizer *open_folder(mha_ctx *ctx, const char *name)
{
    char folder[512];
    mha_tokenizer *t;
    mha_error err = {0};
    snprintf(folder, sizeof folder, MHA_TEST_DATA "/tokenizer/%s", name);
    if (mha_tokenizer_open(ctx, folder, &t, &err)) fail_msg("%s", err.message);
    return t;
}

/* Passes tokens to a stream, from a list separated by spaces. Returns the decoded parts separated by "|". The last part
 * is the text returned at the end of the stream. */
static const char *parts_of(const char *folder, const char *tokens, int skip_special)
{
    static char parts[512];
    mha_tokenizer *t = open_folder(NULL, folder);
    mha_text_stream *stream;
    const char *text;
    size_t n;
    size_t used = 0;
    assert_int_equal(mha_text_stream_create(t, skip_special, &stream, NULL), MHA_OK);
    while (*tokens) {
        char name[64];
        int length = (int)strcspn(tokens, " ");
        snprintf(name, sizeof name, "%.*s", length, tokens);
        mha_error err = {0};
        if (mha_text_stream_put(stream, mha_tokenizer_id(t, name), &text, &n, &err))
            fail_msg("%s: %s", name, err.message);
        used += (size_t)snprintf(parts + used, sizeof parts - used, "%.*s|", (int)n, text);
        tokens += length + (tokens[length] == ' ');
    }
    assert_int_equal(mha_text_stream_end(stream, &text, &n, NULL), MHA_OK);
    snprintf(parts + used, sizeof parts - used, "%.*s", (int)n, text);
    mha_text_stream_free(stream);
    mha_tokenizer_free(t);
    return parts;
}

#define BAD "\xEF\xBF\xBD"
#define NI "\xE6\x97\xA5"

static void test_bytes(void **state)
{
    (void)state;
    /* characters of the byte-level encoding: U+00E6 is byte 0xE6, U+0139 is 0x97, U+00A5 is 0xA5, U+0120 is a space */
    assert_string_equal(parts_of("gpt2-tiny", "\xC3\xA6 \xC4\xB9 \xC2\xA5 a", 0), "||" NI "|a|");
    assert_string_equal(parts_of("gpt2-tiny", "a \xC3\xA6 \xC4\xB9", 0), "a|||" BAD);
    assert_string_equal(parts_of("gpt2-tiny", "\xC3\xA6 a \xC4\xB9 b", 0), "|" BAD "a|" BAD "|b|");
    assert_string_equal(parts_of("gpt2-tiny", "\xC3\xA6 \xC3\xA6 \xC4\xB9 \xC2\xA5", 0), "|" BAD "||" NI "|");
    assert_string_equal(parts_of("gpt2-tiny", "<|endoftext|> \xC4\xA0the", 1), "| the|");
    assert_string_equal(parts_of("gpt2-tiny", "", 0), "");
}

static void test_fallback(void **state)
{
    (void)state;
    assert_string_equal(parts_of("llama-yarn-tiny", "\xE2\x96\x81the <0xE6> <0x97> <0xA5> \xE2\x96\x81t", 0),
                        "the|||" NI "| t|");
    assert_string_equal(parts_of("llama-yarn-tiny", "<0xE6> <0x97> <0xA5> <0xE6> a", 0), "||" NI "||" BAD "a|");
    assert_string_equal(parts_of("llama-yarn-tiny", "<0xE6> <0xE6> <0x97> <0xA5>", 0), "|" BAD BAD "|" BAD "|" BAD "|");
    assert_string_equal(parts_of("llama-yarn-tiny", "<0xE6> <0x97>", 0), "||" BAD BAD);
    assert_string_equal(parts_of("llama-yarn-tiny", "<s> \xE2\x96\x81 \xE2\x96\x81the </s>", 1), "|| the||");
    assert_string_equal(parts_of("unigram", "\xE2\x96\x81the \xE2\x96\x81 s", 0), "the| |s|");
    assert_string_equal(parts_of("bert-tiny", "the of ##s", 0), "the| of|s|");
}

static void test_arguments(void **state)
{
    (void)state;
    mha_tokenizer *t = open_folder(NULL, "gpt2-tiny");
    mha_text_stream *stream;
    const char *text;
    size_t n;
    mha_error err = {0};
    assert_int_equal(mha_text_stream_create(NULL, 0, &stream, &err), MHA_ERR_ARG);
    assert_null(stream);
    assert_int_equal(mha_text_stream_create(t, 0, NULL, &err), MHA_ERR_ARG);
    assert_int_equal(mha_text_stream_create(t, 0, &stream, &err), MHA_OK);
    assert_int_equal(mha_text_stream_put(NULL, 0, &text, &n, &err), MHA_ERR_ARG);
    assert_int_equal(mha_text_stream_put(stream, 0, NULL, &n, &err), MHA_ERR_ARG);
    assert_int_equal(mha_text_stream_put(stream, 640, &text, &n, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "id must be at least 0 and below 640 (got 640)");
    assert_int_equal(n, 0);
    assert_int_equal(mha_text_stream_put(stream, mha_tokenizer_id(t, "a"), &text, &n, &err), MHA_OK);
    assert_int_equal(n, 1);
    assert_int_equal(mha_text_stream_end(stream, &text, &n, &err), MHA_OK);
    assert_int_equal(n, 0);
    assert_int_equal(mha_text_stream_put(stream, 0, &text, &n, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "stream must not have ended");
    mha_text_stream_free(stream);
    mha_text_stream_free(NULL);
    mha_tokenizer_free(t);
}

/* For random ids, every part must be valid UTF-8, and all parts together must equal the text decoded in one call. */
static void test_random_ids(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    mha_tokenizer *t = open_folder(NULL, "gpt2-tiny");
    uint64_t seed = 20240614;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 500; round++) {
        int32_t ids[COUNT];
        char all[4096];
        size_t used = 0;
        const char *text;
        char *whole;
        size_t n;
        mha_text_stream *stream;
        assert_int_equal(mha_text_stream_create(t, 0, &stream, NULL), MHA_OK);
        for (int i = 0; i <= COUNT; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u; /* the generator of Knuth's MMIX */
            if (i < COUNT) {
                ids[i] = (int32_t)((seed >> 33) % 256); /* ids of tokens that are single bytes */
                assert_int_equal(mha_text_stream_put(stream, ids[i], &text, &n, NULL), MHA_OK);
            } else {
                assert_int_equal(mha_text_stream_end(stream, &text, &n, NULL), MHA_OK);
            }
            assert_int_equal(mha__utf8_check(text, n), n);
            memcpy(all + used, text, n);
            used += n;
        }
        assert_int_equal(mha_tokenizer_decode(t, ids, COUNT, 0, &whole, &n, NULL), MHA_OK);
        assert_int_equal(n, used);
        assert_memory_equal(whole, all, n);
        mha_tokenizer_text_free(t, whole);
        mha_text_stream_free(stream);
    }
    mha_tokenizer_free(t);
}

static mha_status stream_all(const mha_tokenizer *t, const int32_t *ids, int count)
{
    mha_text_stream *stream;
    const char *text;
    size_t n;
    mha_error err = {0};
    mha_status status = mha_text_stream_create(t, 0, &stream, &err);
    for (int i = 0; i < count && status == MHA_OK; i++)
        status = mha_text_stream_put(stream, ids[i], &text, &n, &err);
    if (status == MHA_OK) status = mha_text_stream_end(stream, &text, &n, &err);
    mha_text_stream_free(stream);
    return status;
}

static void test_starvation(void **state)
{
    (void)state;
    counting c = {.budget = -1};
    mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&c)};
    mha_ctx *ctx;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_tokenizer *t = open_folder(ctx, "llama-yarn-tiny");
    const int32_t ids[] = {mha_tokenizer_id(t, "<0xE6>"), mha_tokenizer_id(t, "<0x97>"), mha_tokenizer_id(t, "a")};
    long before = c.live;
    mha_status status = MHA_ERR_MEMORY;
    long budget = 0;
    for (; status == MHA_ERR_MEMORY; budget++) {
        c.calls = 0;
        c.budget = budget;
        status = stream_all(t, ids, 3);
        assert_int_equal(c.live, before);
    }
    assert_int_equal(status, MHA_OK);
    assert_true(budget > 3);
    c.budget = -1;
    mha_tokenizer_free(t);
    mha_ctx_free(ctx);
    assert_int_equal(c.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),      cmocka_unit_test(test_fallback),   cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_random_ids), cmocka_unit_test(test_starvation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
