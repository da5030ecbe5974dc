/* test_model_dtype.c - results of models opened as bf16, f16 and q8_0 must be close to those of f32. For each type,
 * results must be bitwise identical alone and in a batch, padded and packed, in one pass and token by token. */
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/rng.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 3, L = 24, HIDDEN_MAX = 64, VOCAB_MAX = 700 };
static const char *const folders[] = {"models/bert-tiny", "models/gpt2-tiny", "models/gemma2-tiny"};

/* Limits of the relative RMS error of the last hidden state. Every weight is rounded to 8 significant bits (bf16, and
 * q8_0 relative to the largest weight of its group of 128) or 11 (f16). In q8_0, the inputs of dense layers are rounded
 * in the same way. The largest errors measured are 0.017, 0.0013 and 0.053. */
static const struct {
    mha_dtype dtype;
    double limit;
} types[] = {{MHA_BF16, 0.025}, {MHA_F16, 0.002}, {MHA_Q8_0, 0.07}};
static const mha_dtype all_types[] = {MHA_F32, MHA_BF16, MHA_F16, MHA_Q8_0};
enum { TYPES = sizeof types / sizeof types[0] };

static mha_model *open_as(const char *folder, mha_dtype dtype)
{
    const mha_model_options options = {.size = sizeof options, .no_tokenizer = 1, .dtype = dtype};
    return case_model(NULL, folder, &options);
}

static void random_ids(const mha_model *model, int32_t *ids, int64_t count)
{
    rng r = rng_make(11, 1);
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int32_t)rng_range(&r, 0, mha_model_describe(model)->vocab - 1);
}

