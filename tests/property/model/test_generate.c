/* test_generate.c - generated text must not depend on prefixes shared between prompts, on the chunks of a long prompt,
 * on speculation, or on token boundaries. Text must end before a stop string. */
#include "mha/generate.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/rng.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NEW = 10, MAX = 6, TEXT = 4096 };
/* the second model has a sliding window of 8 tokens */
static const char *const folders[] = {"models/gpt2-tiny", "models/gemma2-tiny"};

/* The data that the callbacks receive. */
typedef struct seen {
    int64_t shared[MAX], tokens[MAX], pieces[MAX];
    mha_ending ending[MAX];
    int64_t ends[MAX];
    char text[MAX][TEXT];
} seen;

static void on_prompt(void *user, int64_t prompt, int64_t shared)
{
    ((seen *)user)->shared[prompt] = shared;
}

static int on_token(void *user, int64_t prompt, int32_t id)
{
    (void)id;
    ((seen *)user)->tokens[prompt]++;
    return 0;
}

static int on_text(void *user, int64_t prompt, const char *text, size_t bytes)
{
    seen *s = user;
    assert_true(bytes > 0);
    s->pieces[prompt]++;
    strncat(s->text[prompt], text, bytes);
    return 0;
}

static void on_end(void *user, int64_t prompt, mha_ending why)
{
    seen *s = user;
    s->ending[prompt] = why;
    s->ends[prompt]++;
}

/* Generates text with all callbacks, which write to *s. Returns the status of mha_model_generate. */
static mha_status try_run(const mha_model *model, const mha_prompt *prompts, int64_t count, mha_generate_options o,
                          int32_t *out, int64_t *lengths, seen *s, mha_error *err)
{
    memset(s, 0, sizeof *s);
    o.size = sizeof o;
    o.on_prompt = on_prompt, o.on_token = on_token, o.on_end = on_end, o.user = s;
    if (mha_model_tokenizer(model)) o.on_text = on_text;
    return mha_model_generate(model, prompts, count, &o, out, lengths, err);
}

static void run(const mha_model *model, const mha_prompt *prompts, int64_t count, mha_generate_options o, int32_t *out,
                seen *s)
{
    int64_t lengths[MAX];
    mha_error err;
    if (try_run(model, prompts, count, o, out, lengths, s, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int64_t n = 0; n < count; n++) {
        assert_int_equal(s->tokens[n], lengths[n]);
        assert_int_equal(s->ends[n], 1);
    }
}

static void fill(int32_t *ids, int64_t count, uint64_t stream)
{
    rng r = rng_make(11, stream);
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int32_t)rng_range(&r, 3, 600);
}

/* Prompts with common prefixes must generate the same tokens as alone, greedy or sampled, all together or a few at a
 * time. Some prompts are equal, and one is a prefix of another. A shared prefix must be computed once, unless the
 * prompt is longer than the prefix and the window together by a page (128 tokens) or more: then the prefix is no longer
 * in the cache. */
static void test_shared_beginnings(void **state)
{
    (void)state;
    enum { LONGEST = 300 };
    static const int64_t at_once[] = {1, 2, MAX}, lengths[] = {40, LONGEST}, commons[] = {25, 200};
    static const int64_t want[2][MAX] = {{0, 39, 25, 24, 25, 0}, {0, 299, 0, 0, 200, 0}};
    for (size_t m = 0; m < 2; m++) {
        mha_model *model = case_model(NULL, folders[m], NULL);
        int32_t ids[MAX][LONGEST], alone[MAX][NEW], all[MAX][NEW];
        mha_prompt prompts[MAX];
        seen s;
        for (uint64_t n = 0; n < MAX; n++) {
            fill(ids[n], lengths[m], n);
            if (n < MAX - 1) fill(ids[n], commons[m], 100);
            prompts[n] = (mha_prompt){ids[n], n == 3 ? commons[m] : lengths[m]};
        }
        memcpy(ids[1], ids[0], sizeof ids[0]);
        mha_generate_options o = {.max_new = NEW, .eos_count = -1, .sampling = {.temperature = 1.2}};
        for (int64_t n = 0; n < MAX; n++) {
            o.sampling.seed = 3 + (uint64_t)n;
            run(model, &prompts[n], 1, o, alone[n], &s);
            assert_int_equal(s.shared[0], 0);
        }
        o.sampling.seed = 3;
        for (size_t t = 0; t < 3; t++) {
            o.at_once = at_once[t];
            run(model, prompts, MAX, o, all[0], &s);
            assert_memory_equal(all, alone, sizeof all);
            if (t == 0 || m == 0) assert_memory_equal(s.shared, want[m], sizeof want[m]);
        }
        mha_model_free(model);
    }
}

