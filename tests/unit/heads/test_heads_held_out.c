/* test_heads_held_out.c - tests the division of texts into learning and held-out texts, and the masking of tokens. */
#include "mha/head_data.h"
#include "mha/held_out.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void every_fourth_text_is_held_out(void **state)
{
    (void)state;
    static const int64_t want[9] = {0, 1, 2, 4, 5, 6, 8, 3, 7};
    int64_t order[9], learned = 0;
    assert_int_equal(mha_held_out_split(9, 0, order, &learned, NULL), MHA_OK);
    assert_int_equal(learned, 7);
    assert_memory_equal(order, want, sizeof want);
}

/* Both texts of a pair must be in the same part, and n places apart, where n is the number of pairs in the part. */
static void pairs_stay_together(void **state)
{
    (void)state;
    enum { PAIRS = 11, COUNT = 2 * PAIRS };
    int64_t order[COUNT], learned = 0;
    assert_int_equal(mha_held_out_split(COUNT, 1, order, &learned, NULL), MHA_OK);
    assert_int_equal(learned, 2 * 9);
    for (int64_t n = 0; n < learned / 2; n++)
        assert_true(order[n] % 4 != 3 && order[learned / 2 + n] == order[n] + PAIRS);
    for (int64_t n = learned, half = (COUNT - learned) / 2; n < learned + half; n++)
        assert_true(order[n] % 4 == 3 && order[half + n] == order[n] + PAIRS);
}

static void refused_split(int64_t count, int pairs, const char *sentence)
{
    int64_t order[16], learned;
    mha_error err = {0};
    assert_int_equal(mha_held_out_split(count, pairs, order, &learned, &err), MHA_ERR_ARG);
    if (!strstr(err.message, sentence)) fail_msg("message must contain %s (got \"%s\")", sentence, err.message);
}

static void too_few_texts(void **state)
{
    (void)state;
    refused_split(3, 0, "count must be at least 4 (got 3)");
    refused_split(-8, 0, "count must be at least 4 (got -8)");
    refused_split(6, 1, "count must be even and at least 8 with pairs (got 6)");
    refused_split(9, 1, "count must be even and at least 8 with pairs (got 9)");
    assert_int_equal(mha_held_out_split(4, 0, NULL, NULL, NULL), MHA_ERR_ARG);
}

static void learned_texts_are_not_held_out(void **state)
{
    (void)state;
    static const char *const learn[] = {"the cat", "a dog", "the cat", ""};
    static const char *const held[] = {"a dog", "A dog", "the cat", "a dog ", "", "the"};
    static const int64_t want[] = {1, 3, 5};
    int64_t kept[6], left = 0;
    assert_int_equal(mha_held_out_distinct(NULL, learn, 4, held, 6, kept, &left, NULL), MHA_OK);
    assert_int_equal(left, 3);
    assert_memory_equal(kept, want, sizeof want);
    assert_int_equal(mha_held_out_distinct(NULL, NULL, 0, held, 6, kept, &left, NULL), MHA_OK);
    assert_int_equal(left, 6);
    assert_int_equal(mha_held_out_distinct(NULL, learn, 4, NULL, 0, kept, &left, NULL), MHA_OK);
    assert_int_equal(left, 0);
}

static void texts_must_be_given(void **state)
{
    (void)state;
    const char *const texts[] = {"a", NULL};
    int64_t kept[2], left;
    mha_error err = {0};
    assert_int_equal(mha_held_out_distinct(NULL, texts, 1, texts, 2, kept, &left, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "held[1] must not be NULL"));
    assert_int_equal(mha_held_out_distinct(NULL, NULL, 2, texts, 1, kept, &left, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "learn_count must be the number of texts in learn (got 2)"));
    assert_int_equal(mha_held_out_distinct(NULL, texts, 1, texts, -1, kept, &left, &err), MHA_ERR_ARG);
    assert_int_equal(mha_held_out_distinct(NULL, texts, 1, texts, 1, NULL, &left, &err), MHA_ERR_ARG);
}

/* ---- masked tokens ---- */

enum { TEXTS = 200 };

static mha_head_data *many_texts(const mha_model *model, const mha_head_data_options *options)
{
    static const char *const text = "the rain and the tank, and then again they said the count";
    const char *texts[TEXTS];
    mha_head_data *data = NULL;
    for (int i = 0; i < TEXTS; i++)
        texts[i] = i % 2 ? text + 8 : text;
    assert_int_equal(mha_head_data_of_texts(model, texts, TEXTS, options, &data, NULL), MHA_OK);
    return data;
}

