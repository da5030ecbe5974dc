/* test_trained_tokenizers.c - trains the tokenizers of data/tokenizer/trained.json with one and three threads, and
 * compares vocabularies and merges with those of the tokenizers library. */
#include "mha/text_train.h"
#include "support/files.h"
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static mha_tokenizer_trainer *train(mha_ctx *ctx, const json_t *c, const json_t *text, mha_tokenizer **tokenizer)
{
    mha_tokenizer_train_options o = {.size = sizeof o};
    mha_tokenizer_trainer *t;
    mha_error err = {0};
    if (strcmp(json_string_value(json_object_get(c, "type")), "wordpiece") == 0) o.type = MHA_TOKENIZER_WORDPIECE;
    o.vocab_size = json_integer_value(json_object_get(c, "vocab_size"));
    o.min_frequency = json_integer_value(json_object_get(c, "min_frequency"));
    o.lowercase = (int)json_integer_value(json_object_get(c, "lowercase"));
    assert_int_equal(mha_tokenizer_trainer_create(ctx, &o, &t, &err), MHA_OK);
    assert_int_equal(mha_tokenizer_trainer_put(t, json_string_value(text), json_string_length(text), &err), MHA_OK);
    assert_int_equal(mha_tokenizer_trainer_run(t, tokenizer, &err), MHA_OK);
    return t;
}

static void check_tokens(const mha_tokenizer *tokenizer, const json_t *want)
{
    size_t i;
    const json_t *token;
    assert_int_equal(mha_tokenizer_size(tokenizer), json_array_size(want));
    json_array_foreach(want, i, token)
        assert_string_equal(mha_tokenizer_token(tokenizer, (int32_t)i), json_string_value(token));
}

/* Compares the merges with `want`, the contents of merges.txt without its first line. */
static void check_merges(const mha_tokenizer_trainer *t, const char *want)
{
    char folder[512];
    size_t n;
    mha_error err = {0};
    snprintf(folder, sizeof folder, "%s/out", files_folder());
    assert_int_equal(mha_tokenizer_trainer_save(t, folder, 0, &err), MHA_OK);
    char *merges = files_read(files_path(folder, "merges.txt"), &n);
    assert_non_null(merges);
    assert_string_equal(strchr(merges, '\n') + 1, want);
    free(merges);
    files_remove(folder);
    folder[strlen(folder) - strlen("/out")] = '\0';
    files_remove(folder);
}

static void check_case(const json_t *golden, const json_t *c, int threads)
{
    mha_ctx_options options = {.size = sizeof options, .threads = threads};
    mha_ctx *ctx;
    mha_tokenizer *tokenizer;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    const json_t *text =
        json_object_get(json_object_get(golden, "texts"), json_string_value(json_object_get(c, "text")));
    mha_tokenizer_trainer *t = train(ctx, c, text, &tokenizer);
    const char *merges = json_string_value(json_object_get(c, "merges"));
    check_tokens(tokenizer, json_object_get(c, "tokens"));
    if (*merges) check_merges(t, merges);
    mha_tokenizer_free(tokenizer);
    mha_tokenizer_trainer_free(t);
    mha_ctx_free(ctx);
}

static void test_cases(void **state)
{
    (void)state;
    json_error_t e;
    json_t *golden = json_load_file(MHA_TEST_DATA "/tokenizer/trained.json", JSON_ALLOW_NUL, &e);
    const json_t *c;
    size_t i;
    assert_non_null(golden);
    assert_true(json_array_size(json_object_get(golden, "cases")) >= 10);
    json_array_foreach(json_object_get(golden, "cases"), i, c)
    {
        check_case(golden, c, 1);
        check_case(golden, c, 3);
    }
    json_decref(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
