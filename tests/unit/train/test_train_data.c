/* test_train_data.c - compares the order of sequences, masked tokens and the digest of training data with recorded
 * values. They must not change, since runs of earlier versions must resume with the same data. */
#include "mha/train.h"
#include "mha/train_data.h"
#include "support/check.h"
#include <math.h>
#include <string.h>

enum { LENGTH = 24, VOCAB = 60 };

/* ---- order of the sequences ---- */

static void test_each_sequence_once(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 4, 5, 64, 65, 1000};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        uint8_t seen[1000] = {0};
        for (int64_t n = 0; n < counts[c]; n++) {
            const int64_t sequence = mha_train_sequence_order(7, -1, n, counts[c]);
            assert_in_range(sequence, 0, counts[c] - 1);
            assert_int_equal(seen[sequence]++, 0);
        }
    }
}

static void test_order_is_recorded(void **state)
{
    (void)state;
    static const int64_t recorded[] = {595, 97, 89, 332, 606, 115, 731, 752};
    for (int64_t n = 0; n < (int64_t)(sizeof recorded / sizeof *recorded); n++)
        assert_int_equal(mha_train_sequence_order(7, 3, n, 1000), recorded[n]);
}

static void test_order_arguments(void **state)
{
    (void)state;
    assert_int_equal(mha_train_sequence_order(7, 0, -1, 5), -1);
    assert_int_equal(mha_train_sequence_order(7, 0, 5, 5), -1);
    assert_int_equal(mha_train_sequence_order(7, 0, 0, 0), -1);
    assert_int_equal(mha_train_sequence_order(7, 0, 0, (INT64_C(1) << 60) + 1), -1);
    assert_in_range(mha_train_sequence_order(7, 0, 0, INT64_C(1) << 60), 0, (INT64_C(1) << 60) - 1);
}

/* ---- masked tokens ---- */

static mha_tokenizer *open_tokenizer(void)
{
    mha_tokenizer *tokenizer;
    mha_error err;
    if (mha_tokenizer_open(NULL, MHA_TEST_DATA "/tokenizer/bert-tiny", &tokenizer, &err) != MHA_OK)
        fail_msg("%s", err.message);
    return tokenizer;
}

static mha_train_mask_options options_of(const mha_tokenizer *tokenizer)
{
    return (mha_train_mask_options){.size = sizeof(mha_train_mask_options),
                                    .length = LENGTH,
                                    .vocab = VOCAB,
                                    .fraction = 0.5,
                                    .mask = mha_tokenizer_id(tokenizer, "[MASK]"),
                                    .seed = 7};
}

/* Sets ids to [CLS], 21, 22, ... 42, [SEP]. */
static void put_ids(const mha_tokenizer *tokenizer, int32_t ids[LENGTH])
{
    for (int32_t n = 0; n < LENGTH; n++)
        ids[n] = 20 + n;
    ids[0] = mha_tokenizer_id(tokenizer, "[CLS]");
    ids[LENGTH - 1] = mha_tokenizer_id(tokenizer, "[SEP]");
}

static void test_masks_are_recorded(void **state)
{
    (void)state;
    static const int32_t recorded[LENGTH] = {2, 4,  4,  4,  4,  25, 26, 27, 28, 29, 30, 4,
                                             4, 33, 34, 35, 36, 45, 38, 4,  40, 4,  42, 3};
    static const int32_t selected[LENGTH] = {-100, 21,   22,   23,   24,   -100, 26,   -100, -100, -100, -100, 31,
                                             32,   -100, -100, -100, -100, 37,   -100, 39,   -100, 41,   42,   -100};
    mha_tokenizer *tokenizer = open_tokenizer();
    const mha_train_mask_options o = options_of(tokenizer);
    int32_t ids[LENGTH], labels[LENGTH];
    mha_error err;
    put_ids(tokenizer, ids);
    assert_int_equal(mha_train_mask_tokens(tokenizer, &o, 11, ids, labels, &err), MHA_OK);
    assert_memory_equal(ids, recorded, sizeof ids);
    assert_memory_equal(labels, selected, sizeof labels);
    mha_tokenizer_free(tokenizer);
}

