/* test_text_train.c - tests tokenizer training: the same tokenizer for any division of the text and any number of
 * threads, special tokens, and very long words. */
#include "support/check.h"
#include "support/text/tokenizer_trainer.h"
#include "text/train/tokenizer_train.h"
#include <stdlib.h>
#include <string.h>

/* ---- division of the text, and number of threads ---- */

static void check_cuts(const mha_tokenizer_train_options *o)
{
    mha_tokenizer_trainer *whole = trainer_create(NULL, o);
    trainer_put(whole, trainer_small, trainer_small_bytes);
    mha_tokenizer *want = trainer_learn(whole);
    for (size_t step = 1; step < 12; step++) {
        mha_tokenizer_trainer *t = trainer_create(NULL, o);
        for (size_t at = 0; at < trainer_small_bytes; at += step)
            trainer_put(t, trainer_small + at, at + step <= trainer_small_bytes ? step : trainer_small_bytes - at);
        mha_tokenizer *got = trainer_learn(t);
        trainer_same(want, got);
        assert_memory_equal(&whole->trained, &t->trained, sizeof t->trained);
        mha_tokenizer_free(got);
        mha_tokenizer_trainer_free(t);
    }
    mha_tokenizer_free(want);
    mha_tokenizer_trainer_free(whole);
}

static void test_cuts(void **state)
{
    (void)state;
    check_cuts(&trainer_bpe);
    check_cuts(&trainer_wordpiece);
}

/* Counts the words of a line that is normalized and split as a whole. */
static void count_whole(const mha_tokenizer *start, const char *text, size_t n, mha__strings *words)
{
    mha_error err = {0};
    mha__pass pass = {.err = &err, .text = text, .text_bytes = n};
    mha__slice line = {.bytes = text, .n = n};
    mha__slice slice;
    assert_int_equal(mha__normalize(start, &pass, &line, &slice), MHA_OK);
    assert_int_equal(mha__edits_run(&start->splitter, &pass, pass.rewritten, &slice), MHA_OK);
    for (size_t i = 0; i < pass.word_count; i++)
        assert_int_equal(mha__strings_add(words, slice.bytes + pass.words[i].begin,
                                          pass.words[i].end - pass.words[i].begin, 1, NULL, &err),
                         MHA_OK);
    mha__pass_free(&pass);
}

/* A long line, which is read in pieces, must give the same words as the line read as a whole. */
static void check_long_line(const mha_tokenizer_train_options *o)
{
    mha_tokenizer_trainer *t = trainer_create(NULL, o);
    char *text = trainer_text(700000, 0);
    mha__strings words = {0};
    mha_error err = {0};
    trainer_put(t, text, strlen(text));
    assert_int_equal(mha_tokenizer_trainer_end(t, &err), MHA_OK);
    assert_int_equal(mha__train_join(t, &err), MHA_OK);
    count_whole(t->start, text, strlen(text), &words);
    assert_int_equal(words.count, t->counters[0].words.count);
    for (size_t i = 0; i < words.count; i++) {
        uint32_t number;
        assert_int_equal(mha__strings_add(&t->counters[0].words, mha__strings_at(&words, i), words.items[i].length, 0,
                                          &number, &err),
                         MHA_OK);
        assert_int_equal(t->counters[0].words.items[number].sum, words.items[i].sum);
    }
    assert_int_equal(words.count, t->counters[0].words.count);
    mha__strings_free(&words);
    mha_tokenizer_trainer_free(t);
    free(text);
}

static void test_long_line(void **state)
{
    (void)state;
    check_long_line(&trainer_bpe);
    check_long_line(&trainer_wordpiece);
}

static void check_threads(const mha_tokenizer_train_options *o)
{
    char *text = trainer_text(6000000, 30);
    mha_tokenizer *first = NULL;
    for (int threads = 1; threads <= 4; threads += 3) {
        mha_ctx_options options = {.size = sizeof options, .threads = threads};
        mha_ctx *ctx;
        assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
        mha_tokenizer_trainer *t = trainer_create(ctx, o);
        trainer_put(t, text, strlen(text));
        mha_tokenizer *tokenizer = trainer_learn(t);
        mha_tokenizer_trainer_free(t);
        if (first) trainer_same(first, tokenizer);
        if (threads > 1) {
            mha_tokenizer_free(tokenizer);
            mha_ctx_free(ctx);
            continue;
        }
        mha_tokenizer_free(first);
        first = tokenizer; /* the context is freed below, after the tokenizer that uses it */
    }
    mha_ctx *ctx = first->ctx;
    mha_tokenizer_free(first);
    mha_ctx_free(ctx);
    free(text);
}

static void test_threads(void **state)
{
    (void)state;
    check_threads(&trainer_bpe);
    check_threads(&trainer_wordpiece);
}

/* ---- trained vocabularies ---- */

/* NUL must be a byte like any other for BPE and be ignored by WordPiece. Special tokens must have the first ids, each
 * only once, and must never be split. */
static void test_specials(void **state)
{
    (void)state;
    static const char *const special[] = {"<tool>", "[MASK]", "<tool>"};
    static const int32_t want[] = {2, 0, 5, 3};
    mha_tokenizer_train_options o = trainer_wordpiece;
    mha_encoding *e;
    mha_error err = {0};
    o.special = special;
    o.special_count = 3;
    mha_tokenizer_trainer *t = trainer_create(NULL, &o);
    trainer_put(t, "tool\0 tool a\0b\n", 15);
    mha_tokenizer *tokenizer = trainer_learn(t);
    assert_string_equal(mha_tokenizer_token(tokenizer, 5), "<tool>");
    assert_true(mha_tokenizer_is_special(tokenizer, 5));
    assert_int_equal(mha_tokenizer_id(tokenizer, "[MASK]"), 4);
    assert_true(mha_tokenizer_id(tokenizer, "tool") > 0);
    assert_true(mha_tokenizer_id(tokenizer, "ab") > 0);
    assert_int_equal(mha_tokenizer_encode(tokenizer, "[PAD]<tool>", 11, NULL, 0, NULL, &e, &err), MHA_OK);
    assert_int_equal(e->count, 4);
    assert_memory_equal(e->ids, want, sizeof want);
    mha_encoding_free(e);
    mha_tokenizer_free(tokenizer);
    mha_tokenizer_trainer_free(t);
}

/* Training on a single word of a million characters must be possible within the time limit of the test. No two merges
 * may give the same token, as merge_pairs.c requires. */
static void test_very_long_word(void **state)
{
    (void)state;
    enum { LONG = 1000000 };
    char *text = malloc(LONG);
    uint64_t random = 7;
    mha_tokenizer_trained trained;
    mha_tokenizer_train_options o = trainer_bpe;
    assert_non_null(text);
    for (size_t i = 0; i < LONG; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        text[i] = random >> 63 ? 'a' : 'b';
    }
    o.vocab_size = 3000;
    mha_tokenizer_trainer *t = trainer_create(NULL, &o);
    trainer_put(t, text, LONG);
    mha_tokenizer_free(trainer_learn(t));
    mha_tokenizer_trainer_trained(t, &trained);
    assert_int_equal(trained.words, 1);
    assert_int_equal(trained.tokens, 3000);
    assert_int_equal(trained.merges, trained.tokens - 257);
    mha_tokenizer_trainer_free(t);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),     cmocka_unit_test(test_long_line),      cmocka_unit_test(test_threads),
        cmocka_unit_test(test_specials), cmocka_unit_test(test_very_long_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
