/* test_heads_data.c - tests tokenized texts: evaluation order, truncation, token kinds, invalid input and failed
 * allocations. */
#include "heads/data/head_data.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const texts[] = {"wait.", "you keep the count, and then again they said", "the tank", "the rain",
                                    "and then again, they said"};
enum { TEXTS = 5 };

static mha_head_data *of_texts(const mha_model *model, mha_head_data_options options)
{
    mha_head_data *data;
    mha_error err = {0};
    options.size = sizeof options;
    if (mha_head_data_of_texts(model, texts, TEXTS, &options, &data, &err) != MHA_OK) fail_msg("%s", err.message);
    return data;
}

static int64_t length_of(const mha_head_data *data, int64_t text)
{
    int64_t length = -1;
    mha_head_data_ids(data, text, &length);
    return length;
}

/* Given the original number of a text, mha_head_data_ids must return the tokens that the tokenizer returns for the
 * text. */
static void texts_keep_their_numbers(void **state)
{
    mha_model *model = case_model(NULL, "models/bert-tiny", NULL);
    mha_head_data *data = of_texts(model, (mha_head_data_options){0});
    int64_t all = 0;
    for (int64_t i = 0; i < TEXTS; i++) {
        mha_encoding *e;
        const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
        assert_int_equal(mha_tokenizer_encode(tokenizer, texts[i], strlen(texts[i]), NULL, 0, NULL, &e, NULL), MHA_OK);
        assert_int_equal(length_of(data, i), e->count);
        assert_memory_equal(mha_head_data_ids(data, i, NULL), e->ids, (size_t)e->count * sizeof *e->ids);
        all += e->count;
        mha_encoding_free(e);
    }
    assert_int_equal(mha_head_data_count(data), TEXTS);
    assert_int_equal(mha_head_data_tokens(data), all);
    assert_null(mha_head_data_ids(data, TEXTS, NULL));
    assert_int_equal(length_of(data, -1), 0);
    mha_head_data_free(data);
    mha_head_data_free(NULL);
    mha_model_free(model);
    (void)state;
}

/* Fails unless every text is in exactly one batch: the longest texts first, texts of equal length in their original
 * order. A batch may exceed the limit of tokens only if it is a single text. */
static void check_batches(const mha_head_data *data, int64_t limit)
{
    int64_t seen = 0, last_length = INT64_MAX, last_text = -1, max = 0, max_texts = 0;
    for (int64_t n = 0; n < mha__head_data_batches(data); n++) {
        mha_model_input in;
        const int64_t *numbers;
        assert_int_equal(mha__head_data_batch(data, n, &in, &numbers, NULL), MHA_OK);
        assert_int_equal(in.starts[0], 0);
        assert_true(in.starts[in.batch] <= limit || in.batch == 1);
        max = in.starts[in.batch] > max ? in.starts[in.batch] : max;
        max_texts = in.batch > max_texts ? in.batch : max_texts;
        for (int64_t b = 0; b < in.batch; b++, seen++) {
            const int64_t length = in.starts[b + 1] - in.starts[b];
            assert_int_equal(length, length_of(data, numbers[b]));
            assert_ptr_equal(in.ids + in.starts[b], mha_head_data_ids(data, numbers[b], NULL));
            assert_true(length < last_length || (length == last_length && numbers[b] > last_text));
            last_length = length;
            last_text = numbers[b];
        }
    }
    assert_int_equal(seen, mha_head_data_count(data));
    assert_int_equal(max, mha__head_data_batch_tokens(data));
    assert_int_equal(max_texts, mha__head_data_batch_texts(data));
}

static void batches(void **state)
{
    mha_model *model = case_model(NULL, "models/bert-tiny", NULL);
    mha_model_input in;
    const int64_t *numbers;
    mha_error err = {0};
    for (int64_t limit = 1; limit < 64; limit++) {
        mha_head_data *data = of_texts(model, (mha_head_data_options){.batch_tokens = limit});
        check_batches(data, limit);
        if (limit == 1) assert_int_equal(mha__head_data_batches(data), TEXTS);
        if (limit == 63) assert_int_equal(mha__head_data_batches(data), 1);
        assert_int_equal(mha__head_data_longest(data), length_of(data, 1));
        assert_int_equal(mha__head_data_batch(data, mha__head_data_batches(data), &in, &numbers, &err), MHA_ERR_ARG);
        mha_head_data_free(data);
    }
    mha_model_free(model);
    (void)state;
}

