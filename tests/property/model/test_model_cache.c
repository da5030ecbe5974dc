/* test_model_cache.c - decoding with a cache must be bitwise identical to one forward pass over the whole sequence:
 * token by token, in chunks, in a batch of sequences of different lengths, after truncation, and with a shared
 * prefix. */
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/rng.h"
#include <stdlib.h>
#include <string.h>

enum { L = 40, VOCAB_MAX = 700 };
static const char *const folders[] = {"models/gpt2-tiny", "models/gemma2-tiny"};
static const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};

typedef struct fixture {
    mha_model *model;
    int64_t vocab;
    int32_t ids[L];
    float *whole; /* logits of the full pass, [L, vocab] */
} fixture;

static fixture fixture_open(const char *folder)
{
    fixture f = {.model = case_model(NULL, folder, &bare)};
    rng r = rng_make(5, 1);
    f.vocab = mha_model_describe(f.model)->vocab;
    f.whole = malloc((size_t)(L * f.vocab) * sizeof(float));
    for (int i = 0; i < L; i++)
        f.ids[i] = (int32_t)rng_range(&r, 0, f.vocab - 1);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = f.ids};
    const mha_model_output output = {.size = sizeof output, .logits = f.whole};
    assert_int_equal(mha_model_forward(f.model, &input, &output, NULL), MHA_OK);
    return f;
}

static void fixture_close(fixture *f)
{
    free(f->whole);
    mha_model_free(f->model);
}

static mha_model_cache *open_cache(const fixture *f, int64_t batch, mha_dtype dtype)
{
    const mha_model_cache_options o = {.size = sizeof o, .batch = batch, .tokens = 64, .dtype = dtype, .page_size = 16};
    mha_model_cache *cache = NULL;
    assert_int_equal(mha_model_cache_create(f->model, &o, &cache, NULL), MHA_OK);
    return cache;
}

/* Passes tokens [first, first + count) to the model. Their logits must be bitwise identical to those of the full
 * pass. */
static void feed(const fixture *f, mha_model_cache *cache, int64_t first, int64_t count)
{
    float logits[L * VOCAB_MAX], last[VOCAB_MAX];
    mha_error err;
    const mha_model_input input = {
        .size = sizeof input, .batch = 1, .length = count, .ids = f->ids + first, .cache = cache};
    const mha_model_output output = {.size = sizeof output, .logits = logits, .last_logits = last};
    if (mha_model_forward(f->model, &input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
    assert_memory_equal(logits, f->whole + first * f->vocab, (size_t)(count * f->vocab) * sizeof *logits);
    assert_memory_equal(last, f->whole + (first + count - 1) * f->vocab, (size_t)f->vocab * sizeof *last);
    assert_int_equal(mha_model_cache_length(cache, 0), first + count);
}

static void test_pieces(void **state)
{
    (void)state;
    static const int64_t pieces[][4] = {{L, 0, 0, 0}, {1, 0, 0, 0}, {7, 0, 0, 0}, {17, 1, 3, 19}};
    for (size_t m = 0; m < sizeof folders / sizeof *folders; m++) {
        fixture f = fixture_open(folders[m]);
        mha_model_cache *cache = open_cache(&f, 1, MHA_F32);
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            assert_int_equal(mha_model_cache_clear(cache, MHA_CACHE_ALL, NULL), MHA_OK);
            int64_t at = 0;
            for (int n = 0; at < L; n++) {
                const int64_t piece = pieces[p][n % 4] ? pieces[p][n % 4] : pieces[p][0];
                const int64_t count = piece < L - at ? piece : L - at;
                feed(&f, cache, at, count);
                at += count;
            }
        }
        mha_model_cache_free(cache);
        fixture_close(&f);
    }
}

/* Three sequences advance by different numbers of tokens per call, sometimes 0. The logits of each sequence must be
 * bitwise identical to those of the sequence alone. */
static void test_unequal_batch(void **state)
{
    (void)state;
    static const int64_t steps[][3] = {{9, 3, 14}, {1, 0, 2}, {4, 5, 0}, {1, 1, 1}, {10, 12, 16}};
    for (size_t m = 0; m < sizeof folders / sizeof *folders; m++) {
        fixture f = fixture_open(folders[m]);
        mha_model_cache *cache = open_cache(&f, 3, MHA_F32);
        float last[3 * VOCAB_MAX];
        int64_t at[3] = {0};
        for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
            int32_t ids[3 * L] = {0};
            uint8_t mask[3 * L] = {0};
            const int64_t longest = 16;
            for (int b = 0; b < 3; b++) {
                memcpy(ids + b * longest, f.ids + at[b], (size_t)steps[s][b] * sizeof *ids);
                memset(mask + b * longest, 1, (size_t)steps[s][b]);
                at[b] += steps[s][b];
            }
            const mha_model_input input = {
                .size = sizeof input, .batch = 3, .length = longest, .ids = ids, .mask = mask, .cache = cache};
            const mha_model_output output = {.size = sizeof output, .last_logits = last};
            assert_int_equal(mha_model_forward(f.model, &input, &output, NULL), MHA_OK);
            for (int b = 0; b < 3; b++)
                if (steps[s][b] > 0)
                    assert_memory_equal(last + b * f.vocab, f.whole + (at[b] - 1) * f.vocab,
                                        (size_t)f.vocab * sizeof *last);
        }
        mha_model_cache_free(cache);
        fixture_close(&f);
    }
}

