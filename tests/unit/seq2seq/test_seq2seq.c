/* test_seq2seq.c - tests forward passes of encoder-decoders: recorded results, padding, cached tokens and sources, maps
 * of the cross-attention, labels, and the scores of a target. */
#include "mha/generate.h"
#include "mha/model_grads.h"
#include "support/check.h"
#include "support/model/seq2seq_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *room(int64_t count)
{
    return calloc((size_t)count, sizeof(float));
}

static int64_t vocab_of(const mha_model *model)
{
    return mha_model_describe(model)->vocab;
}

/* ---- recorded results ---- */

static void check_info(const mha_model *model, int family)
{
    static const int64_t starts[SEQ2SEQ_FAMILIES] = {0, 0, 2, 418, 399};
    const mha_model_info *decoder = mha_model_describe(model), *encoder = mha_model_describe(mha_model_encoder(model));
    assert_true(decoder->encoder_decoder && decoder->causal && decoder->logits);
    assert_true(!encoder->encoder_decoder && !encoder->causal && !encoder->logits);
    assert_null(mha_model_encoder(mha_model_encoder(model)));
    assert_int_equal(decoder->decoder_start, starts[family]);
    assert_int_equal(decoder->hidden, encoder->hidden);
    assert_true(decoder->parameters > encoder->parameters);
}

static void test_recorded_results(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        seq2seq_pair pair;
        mha_model *model = seq2seq_open(NULL, f);
        mha_file *file = seq2seq_recorded(f);
        check_info(model, f);
        seq2seq_read(file, "seq2seq", &pair);
        const int64_t width = mha_model_describe(model)->hidden, rows = pair.source.length;
        float *want = case_floats(file, "seq2seq/logits_f64"), *last = case_floats(file, "seq2seq/encoder_last");
        float *logits = room(pair.input.length * vocab_of(model)), *hidden = room(rows * width);
        const mha_model_output encoder = {.size = sizeof encoder, .last_hidden = hidden};
        const mha_model_output output = {.size = sizeof output, .logits = logits, .encoder = &encoder};
        assert_int_equal(mha_model_forward(model, &pair.input, &output, NULL), MHA_OK);
        case_near("logits", logits, want, pair.input.length * vocab_of(model), 1e-4);
        case_near("last states of the encoder", hidden, last, rows * width, 1e-4);
        memset(hidden, 0, (size_t)(rows * width) * sizeof *hidden);
        const mha_model_output alone = {.size = sizeof alone, .last_hidden = hidden};
        assert_int_equal(mha_model_forward(mha_model_encoder(model), &pair.source, &alone, NULL), MHA_OK);
        case_near("last states of the encoder alone", hidden, last, rows * width, 1e-4);
        free(want);
        free(last);
        free(logits);
        free(hidden);
        seq2seq_free(&pair);
        mha_file_free(file);
        mha_model_free(model);
    }
}

/* ---- padding ---- */

/* Every sequence of a padded batch must have the results that it has alone, without padding. */
static void test_batch_is_each_sequence_alone(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        seq2seq_pair pair;
        mha_model *model = seq2seq_open(NULL, f);
        mha_file *file = seq2seq_recorded(f);
        seq2seq_read(file, "pad", &pair);
        const int64_t S = pair.source.length, T = pair.input.length, V = vocab_of(model);
        float *want = case_floats(file, "pad/logits"), *all = seq2seq_logits(model, &pair.input);
        case_near("logits", all, want, pair.input.batch * T * V, 1e-4);
        for (int64_t b = 0; b < pair.input.batch; b++) {
            int64_t length = S;
            while (!pair.mask[b * S + length - 1])
                length--;
            const mha_model_input source = {
                .size = sizeof source, .batch = 1, .length = length, .ids = pair.source_ids + b * S};
            const mha_model_input input = {
                .size = sizeof input, .batch = 1, .length = T, .ids = pair.target_ids + b * T, .source = &source};
            float *alone = seq2seq_logits(model, &input);
            assert_memory_equal(alone, all + b * T * V, (size_t)(T * V) * sizeof *alone);
            free(alone);
        }
        free(want);
        free(all);
        seq2seq_free(&pair);
        mha_file_free(file);
        mha_model_free(model);
    }
}