/* A prompt that is read in chunks must give the same tokens as full passes without a cache. */
static void test_long_prompt(void **state)
{
    (void)state;
    enum { LONG = 1100, FEW = 3 };
    mha_model *model = case_model(NULL, folders[1], NULL);
    int32_t ids[LONG], pieces[FEW], whole[FEW];
    seen s;
    fill(ids, LONG, 1);
    const mha_prompt prompt = {ids, LONG};
    mha_generate_options o = {.max_new = FEW, .eos_count = -1, .sampling = {.temperature = 1}};
    run(model, &prompt, 1, o, pieces, &s);
    o.no_cache = 1;
    run(model, &prompt, 1, o, whole, &s);
    assert_memory_equal(pieces, whole, sizeof whole);
    mha_model_free(model);
}

static mha_prompt encode(const mha_model *model, const char *text, mha_encoding **e)
{
    assert_int_equal(mha_tokenizer_encode(mha_model_tokenizer(model), text, strlen(text), NULL, 0, NULL, e, NULL),
                     MHA_OK);
    return (mha_prompt){(*e)->ids, (*e)->count};
}

/* Tests substrings of the generated text as stop strings. The text must end before the stop string and the tokens with
 * the token that completes it. No part of the stop string may be passed to the callback. */
static void test_stop_strings(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, folders[0], NULL);
    mha_encoding *e = NULL;
    const mha_prompt prompt = encode(model, "Hello, world! The", &e);
    int32_t whole[3 * NEW], out[3 * NEW];
    seen full, s;
    mha_generate_options o = {.max_new = 3 * NEW, .eos_count = -1};
    run(model, &prompt, 1, o, whole, &full);
    assert_int_equal(full.ending[0], MHA_END_LENGTH);
    const size_t length = strlen(full.text[0]);
    assert_true(length > 20);
    for (size_t from = 0; from < length; from += 3)
        for (size_t n = 1; from + n <= length && n < 9; n += 2) {
            char stop[16] = "", *first;
            if ((full.text[0][from] & 0xC0) == 0x80 || (full.text[0][from + n] & 0xC0) == 0x80) continue;
            memcpy(stop, full.text[0] + from, n);
            first = strstr(full.text[0], stop);
            o.stop = (const char *const[]){"never there", stop};
            o.stop_count = 2;
            run(model, &prompt, 1, o, out, &s);
            assert_int_equal(s.ending[0], MHA_END_STOP);
            assert_int_equal(strlen(s.text[0]), first - full.text[0]);
            assert_memory_equal(s.text[0], full.text[0], strlen(s.text[0]));
            assert_memory_equal(out, whole, (size_t)s.tokens[0] * sizeof *out);
        }
    mha_encoding_free(e);
    mha_model_free(model);
}

/* The text passed to the callback must be what the decoded prompt and tokens contain after the decoded prompt,
 * including a partial stop string at the end. */