/* Checks one text: a token must be masked if and only if it has a label. Returns the number of labels. */
static int64_t check_text(const mha_tokenizer *tokenizer, const mha_head_data *data, const mha_head_data *masked,
                          int64_t text, const int32_t *labels)
{
    int64_t length, same, count = 0;
    const int32_t *ids = mha_head_data_ids(data, text, &length), *got = mha_head_data_ids(masked, text, &same);
    assert_int_equal(length, same);
    for (int64_t i = 0; i < length; i++) {
        const bool labeled = labels[i] != MHA_IGNORE;
        assert_int_equal(got[i], labeled ? mha_tokenizer_mask_id(tokenizer) : ids[i]);
        if (labeled) assert_true(labels[i] == ids[i] && !mha_tokenizer_is_special(tokenizer, ids[i]));
        count += labeled;
    }
    return count;
}

static void tokens_are_masked(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, "models/bert-tiny", NULL);
    const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
    mha_head_data *data = many_texts(model, NULL), *masked = NULL;
    const int64_t tokens = mha_head_data_tokens(data);
    int32_t *labels = calloc((size_t)tokens, sizeof *labels);
    int64_t count = 0, at = 0, length;
    assert_int_equal(mha_head_data_mask(model, data, 7, labels, &masked, NULL), MHA_OK);
    assert_int_equal(mha_head_data_tokens(masked), tokens);
    for (int64_t text = 0; text < TEXTS; text++, at += length) {
        count += check_text(tokenizer, data, masked, text, labels + at);
        mha_head_data_ids(data, text, &length);
    }
    const double share = (double)count / (double)(tokens - 2 * TEXTS); /* without [CLS] and [SEP] */
    assert_true(share > 0.12 && share < 0.18);
    mha_head_data_free(data); /* the copy must not depend on it */
    mha_head_data *again = NULL;
    assert_int_equal(mha_head_data_mask(model, masked, 7, labels, &again, NULL), MHA_OK);
    mha_head_data_free(again);
    mha_head_data_free(masked);
    free(labels);
    mha_model_free(model);
}

/* A token that the caller declares special must not be masked. */
static void special_tokens_are_not_masked(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, "models/bert-tiny", NULL);
    mha_head_data *plain = many_texts(model, NULL), *masked = NULL;
    const int64_t tokens = mha_head_data_tokens(plain);
    const int32_t special = mha_head_data_ids(plain, 0, NULL)[1];
    const mha_head_data_options options = {.size = sizeof options, .special = &special, .special_count = 1};
    mha_head_data *data = many_texts(model, &options);
    int32_t *labels = calloc((size_t)tokens, sizeof *labels);
    int64_t before = 0, after = 0;
    assert_int_equal(mha_head_data_mask(model, plain, 7, labels, &masked, NULL), MHA_OK);
    for (int64_t i = 0; i < tokens; i++)
        before += labels[i] == special;
    mha_head_data_free(masked);
    assert_int_equal(mha_head_data_mask(model, data, 7, labels, &masked, NULL), MHA_OK);
    for (int64_t i = 0; i < tokens; i++)
        after += labels[i] == special;
    assert_true(before > 0);
    assert_int_equal(after, 0);
    mha_head_data_free(masked);
    mha_head_data_free(data);
    mha_head_data_free(plain);
    free(labels);
    mha_model_free(model);
}

static void a_model_without_a_mask_token(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, "models/gpt2-tiny", NULL);
    mha_head_data *data = many_texts(model, NULL), *masked = data;
    int32_t *labels = calloc((size_t)mha_head_data_tokens(data), sizeof *labels);
    mha_error err = {0};
    assert_int_equal(mha_head_data_mask(model, data, 7, labels, &masked, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "must have a mask token"));
    assert_null(masked);
    assert_int_equal(mha_head_data_mask(model, NULL, 7, labels, &masked, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_head_data_mask: data must not be NULL");
    mha_head_data_free(data);
    free(labels);
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fourth_text_is_held_out),
        cmocka_unit_test(pairs_stay_together),
        cmocka_unit_test(too_few_texts),
        cmocka_unit_test(learned_texts_are_not_held_out),
        cmocka_unit_test(texts_must_be_given),
        cmocka_unit_test(tokens_are_masked),
        cmocka_unit_test(special_tokens_are_not_masked),
        cmocka_unit_test(a_model_without_a_mask_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