static void test_truncate_and_fork(void **state)
{
    (void)state;
    fixture f = fixture_open(folders[0]);
    mha_model_cache *cache = open_cache(&f, 1, MHA_F32), *pair = open_cache(&f, 2, MHA_F32);
    feed(&f, cache, 0, 30);
    assert_int_equal(mha_model_cache_truncate(cache, 0, 13, NULL), MHA_OK);
    feed(&f, cache, 13, 20);
    int32_t ids[2 * 20] = {0};
    uint8_t mask[2 * 20] = {0};
    memcpy(ids, f.ids, 20 * sizeof *ids);
    memset(mask, 1, 20);
    mha_model_input input = {.size = sizeof input, .batch = 2, .length = 20, .ids = ids, .mask = mask, .cache = pair};
    assert_int_equal(mha_model_forward(f.model, &input, NULL, NULL), MHA_OK);
    assert_int_equal(mha_model_cache_fork(pair, 0, 1, 18, NULL), MHA_OK);
    assert_int_equal(mha_model_cache_length(pair, 1), 18);
    float last[2 * VOCAB_MAX];
    const mha_model_output output = {.size = sizeof output, .last_logits = last};
    const int32_t next[2] = {f.ids[20], f.ids[18]};
    input = (mha_model_input){.size = sizeof input, .batch = 2, .length = 1, .ids = next, .cache = pair};
    assert_int_equal(mha_model_forward(f.model, &input, &output, NULL), MHA_OK);
    assert_memory_equal(last, f.whole + 20 * f.vocab, (size_t)f.vocab * sizeof *last);
    assert_memory_equal(last + f.vocab, f.whole + 18 * f.vocab, (size_t)f.vocab * sizeof *last);
    mha_model_cache_free(cache);
    mha_model_cache_free(pair);
    fixture_close(&f);
}

/* With a cache of a smaller type, logits must be close to those with an f32 cache, and the cache must be smaller. */
static void test_smaller_types(void **state)
{
    (void)state;
    static const struct {
        mha_dtype dtype;
        double limit; /* of the error of a logit */
    } types[] = {{MHA_BF16, 0.1}, {MHA_F16, 0.02}, {MHA_Q8_0, 0.2}, {MHA_F8_E4M3, 1.2}};
    fixture f = fixture_open(folders[0]);
    mha_model_cache *full = open_cache(&f, 1, MHA_F32);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        mha_model_cache *cache = open_cache(&f, 1, types[t].dtype);
        float logits[L * VOCAB_MAX];
        const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = f.ids, .cache = cache};
        const mha_model_output output = {.size = sizeof output, .logits = logits};
        assert_int_equal(mha_model_forward(f.model, &input, &output, NULL), MHA_OK);
        case_near("logits", logits, f.whole, L * f.vocab, types[t].limit);
        assert_true(mha_model_cache_bytes(cache) < mha_model_cache_bytes(full));
        mha_model_cache_free(cache);
    }
    mha_model_cache_free(full);
    fixture_close(&f);
}