static void expect_refusal(const mha_tokenizer *tokenizer, const mha_train_mask_options *o, const char *name)
{
    int32_t ids[LENGTH], before[LENGTH], labels[LENGTH] = {0};
    mha_error err = {0};
    put_ids(tokenizer, ids);
    memcpy(before, ids, sizeof ids);
    assert_int_equal(mha_train_mask_tokens(tokenizer, o, 0, ids, labels, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, name));
    assert_memory_equal(ids, before, sizeof ids);
    for (int n = 0; n < LENGTH; n++)
        assert_int_equal(labels[n], 0);
}

static void test_mask_options_out_of_range(void **state)
{
    (void)state;
    mha_tokenizer *tokenizer = open_tokenizer();
    static const double fractions[] = {0, -0.5, 1.5, NAN};
    mha_train_mask_options o = options_of(tokenizer);
    for (size_t n = 0; n < sizeof fractions / sizeof *fractions; n++) {
        o.fraction = fractions[n];
        expect_refusal(tokenizer, &o, "fraction must be");
    }
    o = options_of(tokenizer);
    o.length = 0;
    expect_refusal(tokenizer, &o, "length must be");
    o = options_of(tokenizer);
    o.mask = VOCAB;
    expect_refusal(tokenizer, &o, "mask must be");
    o.vocab = 0;
    expect_refusal(tokenizer, &o, "vocab must be");
    expect_refusal(tokenizer, NULL, "mha_train_mask_options");
    mha_tokenizer_free(tokenizer);
}

static void test_mask_without_arguments(void **state)
{
    (void)state;
    mha_tokenizer *tokenizer = open_tokenizer();
    const mha_train_mask_options o = options_of(tokenizer);
    int32_t ids[LENGTH] = {0};
    mha_error err;
    assert_int_equal(mha_train_mask_tokens(NULL, &o, 0, ids, ids, &err), MHA_ERR_ARG);
    assert_int_equal(mha_train_mask_tokens(tokenizer, &o, 0, NULL, ids, &err), MHA_ERR_ARG);
    assert_int_equal(mha_train_mask_tokens(tokenizer, &o, 0, ids, NULL, &err), MHA_ERR_ARG);
    mha_tokenizer_free(tokenizer);
}

/* ---- digest of the data ---- */

static void test_digest(void **state)
{
    (void)state;
    static const char text[] = "multi-head attention";
    mha_train_digest digest = {0}, parts = {0};
    char got[17], again[17];
    mha_train_digest_add(&digest, text, 19);
    mha_train_digest_add_number(&digest, 19);
    mha_train_digest_text(&digest, got);
    assert_string_equal(got, "11b9088245bb8dc0");
    mha_train_digest_add(&parts, text, 16); /* data may be divided at a multiple of 16 bytes */
    mha_train_digest_add(&parts, text + 16, 3);
    mha_train_digest_add_number(&parts, 19);
    mha_train_digest_text(&parts, again);
    assert_string_equal(again, got);
}

static void test_digest_of_nothing(void **state)
{
    (void)state;
    mha_train_digest digest = {0};
    char text[17] = "unchanged";
    mha_train_digest_add(NULL, "a", 1);
    mha_train_digest_add(&digest, NULL, 1);
    mha_train_digest_add_number(NULL, 1);
    mha_train_digest_text(&digest, NULL);
    for (size_t n = 0; n < sizeof digest.lane / sizeof *digest.lane; n++)
        assert_true(digest.lane[n] == 0);
    mha_train_digest_text(NULL, text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_sequence_once),
        cmocka_unit_test(test_order_is_recorded),
        cmocka_unit_test(test_order_arguments),
        cmocka_unit_test(test_masks_are_recorded),
        cmocka_unit_test(test_mask_options_out_of_range),
        cmocka_unit_test(test_mask_without_arguments),
        cmocka_unit_test(test_digest),
        cmocka_unit_test(test_digest_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