/* A masked token of the source must not affect any result, at any position. */
static void test_masked_tokens_of_the_source(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        seq2seq_pair pair;
        mha_model *model = seq2seq_open(NULL, f);
        mha_file *file = seq2seq_recorded(f);
        seq2seq_read(file, "seq2seq", &pair);
        const size_t bytes = (size_t)(pair.input.length * vocab_of(model)) * sizeof(float);
        float *whole = seq2seq_logits(model, &pair.input), *logits[2];
        pair.mask = malloc((size_t)pair.source.length);
        memset(pair.mask, 1, (size_t)pair.source.length);
        pair.mask[0] = pair.mask[5] = 0;
        pair.source.mask = pair.mask;
        for (int n = 0; n < 2; n++) {
            logits[n] = seq2seq_logits(model, &pair.input);
            pair.source_ids[0] = pair.source_ids[5] = 7;
        }
        assert_memory_equal(logits[0], logits[1], bytes);
        assert_memory_not_equal(logits[0], whole, bytes);
        free(whole);
        free(logits[0]);
        free(logits[1]);
        seq2seq_free(&pair);
        mha_file_free(file);
        mha_model_free(model);
    }
}

/* ---- caches ---- */

static mha_model_cache *create_cache(const mha_model *model, int64_t batch, int64_t tokens, int64_t source_tokens)
{
    const mha_model_cache_options o = {
        .size = sizeof o, .batch = batch, .tokens = tokens, .source_tokens = source_tokens};
    mha_model_cache *cache = NULL;
    mha_error err = {0};
    if (mha_model_cache_create(model, &o, &cache, &err) != MHA_OK) fail_msg("%s", err.message);
    return cache;
}

/* Runs target tokens [from, to) of a sequence through its cache, `step` at a time, and compares the logits with those
 * of the whole sequence. `source` is the source of the first tokens, or NULL. */
static void check_cached(const mha_model *model, const seq2seq_pair *pair, const mha_model_input *source,
                         mha_model_cache *cache, int64_t sequence, int64_t from, int64_t to, int64_t step,
                         const float *want)
{
    const int64_t V = vocab_of(model);
    for (int64_t at = from, count; at < to; at += count) {
        count = at + step < to ? step : to - at;
        const mha_model_input input = {.size = sizeof input,
                                       .batch = 1,
                                       .length = count,
                                       .ids = pair->target_ids + at,
                                       .cache = cache,
                                       .sequence = sequence,
                                       .source = at == 0 ? source : NULL};
        float *logits = seq2seq_logits(model, &input);
        assert_memory_equal(logits, want + at * V, (size_t)(count * V) * sizeof *logits);
        free(logits);
    }
}

/* Cached tokens and sources must not change a bit, in any sequence of the cache, also after a fork. */
static void test_cached_is_uncached(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        seq2seq_pair pair;
        mha_model *model = seq2seq_open(NULL, f);
        mha_file *file = seq2seq_recorded(f);
        seq2seq_read(file, "seq2seq", &pair);
        const int64_t T = pair.input.length, S = pair.source.length;
        mha_model_input shorter = pair.source;
        shorter.length = S - 4;
        float *whole = seq2seq_logits(model, &pair.input);
        pair.input.source = &shorter;
        float *other = seq2seq_logits(model, &pair.input);
        mha_model_cache *cache = create_cache(model, 3, T, S + 3);
        check_cached(model, &pair, &pair.source, cache, 1, 0, T, 1, whole);
        check_cached(model, &pair, &shorter, cache, 0, 0, T / 2, 3, other);
        assert_int_equal(mha_model_cache_fork(cache, 0, 2, T / 2, NULL), MHA_OK);
        assert_int_equal(mha_model_cache_clear(cache, 1, NULL), MHA_OK);
        check_cached(model, &pair, &shorter, cache, 1, 0, 2, 2, other);
        check_cached(model, &pair, NULL, cache, 2, T / 2, T, 2, other);
        check_cached(model, &pair, NULL, cache, 0, T / 2, T, 5, other);
        assert_true(mha_model_cache_bytes(cache) > 0);
        mha_model_cache_free(cache);
        free(whole);
        free(other);
        seq2seq_free(&pair);
        mha_file_free(file);
        mha_model_free(model);
    }
}

/* ---- maps of the cross-attention ---- */

typedef struct maps {
    const mha_model *model;
    const seq2seq_pair *pair;
    int64_t layers;
} maps;

/* Checks that rows sum to 1, and that masked tokens of the source have no weight. */
static int on_maps(void *user, int64_t layer, int64_t heads, const float *probs)
{
    maps *m = user;
    const int64_t S = m->pair->source.length, T = m->pair->input.length;
    assert_int_equal(layer, m->layers++);
    assert_int_equal(heads, mha_model_describe(m->model)->heads);
    for (int64_t row = 0; row < m->pair->input.batch * heads * T; row++) {
        const uint8_t *mask = m->pair->mask + row / (heads * T) * S;
        double sum = 0;
        for (int64_t j = 0; j < S; j++) {
            assert_true(mask[j] || probs[row * S + j] == 0);
            sum += (double)probs[row * S + j];
        }
        assert_true(fabs(sum - 1) < 1e-5);
    }
    return 0;
}

