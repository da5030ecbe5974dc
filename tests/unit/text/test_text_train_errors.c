/* test_text_train_errors.c - tests errors of tokenizer training: invalid options, texts and orders of calls, the saved
 * folder, and failed allocations. */
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/text/tokenizer_trainer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- error messages ---- */

static void test_options(void **state)
{
    (void)state;
    static const char *const empty[] = {""}, *const broken[] = {"\xFF"}, *const lines[] = {"a\nb"};
    static const struct {
        mha_tokenizer_train_options o;
        const char *sentence;
    } wrong[] = {
        {{.vocab_size = 0}, "vocab_size must be from 1 to 1048576 (got 0"},
        {{.vocab_size = (1 << 20) + 1}, "vocab_size must be from 1 to 1048576 (got 1048577"},
        {{.vocab_size = 9, .min_frequency = -1}, "min_frequency must be at least 0 (got -1"},
        {{.vocab_size = 9, .type = (mha_tokenizer_type)2}, "got 2"},
        {{.vocab_size = 9, .lowercase = 1}, "lowercase must be unset for byte-level BPE"},
        {{.vocab_size = 9, .alphabet = 4}, "alphabet must be unset for byte-level BPE"},
        {{.vocab_size = 9, .type = MHA_TOKENIZER_WORDPIECE, .alphabet = -4}, "alphabet must be at least 0 (got -4"},
        {{.vocab_size = 9, .special_count = 1}, "special_count must be from 0 to 4096"},
        {{.vocab_size = 9, .special_count = -1, .special = empty}, "got -1"},
        {{.vocab_size = 9, .special_count = 1, .special = empty},
         "special token \"\" must be UTF-8 of 1 to 1024 bytes"},
        {{.vocab_size = 9, .special_count = 1, .special = broken}, "special token \"\\xFF\" must be UTF-8"},
        {{.vocab_size = 9, .special_count = 1, .special = lines}, "without line ends"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        mha_tokenizer_train_options o = wrong[i].o;
        mha_tokenizer_trainer *t;
        mha_error err = {0};
        o.size = sizeof o;
        assert_int_equal(mha_tokenizer_trainer_create(NULL, &o, &t, &err), MHA_ERR_ARG);
        assert_null(t);
        if (!strstr(err.message, wrong[i].sentence)) fail_msg("%s", err.message);
    }
    assert_int_equal(mha_tokenizer_trainer_create(NULL, NULL, NULL, NULL), MHA_ERR_ARG);
    mha_tokenizer_trainer_free(NULL);
}

/* Passes the text and runs the training. One of the two calls must fail with status `want` and a message that contains
 * `sentence`. All further calls on the trainer must then fail. */
static void check_refused(const mha_tokenizer_train_options *o, const char *text, size_t n, mha_status want,
                          const char *sentence)
{
    mha_tokenizer_trainer *t = trainer_create(NULL, o);
    mha_error err = {0};
    mha_status status = mha_tokenizer_trainer_put(t, text, n, &err);
    if (status == MHA_OK) status = mha_tokenizer_trainer_run(t, NULL, &err);
    assert_int_equal(status, want);
    if (!strstr(err.message, sentence)) fail_msg("message must contain %s (got %s)", sentence, err.message);
    assert_int_equal(mha_tokenizer_trainer_put(t, "a", 1, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "must not have failed; it can only be freed"));
    mha_tokenizer_trainer_free(t);
}

static void test_texts(void **state)
{
    (void)state;
    enum { LONG = (16 << 20) + 1 };
    check_refused(&trainer_bpe, NULL, 0, MHA_ERR_ARG, "text must contain words to train on");
    check_refused(&trainer_wordpiece, " \n\t\n \0", 6, MHA_ERR_ARG, "text must contain words");
    check_refused(&trainer_bpe, "ab\ncd\nefg\xFFh", 11, MHA_ERR_ARG, "line 3: text must be UTF-8 (got 0xFF at byte 3)");
    check_refused(&trainer_bpe, "ab\xE6\x97", 4, MHA_ERR_ARG, "line 1: text must be UTF-8 (got 0xE6 at byte 2)");
    check_refused(&trainer_bpe, "\xED\xA0\x80", 3, MHA_ERR_ARG, "line 1: text must be UTF-8 (got 0xED at byte 0)");
    mha_tokenizer_train_options o = trainer_bpe;
    o.vocab_size = 256;
    check_refused(&o, trainer_small, trainer_small_bytes, MHA_ERR_ARG,
                  "vocab_size must be at least the 1 special tokens and 256 bytes (got 256)");
    o = trainer_wordpiece;
    o.vocab_size = 20;
    check_refused(
        &o, trainer_small, trainer_small_bytes, MHA_ERR_ARG,
        "vocab_size must be at least the 5 special tokens and 35 characters (alphabet limits these) (got 20)");
    char *text = malloc(LONG);
    assert_non_null(text);
    memset(text, 'a', LONG);
    check_refused(&trainer_bpe, text, LONG, MHA_ERR_UNSUPPORTED,
                  "line 1: text must have a space between words at least every 16 MiB");
    free(text);
}

static void test_order_of_calls(void **state)
{
    (void)state;
    mha_tokenizer_trainer *t = trainer_create(NULL, &trainer_bpe);
    mha_error err = {0};
    assert_int_equal(mha_tokenizer_trainer_save(t, "nowhere", 0, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "call mha_tokenizer_trainer_run first"));
    trainer_put(t, trainer_small, trainer_small_bytes);
    mha_tokenizer_free(trainer_learn(t));
    assert_int_equal(mha_tokenizer_trainer_put(t, "a", 1, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "accepts no more text"));
    assert_int_equal(mha_tokenizer_trainer_run(t, NULL, &err), MHA_ERR_ARG);
    assert_int_equal(mha_tokenizer_trainer_save(t, NULL, 0, &err), MHA_ERR_ARG);
    mha_tokenizer_trainer_free(t);
}

static int stop(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user;
    assert_string_equal(what, "merge");
    assert_true(done <= total);
    return 1;
}

static void test_canceled(void **state)
{
    (void)state;
    mha_ctx_options options = {.size = sizeof options, .progress = stop};
    mha_tokenizer_train_options o = trainer_bpe;
    mha_ctx *ctx;
    mha_error err = {0};
    char *text = trainer_text(5000, 30);
    o.vocab_size = 1000;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_tokenizer_trainer *t = trainer_create(ctx, &o);
    trainer_put(t, text, strlen(text));
    assert_int_equal(mha_tokenizer_trainer_run(t, NULL, &err), MHA_ERR_CANCELED);
    mha_tokenizer_trainer_free(t);
    mha_ctx_free(ctx);
    free(text);
}

/* ---- the saved folder ---- */

static void check_folder(const mha_tokenizer_train_options *o, int files)
{
    const char *parent = files_folder();
    char folder[512];
    mha_error err = {0};
    mha_tokenizer *opened;
    mha_tokenizer_trainer *t = trainer_create(NULL, o);
    snprintf(folder, sizeof folder, "%s/out", parent);
    trainer_put(t, trainer_small, trainer_small_bytes);
    mha_tokenizer *tokenizer = trainer_learn(t);
    assert_int_equal(mha_tokenizer_trainer_save(t, folder, 0, &err), MHA_OK);
    assert_int_equal(files_count(folder), files);
    assert_int_equal(mha_tokenizer_trainer_save(t, folder, 0, &err), MHA_ERR_IO);
    assert_int_equal(mha_tokenizer_trainer_save(t, folder, 1, &err), MHA_OK);
    assert_int_equal(mha_tokenizer_open(NULL, folder, &opened, &err), MHA_OK);
    trainer_same(tokenizer, opened);
    files_write(files_path(folder, "mine.txt"), "x", 1);
    /* saving must fail, because the folder now contains a file that is not part of a tokenizer */
    assert_int_equal(mha_tokenizer_trainer_save(t, folder, 1, &err), MHA_ERR_IO);
    assert_int_equal(files_count(parent), 1);
    mha_tokenizer_free(opened);
    mha_tokenizer_free(tokenizer);
    mha_tokenizer_trainer_free(t);
    files_remove(folder);
    files_remove(parent);
}

static void test_folder(void **state)
{
    (void)state;
    check_folder(&trainer_bpe, 5);
    check_folder(&trainer_wordpiece, 4);
}

/* ---- failed allocations ---- */

static mha_status whole_way(mha_ctx *ctx, const mha_tokenizer_train_options *o, const char *folder, mha_error *err)
{
    mha_tokenizer_trainer *t;
    mha_tokenizer *tokenizer = NULL;
    mha_status status = mha_tokenizer_trainer_create(ctx, o, &t, err);
    if (status == MHA_OK) status = mha_tokenizer_trainer_put(t, trainer_small, trainer_small_bytes, err);
    if (status == MHA_OK) status = mha_tokenizer_trainer_run(t, &tokenizer, err);
    if (status == MHA_OK) status = mha_tokenizer_trainer_save(t, folder, 1, err);
    mha_tokenizer_free(tokenizer);
    mha_tokenizer_trainer_free(t);
    return status;
}

static void check_starvation(const mha_tokenizer_train_options *o)
{
    counting c = {.budget = -1};
    mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&c)};
    const char *parent = files_folder();
    char folder[512];
    mha_ctx *ctx;
    long budget = 0;
    mha_status status = MHA_ERR_MEMORY;
    snprintf(folder, sizeof folder, "%s/out", parent);
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    const long before = c.live;
    for (; status == MHA_ERR_MEMORY; budget++) {
        mha_error err = {0};
        c.calls = 0;
        c.budget = budget;
        status = whole_way(ctx, o, folder, &err);
        if (status == MHA_ERR_MEMORY) assert_non_null(strstr(err.message, "memory"));
        if (status == MHA_ERR_MEMORY) assert_int_equal(files_count(parent), 0);
        assert_int_equal(c.live, before);
    }
    assert_int_equal(status, MHA_OK);
    assert_true(budget > 40);
    files_remove(folder);
    files_remove(parent);
    c.budget = -1;
    mha_ctx_free(ctx);
    assert_int_equal(c.live, 0);
}

static void test_starvation(void **state)
{
    (void)state;
    mha_tokenizer_train_options limited = trainer_wordpiece;
    limited.alphabet = 15;
    check_starvation(&trainer_bpe);
    check_starvation(&limited);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),  cmocka_unit_test(test_texts),  cmocka_unit_test(test_order_of_calls),
        cmocka_unit_test(test_canceled), cmocka_unit_test(test_folder), cmocka_unit_test(test_starvation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