/* Tests the batches of many texts of different lengths, given as token ids. */
static void many_ids(void **state)
{
    enum { COUNT = 500, MAX = 40 };
    static int32_t ids[COUNT * MAX];
    static int64_t starts[COUNT + 1];
    mha_model *model = case_model(NULL, "models/bert-tiny", NULL);
    mha_error err = {0};
    for (int i = 0; i < COUNT; i++)
        starts[i + 1] = starts[i] + 1 + (i * 7919 + i * i * 31) % MAX;
    for (int64_t i = 0; i < starts[COUNT]; i++)
        ids[i] = (int32_t)(i * 13 % 64);
    mha_head_data *data;
    const mha_head_data_options options = {.size = sizeof options, .batch_tokens = 100};
    if (mha_head_data_of_ids(model, ids, starts, COUNT, &options, &data, &err) != MHA_OK) fail_msg("%s", err.message);
    check_batches(data, 100);
    for (int64_t i = 0; i < COUNT; i++)
        assert_memory_equal(mha_head_data_ids(data, i, NULL), ids + starts[i],
                            (size_t)length_of(data, i) * sizeof *ids);
    mha_head_data_free(data);
    mha_model_free(model);
    (void)state;
}

/* The tokens of "[CLS] wait . [SEP]" must be of kind special, none, punctuation, and special separator. Without a
 * tokenizer, only the ids listed in `special` must be special. */
static void kinds(void **state)
{
    mha_model *model = case_model(NULL, "models/bert-tiny", NULL);
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    mha_model *untold = case_model(NULL, "models/bert-tiny", &bare);
    mha_head_data *data = of_texts(model, (mha_head_data_options){0}), *none, *one;
    const int64_t n = length_of(data, 0), starts[2] = {0, n};
    const int32_t *ids = mha_head_data_ids(data, 0, NULL);
    const uint8_t *kind = mha__head_data_kinds(data, 0);
    assert_int_equal(kind[0], MHA_TOKEN_SPECIAL);
    assert_int_equal(kind[1], 0);
    assert_int_equal(kind[n - 2], MHA_TOKEN_PUNCT);
    assert_int_equal(kind[n - 1], MHA_TOKEN_SPECIAL | MHA_TOKEN_SEP);
    assert_int_equal(mha__head_data_frame(data)->after_count, 1);

    const mha_head_data_options told = {.size = sizeof told, .special = ids, .special_count = 1};
    assert_int_equal(mha_head_data_of_ids(untold, ids, starts, 1, NULL, &none, NULL), MHA_OK);
    assert_int_equal(mha_head_data_of_ids(untold, ids, starts, 1, &told, &one, NULL), MHA_OK);
    assert_int_equal(mha__head_data_frame(none)->before_count, 0);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(mha__head_data_kinds(none, 0)[i], 0);
        assert_int_equal(mha__head_data_kinds(one, 0)[i], i == 0 ? MHA_TOKEN_SPECIAL : 0);
    }
    mha_head_data_free(one);
    mha_head_data_free(none);
    mha_head_data_free(data);
    mha_model_free(untold);
    mha_model_free(model);
    (void)state;
}

static void on_log(void *user, int level, const char *message)
{
    if (level == 0) snprintf(user, 1024, "%s", message);
}

/* Truncation to the maximum length of the model must log a warning; truncation to max_tokens must not. */
static void cuts(void **state)
{
    char heard[1024] = "";
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .log = on_log, .log_user = heard};
    mha_ctx *ctx;
    mha_head_data *data;
    int32_t ids[120] = {0};
    const int64_t starts[3] = {0, 3, 120};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = case_model(ctx, "models/bert-tiny", NULL);
    const mha_head_data_options short_ones = {.size = sizeof short_ones, .max_tokens = 5};
    assert_int_equal(mha_head_data_of_ids(model, ids, starts, 2, &short_ones, &data, NULL), MHA_OK);
    assert_string_equal(heard, "");
    assert_int_equal(length_of(data, 0), 3);
    assert_int_equal(length_of(data, 1), 5);
    mha_head_data_free(data);
    assert_int_equal(mha_head_data_of_ids(model, ids, starts, 2, NULL, &data, NULL), MHA_OK);
    assert_string_equal(heard, "text 2 of 2: 117 tokens, 21 were truncated; the model accepts 96");
    assert_int_equal(length_of(data, 1), 96);
    mha_head_data_free(data);
    mha_model_free(model);
    mha_ctx_free(ctx);
    (void)state;
}

/* ---- error messages ---- */