static int stop(void *user, int64_t layer, int64_t heads, const float *probs)
{
    (void)user, (void)heads, (void)probs;
    return layer == 1;
}

static void test_maps_of_the_cross_attention(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        seq2seq_pair pair;
        mha_error err = {0};
        mha_model *model = seq2seq_open(NULL, f);
        mha_file *file = seq2seq_recorded(f);
        seq2seq_read(file, "pad", &pair);
        maps m = {model, &pair, 0};
        const mha_model_output output = {.size = sizeof output, .on_cross_attention = on_maps, .user = &m},
                               stopped = {.size = sizeof stopped, .on_cross_attention = stop};
        assert_int_equal(mha_model_forward(model, &pair.input, &output, NULL), MHA_OK);
        assert_int_equal(m.layers, mha_model_describe(model)->layers);
        assert_int_equal(mha_model_forward(model, &pair.input, &stopped, &err), MHA_ERR_CANCELED);
        assert_non_null(strstr(err.message, "on_cross_attention"));
        seq2seq_free(&pair);
        mha_file_free(file);
        mha_model_free(model);
    }
}

/* ---- labels and scores ---- */

/* Labels without padding become the recorded input; padding, and mBART's language code, follow the rule. */
static void test_shifted_labels(void **state)
{
    (void)state;
    static const int32_t pads[SEQ2SEQ_FAMILIES] = {0, 0, 1, 1, 399};
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        mha_model *model = seq2seq_open(NULL, f);
        const int32_t start = (int32_t)mha_model_describe(model)->decoder_start, pad = pads[f];
        const int32_t labels[] = {11, 12, 13, 14, 21, 22, MHA_IGNORE, MHA_IGNORE, MHA_IGNORE, 31, pad, pad};
        const bool code = f == SEQ2SEQ_MBART;
        const int32_t want[] = {code ? 14 : start,         11,  12, 13, code ? 22 : start, 21, 22, pad,
                                code ? MHA_IGNORE : start, pad, 31, pad};
        int32_t ids[12];
        assert_int_equal(mha_model_shift_labels(model, labels, 3, 4, ids, NULL), MHA_OK);
        for (int n = 0; n < 12; n++)
            if (n != 8 || !code) assert_int_equal(ids[n], want[n]);
        if (code) assert_int_equal(ids[8], pad); /* the last label among as many labels as are real is ignored */
        mha_model_free(model);
    }
}

/* The scores of a target must be those of the logits for the shifted labels. */
static void test_scores_of_a_target(void **state)
{
    (void)state;
    enum { T = 70 }; /* more than one chunk */
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        seq2seq_pair pair;
        mha_model *model = seq2seq_open(NULL, f);
        mha_file *file = seq2seq_recorded(f);
        seq2seq_read(file, "seq2seq", &pair);
        const int64_t V = vocab_of(model), count = mha_model_describe(model)->max_positions < T ? 40 : T;
        int32_t labels[T], ids[T];
        float got[T];
        for (int i = 0; i < count; i++)
            labels[i] = (int32_t)((17 + 31 * i) % (V - 1));
        assert_int_equal(mha_model_shift_labels(model, labels, 1, count, ids, NULL), MHA_OK);
        pair.input.ids = ids, pair.input.length = count;
        float *logits = seq2seq_logits(model, &pair.input);
        assert_int_equal(mha_model_score_target(model, pair.source_ids, pair.source.length, labels, count, got, NULL),
                         MHA_OK);
        for (int64_t i = 0; i < count; i++) {
            double sum = 0;
            for (int64_t v = 0; v < V; v++)
                sum += exp((double)logits[i * V + v]);
            assert_true(fabs((double)got[i] - ((double)logits[i * V + labels[i]] - log(sum))) < 2e-5);
        }
        free(logits);
        seq2seq_free(&pair);
        mha_file_free(file);
        mha_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_results),
        cmocka_unit_test(test_batch_is_each_sequence_alone),
        cmocka_unit_test(test_masked_tokens_of_the_source),
        cmocka_unit_test(test_cached_is_uncached),
        cmocka_unit_test(test_maps_of_the_cross_attention),
        cmocka_unit_test(test_shifted_labels),
        cmocka_unit_test(test_scores_of_a_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