static void hidden_of(const mha_model *model, int64_t batch, int64_t length, const int32_t *ids, const uint8_t *mask,
                      float *hidden)
{
    mha_error err;
    const mha_model_input input = {.size = sizeof input, .batch = batch, .length = length, .ids = ids, .mask = mask};
    const mha_model_output output = {.size = sizeof output, .last_hidden = hidden};
    if (mha_model_forward(model, &input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
}

static void test_near_f32(void **state)
{
    (void)state;
    static float truth[BATCH * L * HIDDEN_MAX], got[BATCH * L * HIDDEN_MAX];
    int32_t ids[BATCH * L];
    for (size_t m = 0; m < sizeof folders / sizeof *folders; m++) {
        mha_model *exact = open_as(folders[m], MHA_F32);
        const int64_t count = BATCH * L * mha_model_describe(exact)->hidden;
        assert_true(count <= BATCH * L * HIDDEN_MAX);
        random_ids(exact, ids, BATCH * L);
        hidden_of(exact, BATCH, L, ids, NULL, truth);
        for (int t = 0; t < TYPES; t++) {
            mha_model *model = open_as(folders[m], types[t].dtype);
            hidden_of(model, BATCH, L, ids, NULL, got);
            double error = 0, size = 0;
            for (int64_t i = 0; i < count; i++) {
                error += pow((double)got[i] - (double)truth[i], 2);
                size += pow((double)truth[i], 2);
            }
            /* an error of 0 would mean that the weights were not rounded */
            if (!(error > 0 && sqrt(error / size) <= types[t].limit))
                fail_msg("%s in %s: the relative error must be above 0 and at most the limit (got %g, limit %g)",
                         folders[m], mha_dtype_name(types[t].dtype), sqrt(error / size), types[t].limit);
            mha_model_free(model);
        }
        mha_model_free(exact);
    }
}

/* Runs the model on packed sequences. `one` receives the pooled hidden state [BATCH, E] or, for a causal model, the
 * last logits [BATCH, vocab] of each sequence. */
static void packed_of(const mha_model *model, const int32_t *ids, const int64_t *starts, float *hidden, float *one)
{
    mha_error err;
    const mha_model_input input = {.size = sizeof input, .batch = BATCH, .ids = ids, .starts = starts};
    const bool causal = mha_model_describe(model)->causal;
    const mha_model_output output = {.size = sizeof output,
                                     .last_hidden = hidden,
                                     .pooled = causal ? NULL : one,
                                     .last_logits = causal ? one : NULL};
    if (mha_model_forward(model, &input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
}

static void test_bits_of_a_packed_sequence(void **state)
{
    (void)state;
    static float packed[BATCH * L * HIDDEN_MAX], alone[L * HIDDEN_MAX];
    static float ones[BATCH * VOCAB_MAX], one[VOCAB_MAX];
    static const int64_t starts[BATCH + 1] = {0, 5, 5 + L, 5 + L + 17};
    for (size_t m = 0; m < sizeof folders / sizeof *folders; m++)
        for (size_t t = 0; t < sizeof all_types / sizeof *all_types; t++) {
            mha_model *model = open_as(folders[m], all_types[t]);
            const mha_model_info *info = mha_model_describe(model);
            const int64_t width = info->hidden, wide = info->causal ? info->vocab : width;
            int32_t ids[BATCH * L];
            random_ids(model, ids, BATCH * L);
            packed_of(model, ids, starts, packed, ones);
            for (int64_t b = 0; b < BATCH; b++) {
                const mha_model_input input = {
                    .size = sizeof input, .batch = 1, .length = starts[b + 1] - starts[b], .ids = ids + starts[b]};
                const mha_model_output output = {.size = sizeof output,
                                                 .last_hidden = alone,
                                                 .pooled = info->causal ? NULL : one,
                                                 .last_logits = info->causal ? one : NULL};
                assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
                assert_memory_equal(alone, packed + starts[b] * width, (size_t)(input.length * width) * sizeof *alone);
                assert_memory_equal(one, ones + b * wide, (size_t)wide * sizeof *one);
            }
            mha_model_free(model);
        }
}

static void test_packed_refusals(void **state)
{
    (void)state;
    mha_model *model = open_as("models/bert-tiny", MHA_F32);
    const int64_t max = mha_model_describe(model)->max_positions;
    const int64_t wrong[][3] = {{1, 2, 3}, {0, 0, 3}, {0, 3, 2}, {0, max + 1, max + 2}};
    int32_t ids[8] = {0};
    uint8_t mask[8] = {0};
    mha_error err;
    mha_model_input input = {.size = sizeof input, .batch = 2, .ids = ids};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        input.starts = wrong[i];
        assert_int_equal(mha_model_forward(model, &input, NULL, &err), MHA_ERR_ARG);
    }
    assert_non_null(strstr(err.message, "(got tokens 0 to"));
    input.starts = (const int64_t[]){0, 3, 8};
    assert_int_equal(mha_model_forward(model, &input, NULL, &err), MHA_OK);
    input.mask = mask;
    assert_int_equal(mha_model_forward(model, &input, NULL, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "mask must be NULL with starts"));
    mha_model_free(model);
}

static void test_bits_of_a_sequence(void **state)
{
    (void)state;
    static float batch[BATCH * L * HIDDEN_MAX], alone[L * HIDDEN_MAX];
    static const int64_t lengths[BATCH] = {L, 5, 17};
    for (size_t m = 0; m < sizeof folders / sizeof *folders; m++)
        for (int t = 0; t < TYPES; t++) {
            mha_model *model = open_as(folders[m], types[t].dtype);
            const int64_t width = mha_model_describe(model)->hidden;
            int32_t ids[BATCH * L];
            uint8_t mask[BATCH * L] = {0};
            random_ids(model, ids, BATCH * L);
            for (int64_t b = 0; b < BATCH; b++)
                memset(mask + b * L, 1, (size_t)lengths[b]);
            hidden_of(model, BATCH, L, ids, mask, batch);
            for (int64_t b = 0; b < BATCH; b++) {
                hidden_of(model, 1, lengths[b], ids + b * L, NULL, alone);
                assert_memory_equal(alone, batch + b * L * width, (size_t)(lengths[b] * width) * sizeof *alone);
            }
            mha_model_free(model);
        }
}

/* Decoding with the default cache must be bitwise identical to one full pass for every type. For a bf16 model, the
 * default cache is bf16, so that keys are rounded as in the full pass. */
static void test_bits_of_decoding(void **state)
{
    (void)state;
    static float whole[L * VOCAB_MAX], piece[L * VOCAB_MAX];
    for (size_t m = 1; m < sizeof folders / sizeof *folders; m++)
        for (int t = 0; t < TYPES; t++) {
            mha_model *model = open_as(folders[m], types[t].dtype);
            const int64_t vocab = mha_model_describe(model)->vocab;
            assert_true(vocab <= VOCAB_MAX);
            int32_t ids[L];
            random_ids(model, ids, L);
            mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
            mha_model_output output = {.size = sizeof output, .logits = whole};
            assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
            assert_int_equal(mha_model_cache_create(model, NULL, &input.cache, NULL), MHA_OK);
            output.logits = piece;
            for (int64_t at = 0; at < L; at += input.length) {
                input.length = at == 0 ? 7 : 1;
                input.ids = ids + at;
                assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
                assert_memory_equal(piece, whole + at * vocab, (size_t)(input.length * vocab) * sizeof *piece);
            }
            mha_model_cache_free(input.cache);
            mha_model_free(model);
        }
}

/* Caches of models whose attention runs in bf16 store bf16 unless another type is given. */
static void test_default_caches(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof all_types / sizeof *all_types; t++) {
        mha_error err;
        const bool half = all_types[t] == MHA_BF16 || all_types[t] == MHA_Q8_0;
        mha_model *model = open_as("models/gpt2-tiny", all_types[t]);
        const mha_model_cache_options given = {.size = sizeof given, .dtype = half ? MHA_BF16 : MHA_F32};
        mha_model_cache *cache, *same;
        assert_int_equal(mha_model_cache_create(model, NULL, &cache, &err), MHA_OK);
        assert_int_equal(mha_model_cache_create(model, &given, &same, &err), MHA_OK);
        assert_true(mha_model_cache_bytes(cache) == mha_model_cache_bytes(same));
        mha_model_cache_free(cache);
        mha_model_cache_free(same);
        mha_model_free(model);
    }
}

static void test_refusal(void **state)
{
    (void)state;
    const mha_model_options options = {.size = sizeof options, .dtype = MHA_F64};
    mha_model *model = NULL;
    mha_error err = {0};
    assert_int_equal(mha_model_open(NULL, "anywhere", &options, &model, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "f64"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near_f32),
        cmocka_unit_test(test_bits_of_a_sequence),
        cmocka_unit_test(test_bits_of_a_packed_sequence),
        cmocka_unit_test(test_packed_refusals),
        cmocka_unit_test(test_bits_of_decoding),
        cmocka_unit_test(test_default_caches),
        cmocka_unit_test(test_refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