static void refused(const mha_model *model, const int32_t *ids, const int64_t *starts, int64_t count,
                    mha_head_data_options options, const char *sentence)
{
    mha_head_data *data = (mha_head_data *)1;
    mha_error err = {0};
    options.size = sizeof options;
    assert_int_equal(mha_head_data_of_ids(model, ids, starts, count, &options, &data, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, sentence);
    assert_null(data);
}

static void hostile(void **state)
{
    mha_model *model = case_model(NULL, "models/bert-tiny", NULL);
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    mha_model *untold = case_model(NULL, "models/bert-tiny", &bare);
    const int32_t ids[4] = {1, 2, 3, INT32_MAX}, below[1] = {-1};
    const int64_t good[] = {0, 2, 3}, late[] = {1, 2}, back[] = {0, 3, 2}, empty[] = {0, 2, 2}, far[] = {0, 4},
                  one[] = {0, 1};
    const mha_head_data_options plain = {0};
    char sentence[128];
    refused(model, ids, good, 0, plain, "mha_head_data: count must be at least 1 (got 0)");
    refused(model, ids, good, -3, plain, "mha_head_data: count must be at least 1 (got -3)");
    refused(model, NULL, good, 2, plain, "mha_head_data: texts or ids must not be NULL");
    refused(model, ids, NULL, 2, plain, "mha_head_data: texts or ids must not be NULL");
    refused(NULL, ids, good, 2, plain, "model must not be NULL");
    refused(model, ids, late, 1, plain, "starts[0] must be 0 (got 1)");
    refused(model, ids, back, 2, plain, "starts[2] must be above 3, the previous start (got 2)");
    refused(model, ids, empty, 2, plain, "starts[2] must be above 2, the previous start (got 2)");
    refused(model, ids, good, 2, (mha_head_data_options){.max_tokens = -1}, "max_tokens must be at least 0 (got -1)");
    refused(model, ids, good, 2, (mha_head_data_options){.batch_tokens = -1},
            "batch_tokens must be at least 0 (got -1)");
    refused(model, ids, good, 2, (mha_head_data_options){.special_count = 1},
            "special_count must be the number of entries in special (got 1)");
    const long long last = (long long)mha_model_describe(model)->vocab - 1;
    snprintf(sentence, sizeof sentence, "text 1 of 1: ids[3] must be from 0 to %lld (got 2147483647)", last);
    refused(model, ids, far, 1, plain, sentence);
    snprintf(sentence, sizeof sentence, "text 1 of 1: ids[0] must be from 0 to %lld (got -1)", last);
    refused(untold, below, one, 1, plain, sentence);

    mha_head_data *data;
    mha_error err = {0};
    const char *const bad[] = {"the", "a\xC3"}, *const none[] = {NULL};
    assert_int_equal(mha_head_data_of_texts(model, bad, 2, NULL, &data, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "text 2 of 2: text must be UTF-8 (got 0xC3 at byte 1)");
    assert_int_equal(mha_head_data_of_texts(model, none, 1, NULL, &data, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "text 1 of 1 must not be NULL");
    assert_int_equal(mha_head_data_of_texts(untold, bad, 1, NULL, &data, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "model must have a tokenizer (got a model opened with no_tokenizer)");
    assert_int_equal(mha_head_data_of_texts(model, bad, 1, NULL, NULL, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "out must not be NULL");
    mha_model_free(untold);
    mha_model_free(model);
    (void)state;
}

/* GPT-2 adds no special tokens, so an empty text has no tokens and must be rejected. */
static void a_text_without_tokens(void **state)
{
    mha_model *model = case_model(NULL, "models/gpt2-tiny", NULL);
    mha_head_data *data;
    mha_error err = {0};
    const char *const two[] = {"the", ""};
    assert_int_equal(mha_head_data_of_texts(model, two, 2, NULL, &data, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "text 2 of 2 must have at least one token (got none)");
    mha_model_free(model);
    (void)state;
}

/* With a budget of 0, 1, 2, ... allocations, each failed call must return MHA_ERR_MEMORY and free its memory. */
static void no_memory(void **state)
{
    counting memory = {.budget = -1};
    mha_ctx *ctx;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = case_model(ctx, "models/bert-tiny", NULL);
    const long live = memory.live;
    long failures = 0;
    for (bool done = false; !done; failures++) {
        mha_head_data *data;
        memory.budget = memory.calls + failures;
        const mha_status status = mha_head_data_of_texts(model, texts, TEXTS, NULL, &data, NULL);
        memory.budget = -1;
        done = status == MHA_OK;
        if (!done) assert_int_equal(status, MHA_ERR_MEMORY);
        if (!done) assert_null(data);
        mha_head_data_free(data);
        assert_int_equal(memory.live, live);
    }
    assert_true(failures > TEXTS);
    mha_model_free(model);
    mha_ctx_free(ctx);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_keep_their_numbers),
        cmocka_unit_test(batches),
        cmocka_unit_test(many_ids),
        cmocka_unit_test(kinds),
        cmocka_unit_test(cuts),
        cmocka_unit_test(hostile),
        cmocka_unit_test(a_text_without_tokens),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
