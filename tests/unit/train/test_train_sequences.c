/* test_train_sequences.c - tests training sequences from texts and token files: lengths, overlaps, ends of texts, and
 * errors. */
#include "mha/train_data.h"
#include "support/check.h"
#include "support/files.h"
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 60, LENGTH = 5, MAX = 64 };

static mha_train_data_options decoder(int64_t length)
{
    return (mha_train_data_options){
        .size = sizeof(mha_train_data_options), .length = length, .vocab = VOCAB, .causal = 1, .end = 1};
}

static mha_train_data *create(const mha_train_data_options *o)
{
    mha_train_data *data;
    mha_error err = {0};
    if (mha_train_data_create(NULL, o, &data, &err) != MHA_OK) fail_msg("%s", err.message);
    return data;
}

static void finish(mha_train_data *data)
{
    mha_error err = {0};
    assert_null(mha_train_data_describe(data));
    if (mha_train_data_finish(data, &err) != MHA_OK) fail_msg("%s", err.message);
}

/* Writes a .bin file of `count` ids: from, from + 1, ... */
static void write_bin(const char *path, int from, int64_t count)
{
    uint16_t ids[MAX];
    for (int n = 0; n < count; n++)
        ids[n] = (uint16_t)(from + n);
    files_write(path, ids, (size_t)count * sizeof *ids);
}

static void add_file(mha_train_data *data, const char *path)
{
    mha_error err = {0};
    if (mha_train_data_add_file(data, path, &err) != MHA_OK) fail_msg("%s", err.message);
}

static void expect_sequence(const mha_train_data *data, int64_t n, const int32_t *ids, int64_t count)
{
    int32_t found[MAX];
    assert_int_equal(mha_train_data_sequence(data, n, found), count);
    assert_memory_equal(found, ids, (size_t)count * sizeof *ids);
}