static void refused(const fixture *f, mha_model_input input, const char *part)
{
    mha_error err = {0};
    input.size = sizeof input;
    assert_int_equal(mha_model_forward(f->model, &input, NULL, &err), MHA_ERR_ARG);
    if (!strstr(err.message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err.message);
}

static int stop_after_first_layer(void *user, int64_t entry, const float *x)
{
    (void)user, (void)x;
    return entry == 1;
}

static void test_refusals(void **state)
{
    (void)state;
    fixture f = fixture_open(folders[0]), other = fixture_open(folders[1]);
    mha_model_cache *cache = open_cache(&f, 1, MHA_F32), *none = NULL;
    const uint8_t hole[3] = {1, 0, 1};
    const int32_t wrong[2][1] = {{-1}, {700}}, far[1] = {100000};
    mha_error err;
    feed(&f, cache, 0, 30);
    refused(&other, (mha_model_input){.batch = 1, .length = 1, .ids = f.ids, .cache = cache},
            "cache must be a cache of this model");
    refused(&f, (mha_model_input){.batch = 2, .length = 1, .ids = f.ids, .cache = cache}, "sequence count 1 (got 2)");
    refused(&f, (mha_model_input){.batch = 1, .length = 1, .ids = f.ids, .cache = cache, .sequence = 1},
            "sequence must be at least 0 and below the cache's sequence count 1 (got 1)");
    refused(&f, (mha_model_input){.batch = 1, .length = 3, .ids = f.ids, .mask = hole, .cache = cache},
            "mask must be right-padded (ones, then zeros in each row) if cache is set");
    refused(&f, (mha_model_input){.batch = 1, .length = 35, .ids = f.ids, .cache = cache},
            "sequence 0: number of tokens must be at most 64, including cached tokens (got 35 after 30)");
    refused(&f, (mha_model_input){.batch = 1, .length = 1, .ids = wrong[0], .cache = cache}, "(got -1)");
    refused(&f, (mha_model_input){.batch = 1, .length = 1, .ids = wrong[1], .cache = cache}, "(got 700)");
    refused(&f, (mha_model_input){.batch = 1, .length = 1, .ids = f.ids, .positions = far, .cache = cache},
            "positions[0]");
    feed(&f, cache, 30, 4); /* the rejected calls have not changed the cache */
    const mha_model_output stopped = {.size = sizeof stopped, .on_hidden = stop_after_first_layer};
    const mha_model_input next = {.size = sizeof next, .batch = 1, .length = 1, .ids = f.ids, .cache = cache};
    assert_int_equal(mha_model_forward(f.model, &next, &stopped, &err), MHA_ERR_CANCELED);
    assert_int_equal(mha_model_cache_length(cache, 0), 0);
    mha_model_cache_free(cache);
    assert_int_equal(
        mha_model_cache_create(
            f.model, &(mha_model_cache_options){.size = sizeof(mha_model_cache_options), .batch = -1}, &none, &err),
        MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "batch must be from 1"));
    assert_int_equal(mha_model_cache_create(
                         f.model, &(mha_model_cache_options){.size = sizeof(mha_model_cache_options), .dtype = MHA_F64},
                         &none, &err),
                     MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "dtype must be one of f32, bf16, f16, q8_0, q4_0, f8_e4m3 (got f64)"));
    mha_model *bert = case_model(NULL, "models/bert-tiny", &bare);
    assert_int_equal(mha_model_cache_create(bert, NULL, &none, &err), MHA_ERR_UNSUPPORTED);
    mha_model_free(bert);
    fixture_close(&f);
    fixture_close(&other);
}

/* A source with an unknown id must leave the other sequence of the cache unchanged. */
static void test_refused_source(void **state)
{
    (void)state;
    const int32_t ids[3] = {5, 6, 7}, wrong[3] = {5, 1 << 20, 7};
    fixture f = {.model = case_model(NULL, "seq2seq/bart", &bare)};
    mha_model_cache *cache = open_cache(&f, 2, MHA_F32);
    mha_model_input source = {.size = sizeof source, .batch = 1, .length = 3, .ids = ids};
    mha_model_input input = {
        .size = sizeof input, .batch = 1, .length = 2, .ids = ids, .cache = cache, .source = &source};
    assert_int_equal(mha_model_forward(f.model, &input, NULL, NULL), MHA_OK);
    input.sequence = 1, source.ids = wrong;
    refused(&f, input, "ids[1] must be from 0");
    assert_int_equal(mha_model_cache_length(cache, 0), 2);
    input.source = NULL; /* the rejected source is not stored */
    refused(&f, input, "source must not be NULL");
    input.source = &source, source.ids = ids;
    assert_int_equal(mha_model_forward(f.model, &input, NULL, NULL), MHA_OK);
    assert_int_equal(mha_model_cache_length(cache, 1), 2);
    mha_model_cache_free(cache);
    mha_model_free(f.model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_unequal_batch),
        cmocka_unit_test(test_truncate_and_fork),
        cmocka_unit_test(test_smaller_types),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refused_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
