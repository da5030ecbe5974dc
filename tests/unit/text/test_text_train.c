/* test_text_train.c - tests tokenizer training: the same tokenizer for any division of the text and any number of
 * threads, error messages, the saved folder, and failed allocations. */
#include "mha/text_train.h"
#include "support/alloc.h"
#include "support/files.h"
#include "text/train/tokenizer_train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char small[] = "the head that looks at the token before it, the head that looks at the first\n\n"
                            "na\xC3\xAFve \xE6\x97\xA5\xE6\x9C\xAC and \xF0\x9F\x98\x80 \xF0\x9F\x98\x80\n"
                            "the heads, the tokens; the last line has no end";

static const mha_tokenizer_train_options bpe = {
    .size = sizeof bpe, .type = MHA_TOKENIZER_BPE, .vocab_size = 300, .min_frequency = 1};
static const mha_tokenizer_train_options wordpiece = {
    .size = sizeof wordpiece, .type = MHA_TOKENIZER_WORDPIECE, .vocab_size = 90, .min_frequency = 1};

static mha_tokenizer_trainer *create(mha_ctx *ctx, const mha_tokenizer_train_options *o)
{
    mha_tokenizer_trainer *t;
    mha_error err = {0};
    if (mha_tokenizer_trainer_create(ctx, o, &t, &err) != MHA_OK) fail_msg("%s", err.message);
    return t;
}

static void put(mha_tokenizer_trainer *t, const char *text, size_t n)
{
    mha_error err = {0};
    if (mha_tokenizer_trainer_put(t, text, n, &err) != MHA_OK) fail_msg("%s", err.message);
}

static mha_tokenizer *learn(mha_tokenizer_trainer *t)
{
    mha_tokenizer *tokenizer;
    mha_error err = {0};
    if (mha_tokenizer_trainer_run(t, &tokenizer, &err) != MHA_OK) fail_msg("%s", err.message);
    return tokenizer;
}

static void check_same(const mha_tokenizer *a, const mha_tokenizer *b)
{
    assert_int_equal(mha_tokenizer_size(a), mha_tokenizer_size(b));
    for (int32_t i = 0; i < mha_tokenizer_size(a); i++)
        assert_string_equal(mha_tokenizer_token(a, i), mha_tokenizer_token(b, i));
}

/* ---- division of the text, and number of threads ---- */

static void check_cuts(const mha_tokenizer_train_options *o)
{
    mha_tokenizer_trainer *whole = create(NULL, o);
    put(whole, small, sizeof small - 1);
    mha_tokenizer *want = learn(whole);
    for (size_t step = 1; step < 12; step++) {
        mha_tokenizer_trainer *t = create(NULL, o);
        for (size_t at = 0; at < sizeof small - 1; at += step)
            put(t, small + at, at + step < sizeof small ? step : sizeof small - 1 - at);
        mha_tokenizer *got = learn(t);
        check_same(want, got);
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
    check_cuts(&bpe);
    check_cuts(&wordpiece);
}

/* Returns a text of about `bytes` bytes with many kinds of whitespace and words of several scripts. On average, one in
 * `line` pieces is followed by a newline; with line = 0, none is. */
static char *make_text(size_t bytes, unsigned line)
{
    static const char *const pieces[] = {"word",
                                         "wor",
                                         "ds",
                                         "na\xC3\xAFve",
                                         "\xE6\x97\xA5\xE6\x9C\xAC",
                                         "don't",
                                         "12",
                                         "...",
                                         "e\xCC\x81",
                                         "\xC2\xA0",
                                         "\xE3\x80\x80",
                                         "\t",
                                         "\xE2\x80\xA8",
                                         "_-_",
                                         "\xCE\xA3\xCE\xA3",
                                         "x"};
    char *text = malloc(bytes + 16);
    uint64_t random = 1;
    size_t n = 0;
    assert_non_null(text);
    while (n < bytes) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const char *piece = pieces[random >> 60];
        memcpy(text + n, piece, strlen(piece));
        n += strlen(piece);
        const unsigned kind = random >> 40 & 7;
        if (line && (random >> 20 & 0xFFFF) % line == 0)
            text[n++] = '\n';
        else if (kind < 4)
            text[n++] = ' ';
        else if (kind == 4)
            text[n++] = '\r';
    }
    text[n] = '\0';
    return text;
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
    mha_tokenizer_trainer *t = create(NULL, o);
    char *text = make_text(700000, 0);
    mha__strings words = {0};
    mha_error err = {0};
    put(t, text, strlen(text));
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
    check_long_line(&bpe);
    check_long_line(&wordpiece);
}