static void test_text(void **state)
{
    (void)state;
    for (size_t m = 0; m < 2; m++) {
        mha_model *model = case_model(NULL, folders[m], NULL);
        const mha_tokenizer *t = mha_model_tokenizer(model);
        mha_encoding *e = NULL;
        const mha_prompt prompt = encode(model, "The train to the coast", &e);
        int32_t ids[256];
        char *before, *after;
        seen s;
        run(model, &prompt, 1, (mha_generate_options){.max_new = 30, .eos_count = -1}, ids + prompt.count, &s);
        memcpy(ids, prompt.ids, (size_t)prompt.count * sizeof *ids);
        assert_int_equal(mha_tokenizer_decode(t, ids, prompt.count, 1, &before, NULL, NULL), MHA_OK);
        assert_int_equal(mha_tokenizer_decode(t, ids, prompt.count + 30, 1, &after, NULL, NULL), MHA_OK);
        assert_string_equal(s.text[0], after + strlen(before));
        assert_true(s.pieces[0] > 10);
        char doubt[TEXT + 2];
        const char *const stops[] = {doubt};
        snprintf(doubt, sizeof doubt, "%s!", s.text[0]);
        run(model, &prompt, 1, (mha_generate_options){.max_new = 30, .eos_count = -1, .stop = stops, .stop_count = 1},
            ids, &s);
        assert_string_equal(s.text[0], after + strlen(before));
        assert_int_equal(s.pieces[0], 1);
        mha_tokenizer_text_free(t, before);
        mha_tokenizer_text_free(t, after);
        mha_encoding_free(e);
        mha_model_free(model);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    mha_model *model = case_model(NULL, folders[0], NULL), *mute = case_model(NULL, folders[0], &bare);
    const struct {
        const mha_model *model;
        const char *stop, *part;
    } cases[] = {{model, "", "stop[0] must be a non-empty string"},
                 {model, NULL, "stop[0] must be a non-empty string"},
                 {model, "a\xff", "stop[0] must be UTF-8"},
                 {mute, "a", "stop must be unset for a model without a tokenizer"}};
    const int32_t ids[3] = {1, 2, 3};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t out[4];
        int64_t length;
        mha_error err = {0};
        seen s;
        const mha_generate_options o = {.max_new = 4, .stop = &cases[i].stop, .stop_count = 1};
        assert_int_equal(try_run(cases[i].model, &(mha_prompt){ids, 3}, 1, o, out, &length, &s, &err), MHA_ERR_ARG);
        if (!strstr(err.message, cases[i].part))
            fail_msg("message must contain \"%s\" (got \"%s\")", cases[i].part, err.message);
    }
    mha_model_free(model);
    mha_model_free(mute);
}

static int stop_at_once(void *user, const char *what, int64_t done, int64_t total)
{
    (void)what;
    assert_true(done >= 0 && done <= total);
    return --*(int *)user < 0;
}

/* The progress callback must be able to cancel generation between any two steps. */
static void test_canceled(void **state)
{
    (void)state;
    int left = 0;
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .progress = stop_at_once, .progress_user = &left};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = case_model(ctx, folders[0], NULL);
    const int32_t ids[3] = {1, 2, 3};
    const mha_prompt prompts[2] = {{ids, 3}, {ids, 2}};
    mha_status status = MHA_ERR_CANCELED;
    for (int steps = 0; status != MHA_OK; steps++) {
        int32_t out[2 * NEW];
        int64_t lengths[2];
        seen s;
        left = steps;
        status = try_run(model, prompts, 2, (mha_generate_options){.max_new = NEW, .eos_count = -1, .at_once = 1}, out,
                         lengths, &s, NULL);
        assert_true(status == MHA_OK || status == MHA_ERR_CANCELED);
        assert_true(steps < 100);
        assert_true(status == MHA_OK || lengths[0] + lengths[1] <= steps);
    }
    mha_model_free(model);
    mha_ctx_free(ctx);
}

static int count_steps(void *user, const char *what, int64_t done, int64_t total)
{
    (void)what, (void)done, (void)total;
    ++*(int *)user;
    return 0;
}

/* Speculation may change only the number of steps, not tokens, text or endings. Tests greedy and sampled generation for
 * batches of prompts that accept different numbers of guesses. */