#define EXPECT_SEQUENCE(data, n, ...) \
    expect_sequence(data, n, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* ---- token files ---- */

static void test_sequences_of_a_decoder(void **state)
{
    const char *path = files_path(*state, "ids.bin");
    const mha_train_data_options o = decoder(LENGTH);
    mha_train_data *data = create(&o);
    write_bin(path, 10, 10); /* sequences of tokens 10 to 14 and 14 to 18; token 19 is not used */
    add_file(data, path);
    write_bin(files_path(*state, "more.bin"), 30, 5);
    add_file(data, files_path(*state, "more.bin"));
    finish(data);
    const mha_train_data_info *info = mha_train_data_describe(data);
    assert_int_equal(info->sequences, 3);
    assert_int_equal(info->tokens, 15);
    assert_int_equal(info->length, LENGTH);
    EXPECT_SEQUENCE(data, 0, 10, 11, 12, 13, 14);
    EXPECT_SEQUENCE(data, 1, 14, 15, 16, 17, 18);
    EXPECT_SEQUENCE(data, 2, 30, 31, 32, 33, 34); /* a sequence must not continue in the next file */
    assert_int_equal(mha_train_data_sequence(data, 3, (int32_t[MAX]){0}), 0);
    assert_int_equal(mha_train_data_sequence(data, -1, (int32_t[MAX]){0}), 0);
    mha_train_data_free(data);
}

static void test_sequences_of_an_encoder(void **state)
{
    const char *path = files_path(*state, "ids.bin");
    mha_train_data_options o = decoder(LENGTH);
    o.causal = 0;
    o.first = 2;
    o.end = 3;
    mha_train_data *data = create(&o);
    write_bin(path, 10, 7);
    add_file(data, path);
    finish(data);
    assert_int_equal(mha_train_data_describe(data)->sequences, 2);
    EXPECT_SEQUENCE(data, 0, 2, 10, 11, 12, 3);
    EXPECT_SEQUENCE(data, 1, 2, 13, 14, 15, 3);
    mha_train_data_free(data);
}

/* The digest must be the same for mapped and copied files with the same ids. It must differ for other ids and for other
 * file boundaries. */
static void test_digest(void **state)
{
    static const int counts[][2] = {{6, 4}, {6, 4}, {4, 6}, {5, 4}};
    char digest[4][17];
    const char *a = files_path(*state, "a.bin"), *b = files_path(*state, "b.bin");
    for (int n = 0; n < 4; n++) {
        mha_train_data_options o = decoder(4);
        o.no_map = n == 1;
        mha_train_data *data = create(&o);
        write_bin(a, 10, counts[n][0]);
        write_bin(b, 10 + counts[n][0], counts[n][1]);
        add_file(data, a);
        add_file(data, b);
        finish(data);
        memcpy(digest[n], mha_train_data_describe(data)->digest, sizeof digest[n]);
        mha_train_data_free(data);
    }
    assert_string_equal(digest[0],
                        "1197e6ba4fd70daf"); /* recorded value, so that runs of earlier versions can resume */
    assert_string_equal(digest[0], digest[1]);
    assert_string_not_equal(digest[0], digest[2]);
    assert_string_not_equal(digest[0], digest[3]);
}

static void test_short_data(void **state)
{
    const char *path = files_path(*state, "short.bin");
    mha_train_data_options o = decoder(LENGTH);
    mha_error err = {0};
    mha_train_data *data = create(&o);
    write_bin(path, 10, 4);
    add_file(data, path);
    assert_int_equal(mha_train_data_finish(data, &err), MHA_ERR_FORMAT);
    assert_string_equal(err.message, "the data must have at least 5 tokens (got 4)");
    mha_train_data_free(data);
    o.shorten = 1;
    data = create(&o);
    add_file(data, path);
    finish(data);
    assert_int_equal(mha_train_data_describe(data)->length, 4);
    EXPECT_SEQUENCE(data, 0, 10, 11, 12, 13);
    mha_train_data_free(data);
}

static void expect_refusal(const char *path, mha_status status, const char *why)
{
    const mha_train_data_options o = decoder(LENGTH);
    mha_error err = {0};
    mha_train_data *data = create(&o);
    assert_int_equal(mha_train_data_add_file(data, path, &err), status);
    if (!strstr(err.message, why)) fail_msg("%s", err.message);
    mha_train_data_free(data);
}

static void test_files_refused(void **state)
{
    const char *path = files_path(*state, "ids.bin");
    write_bin(path, VOCAB - 2, 4);
    expect_refusal(path, MHA_ERR_FORMAT,
                   "ids.bin: ids[2] must be at least 0 and below the model's vocab_size 60 (got 60)");
    files_write(path, "abc", 3);
    expect_refusal(path, MHA_ERR_FORMAT, "ids must be 16-bit integers");
    files_write(path, "", 0);
    expect_refusal(path, MHA_ERR_FORMAT, "must contain at least one token (got an empty file)");
    expect_refusal("ids.txt", MHA_ERR_FORMAT, "the file name must end in .npy");
    expect_refusal("absent.bin", MHA_ERR_IO, "absent.bin");
}

/* ---- sequences from texts ---- */

static void add_text(mha_train_data *data, const char *text, int last)
{
    mha_error err = {0};
    if (mha_train_data_add_text(data, text, strlen(text), last, &err) != MHA_OK) fail_msg("%s", err.message);
}

/* A text that is passed in one part or in several parts must end with the end token once. */
static void test_texts_in_parts(void **state)
{
    (void)state;
    mha_tokenizer *tokenizer;
    assert_int_equal(mha_tokenizer_open(NULL, MHA_TEST_DATA "/tokenizer/gpt2-tiny", &tokenizer, NULL), MHA_OK);
    mha_train_data_options o = decoder(2);
    int32_t ids[MAX] = {0};
    o.vocab = mha_tokenizer_size(tokenizer);
    o.tokenizer = tokenizer;
    mha_train_data *whole = create(&o), *parts = create(&o);
    add_text(whole, "a b\nc d\n", 1);
    add_text(parts, "a b\n", 0);
    add_text(parts, "c d\n", 1);
    finish(whole);
    finish(parts);
    assert_string_equal(mha_train_data_describe(whole)->digest, mha_train_data_describe(parts)->digest);
    mha_train_data_sequence(whole, mha_train_data_describe(whole)->sequences - 1, ids);
    assert_int_equal(ids[1], o.end);
    mha_train_data_free(whole);
    mha_train_data_free(parts);
    mha_tokenizer_free(tokenizer);
}

static void test_texts_apart(void **state)
{
    (void)state;
    mha_tokenizer *tokenizer;
    assert_int_equal(mha_tokenizer_open(NULL, MHA_TEST_DATA "/tokenizer/bert-tiny", &tokenizer, NULL), MHA_OK);
    mha_train_data_options o = decoder(4);
    int32_t ids[MAX];
    o.causal = 0;
    o.texts_apart = 1;
    o.vocab = mha_tokenizer_size(tokenizer);
    o.tokenizer = tokenizer;
    o.first = 2;
    o.end = 3;
    mha_train_data *data = create(&o);
    add_text(data, "a", 1);
    add_text(data, "a a a a", 1);
    finish(data);
    const mha_train_data_info *info = mha_train_data_describe(data);
    assert_int_equal(info->texts, 2);
    assert_int_equal(info->sequences, 2);
    assert_int_equal(info->truncated, 1);
    assert_int_equal(mha_train_data_sequence(data, 0, ids), 3);
    assert_int_equal(mha_train_data_sequence(data, 1, ids), 4);
    assert_int_equal(ids[0], 2);
    assert_int_equal(ids[3], 3);
    mha_train_data_free(data);
    mha_tokenizer_free(tokenizer);
}

/* ---- invalid calls ---- */

static void expect_bad(mha_train_data_options o, const char *why)
{
    mha_error err = {0};
    mha_train_data *data = (mha_train_data *)&o;
    assert_int_equal(mha_train_data_create(NULL, &o, &data, &err), MHA_ERR_ARG);
    assert_null(data);
    if (!strstr(err.message, why)) fail_msg("%s", err.message);
}

static void test_options_refused(void **state)
{
    (void)state;
    mha_train_data_options o = decoder(1);
    expect_bad(o, "length must be from 2 to 2^40 (got 1)");
    o.length = 2;
    o.vocab = 0;
    expect_bad(o, "vocab must be from 1 to 2^31 (got 0)");
    o = decoder(2);
    o.texts_apart = 1;
    expect_bad(o, "texts_apart must be 0 if causal is set");
    o.causal = 0;
    expect_bad(o, "length must be at least 3 for an encoder (got 2)");
    o.length = 3;
    o.first = VOCAB;
    expect_bad(o, "first must be a token id below vocab (got 60)");
    o.first = 0;
    o.end = -1;
    expect_bad(o, "end must be a token id below vocab (got -1)");
}

static void test_calls_in_the_wrong_order(void **state)
{
    const char *path = files_path(*state, "ids.bin");
    const mha_train_data_options o = decoder(2);
    mha_train_data *data = create(&o);
    write_bin(path, 10, 4);
    add_file(data, path);
    /* the data has no tokenizer */
    assert_int_equal(mha_train_data_add_text(data, "a", 1, 1, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_train_data_sequence(data, 0, (int32_t[MAX]){0}), 0);
    finish(data);
    assert_int_equal(mha_train_data_add_file(data, path, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_train_data_finish(data, NULL), MHA_ERR_ARG);
    mha_train_data_free(data);
    mha_train_data_free(NULL);
}

static int make_folder(void **state)
{
    *state = (void *)files_folder();
    return 0;
}

static int remove_folder(void **state)
{
    files_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequences_of_a_decoder),
        cmocka_unit_test(test_sequences_of_an_encoder),
        cmocka_unit_test(test_digest),
        cmocka_unit_test(test_short_data),
        cmocka_unit_test(test_files_refused),
        cmocka_unit_test(test_texts_in_parts),
        cmocka_unit_test(test_texts_apart),
        cmocka_unit_test(test_options_refused),
        cmocka_unit_test(test_calls_in_the_wrong_order),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