static void check_threads(const mha_tokenizer_train_options *o)
{
    char *text = make_text(6000000, 30);
    mha_tokenizer *first = NULL;
    for (int threads = 1; threads <= 4; threads += 3) {
        mha_ctx_options options = {.size = sizeof options, .threads = threads};
        mha_ctx *ctx;
        assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
        mha_tokenizer_trainer *t = create(ctx, o);
        put(t, text, strlen(text));
        mha_tokenizer *tokenizer = learn(t);
        mha_tokenizer_trainer_free(t);
        if (first) check_same(first, tokenizer);
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
    check_threads(&bpe);
    check_threads(&wordpiece);
}

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
    mha_tokenizer_trainer *t = create(NULL, o);
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
    check_refused(&bpe, NULL, 0, MHA_ERR_ARG, "text must contain words to train on");
    check_refused(&wordpiece, " \n\t\n \0", 6, MHA_ERR_ARG, "text must contain words");
    check_refused(&bpe, "ab\ncd\nefg\xFFh", 11, MHA_ERR_ARG, "line 3: text must be UTF-8 (got 0xFF at byte 3)");
    check_refused(&bpe, "ab\xE6\x97", 4, MHA_ERR_ARG, "line 1: text must be UTF-8 (got 0xE6 at byte 2)");
    check_refused(&bpe, "\xED\xA0\x80", 3, MHA_ERR_ARG, "line 1: text must be UTF-8 (got 0xED at byte 0)");
    mha_tokenizer_train_options o = bpe;
    o.vocab_size = 256;
    check_refused(&o, small, sizeof small - 1, MHA_ERR_ARG,
                  "vocab_size must be at least the 1 special tokens and 256 bytes (got 256)");
    o = wordpiece;
    o.vocab_size = 20;
    check_refused(
        &o, small, sizeof small - 1, MHA_ERR_ARG,
        "vocab_size must be at least the 5 special tokens and 35 characters (alphabet limits these) (got 20)");
    char *text = malloc(LONG);
    assert_non_null(text);
    memset(text, 'a', LONG);
    check_refused(&bpe, text, LONG, MHA_ERR_UNSUPPORTED,
                  "line 1: text must have a space between words at least every 16 MiB");
    free(text);
}

static void test_order_of_calls(void **state)
{
    (void)state;
    mha_tokenizer_trainer *t = create(NULL, &bpe);
    mha_error err = {0};
    assert_int_equal(mha_tokenizer_trainer_save(t, "nowhere", 0, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "call mha_tokenizer_trainer_run first"));
    put(t, small, sizeof small - 1);
    mha_tokenizer_free(learn(t));
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

static void test_cancelled(void **state)
{
    (void)state;
    mha_ctx_options options = {.size = sizeof options, .progress = stop};
    mha_tokenizer_train_options o = bpe;
    mha_ctx *ctx;
    mha_error err = {0};
    char *text = make_text(5000, 30);
    o.vocab_size = 1000;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_tokenizer_trainer *t = create(ctx, &o);
    put(t, text, strlen(text));
    assert_int_equal(mha_tokenizer_trainer_run(t, NULL, &err), MHA_ERR_CANCELLED);
    mha_tokenizer_trainer_free(t);
    mha_ctx_free(ctx);
    free(text);
}

/* ---- trained vocabularies ---- */

/* NUL must be a byte like any other for BPE and be ignored by WordPiece. Special tokens must have the first ids, each
 * only once, and must never be split. */
static void test_specials(void **state)
{
    (void)state;
    static const char *const special[] = {"<tool>", "[MASK]", "<tool>"};
    static const int32_t want[] = {2, 0, 5, 3};
    mha_tokenizer_train_options o = wordpiece;
    mha_encoding *e;
    mha_error err = {0};
    o.special = special;
    o.special_count = 3;
    mha_tokenizer_trainer *t = create(NULL, &o);
    put(t, "tool\0 tool a\0b\n", 15);
    mha_tokenizer *tokenizer = learn(t);
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
    mha_tokenizer_train_options o = bpe;
    assert_non_null(text);
    for (size_t i = 0; i < LONG; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        text[i] = random >> 63 ? 'a' : 'b';
    }
    o.vocab_size = 3000;
    mha_tokenizer_trainer *t = create(NULL, &o);
    put(t, text, LONG);
    mha_tokenizer_free(learn(t));
    mha_tokenizer_trainer_trained(t, &trained);
    assert_int_equal(trained.words, 1);
    assert_int_equal(trained.tokens, 3000);
    assert_int_equal(trained.merges, trained.tokens - 257);
    mha_tokenizer_trainer_free(t);
    free(text);
}

/* ---- the saved folder ---- */

static void check_folder(const mha_tokenizer_train_options *o, int files)
{
    const char *parent = files_folder();
    char folder[512];
    mha_error err = {0};
    mha_tokenizer *opened;
    mha_tokenizer_trainer *t = create(NULL, o);
    snprintf(folder, sizeof folder, "%s/out", parent);
    put(t, small, sizeof small - 1);
    mha_tokenizer *tokenizer = learn(t);
    assert_int_equal(mha_tokenizer_trainer_save(t, folder, 0, &err), MHA_OK);
    assert_int_equal(files_count(folder), files);
    assert_int_equal(mha_tokenizer_trainer_save(t, folder, 0, &err), MHA_ERR_IO);
    assert_int_equal(mha_tokenizer_trainer_save(t, folder, 1, &err), MHA_OK);
    assert_int_equal(mha_tokenizer_open(NULL, folder, &opened, &err), MHA_OK);
    check_same(tokenizer, opened);
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
    check_folder(&bpe, 5);
    check_folder(&wordpiece, 4);
}

/* ---- failed allocations ---- */

static mha_status whole_way(mha_ctx *ctx, const mha_tokenizer_train_options *o, const char *folder, mha_error *err)
{
    mha_tokenizer_trainer *t;
    mha_tokenizer *tokenizer = NULL;
    mha_status status = mha_tokenizer_trainer_create(ctx, o, &t, err);
    if (status == MHA_OK) status = mha_tokenizer_trainer_put(t, small, sizeof small - 1, err);
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
    mha_tokenizer_train_options limited = wordpiece;
    limited.alphabet = 15;
    check_starvation(&bpe);
    check_starvation(&limited);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),      cmocka_unit_test(test_long_line),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_options),   cmocka_unit_test(test_texts),      cmocka_unit_test(test_order_of_calls),
        cmocka_unit_test(test_cancelled), cmocka_unit_test(test_specials),   cmocka_unit_test(test_very_long_word),
        cmocka_unit_test(test_folder),    cmocka_unit_test(test_starvation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