static void test_guesses_change_nothing(void **state)
{
    (void)state;
    enum { MANY = 60, PROMPTS = 4 };
    int steps = 0;
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .progress = count_steps, .progress_user = &steps};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = case_model(ctx, folders[0], NULL);
    int32_t ids[PROMPTS][30], plain[PROMPTS][MANY] = {0}, out[PROMPTS][MANY] = {0};
    mha_prompt prompts[PROMPTS];
    seen want, s;
    for (int64_t n = 0; n < PROMPTS; n++) {
        fill(ids[n], 30, (uint64_t)n);
        for (int i = 6; n < 2 && i < 30; i++)
            ids[n][i] = ids[n][i - 3 - n];
        prompts[n] = (mha_prompt){ids[n], 30 - 7 * n};
    }
    const char *const stop[] = {"  "};
    for (int kind = 0; kind < 4; kind++) {
        mha_generate_options o = {.max_new = MANY, .eos_count = -1, .at_once = 3};
        if (kind == 1) o.sampling = (mha_sampling){.temperature = 0.3, .top_k = 5, .seed = 9};
        if (kind == 2) o.stop = stop, o.stop_count = 1;
        if (kind == 3) o.sampling.repetition_penalty = 1.1, o.eos = &plain[0][20], o.eos_count = 1;
        steps = 0;
        run(model, prompts, PROMPTS, o, plain[0], &want);
        const int plain_steps = steps;
        for (o.lookup = 1; o.lookup <= 64; o.lookup *= 4) {
            memset(out, 0, sizeof out);
            steps = 0;
            run(model, prompts, PROMPTS, o, out[0], &s);
            for (int64_t n = 0; n < PROMPTS; n++) {
                assert_int_equal(s.tokens[n], want.tokens[n]);
                assert_memory_equal(out[n], plain[n], (size_t)s.tokens[n] * sizeof **out);
                assert_string_equal(s.text[n], want.text[n]);
                assert_int_equal(s.ending[n], want.ending[n]);
            }
            if (kind == 0) assert_true(steps < plain_steps);
        }
    }
    mha_model_free(model);
    mha_ctx_free(ctx);
}

/* With a budget of 0, 1, 2, ... allocations, each failed call must return MHA_ERR_MEMORY and free its memory. */
static void test_without_memory(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = case_model(ctx, folders[0], NULL);
    int32_t ids[2][20];
    fill(ids[0], 20, 5);
    fill(ids[1], 20, 5);
    const mha_prompt prompts[2] = {{ids[0], 20}, {ids[1], 19}};
    const char *const stop[] = {"never there"};
    const mha_generate_options o = {.max_new = 3, .eos_count = -1, .stop = stop, .stop_count = 1, .lookup = 2};
    const long live = memory.live;
    mha_status status = MHA_ERR_MEMORY;
    for (long budget = 0; status != MHA_OK; budget++) {
        int32_t out[6];
        int64_t lengths[2];
        mha_error err = {0};
        seen s;
        memory.budget = memory.calls + budget;
        status = try_run(model, prompts, 2, o, out, lengths, &s, &err);
        if (status != MHA_OK && status != MHA_ERR_MEMORY) fail_msg("status %d: %s", (int)status, err.message);
        assert_int_equal(memory.live, live);
        assert_true(budget < 2000);
    }
    memory.budget = -1;
    mha_model_free(model);
    mha_ctx_free(ctx);
}

/* If all logits are NaN, no token can be selected. The error must be MHA_ERR_NOT_FINITE, not a usage error. */
static void test_logits_that_are_not_finite(void **state)
{
    (void)state;
    enum { WIDTH = 128 };
    float scale[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        scale[i] = NAN;
    mha_model *whole = case_model(NULL, folders[0], NULL);
    const int64_t width = mha_model_describe(whole)->hidden;
    mha_model_free(whole);
    assert_true(width <= WIDTH);
    const mha_named_tensor norm = {
        .name = "transformer.ln_f.weight", .dtype = MHA_F32, .rank = 1, .shape = {width}, .data = scale};
    mha_model *model = case_model(
        NULL, folders[0], &(mha_model_options){.size = sizeof(mha_model_options), .tensors = &norm, .tensor_count = 1});
    const int32_t ids[] = {1, 2};
    const mha_prompt prompt = {ids, 2};
    const mha_generate_options o = {.size = sizeof o, .max_new = 1};
    int32_t out;
    int64_t length;
    mha_error err = {0};
    assert_int_equal(mha_model_generate(model, &prompt, 1, &o, &out, &length, &err), MHA_ERR_NOT_FINITE);
    assert_string_equal(err.message, "greatest logit must be finite to choose a token (got nan)");
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_beginnings),
        cmocka_unit_test(test_long_prompt),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_canceled),
        cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_guesses_change_nothing),
        cmocka_unit_test(test_logits_that_are_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
