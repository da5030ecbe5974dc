/* test_sampling.c - compares penalties and filters with transformers, and tests properties of token sampling. */
#include "mha/generate.h"
#include "mha/io.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 64, IDS = 12 };

static mha_file *file;
static float logits[VOCAB];
static int32_t ids[IDS];

static int load(void **state)
{
    (void)state;
    file = case_file("ops/logits_processing.safetensors");
    int32_t *list = case_ints(file, "ids");
    float *x = case_floats(file, "logits");
    memcpy(ids, list, sizeof ids);
    memcpy(logits, x, sizeof logits);
    free(list);
    free(x);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    mha_file_free(file);
    return 0;
}

static void check(const char *name, mha_sampling s)
{
    float x[VOCAB], *want = case_floats(file, name);
    memcpy(x, logits, sizeof x);
    assert_int_equal(mha_sampling_apply(NULL, &s, ids, IDS, VOCAB, x, NULL), MHA_OK);
    for (int i = 0; i < VOCAB; i++)
        if (!(x[i] == want[i] || fabsf(x[i] - want[i]) < 1e-6f))
            fail_msg("%s: logit %d: got %g, expected %g", name, i, (double)x[i], (double)want[i]);
    free(want);
}

static void test_against_transformers(void **state)
{
    (void)state;
    check("temperature_0.7", (mha_sampling){.temperature = 0.7});
    check("temperature_2", (mha_sampling){.temperature = 2});
    check("top_k_1", (mha_sampling){.temperature = 1, .top_k = 1});
    check("top_k_5", (mha_sampling){.temperature = 1, .top_k = 5});
    check("top_k_1000", (mha_sampling){.temperature = 1, .top_k = 1000});
    check("top_p_0.1", (mha_sampling){.temperature = 1, .top_p = 0.1});
    check("top_p_0.5", (mha_sampling){.temperature = 1, .top_p = 0.5});
    check("top_p_0.95", (mha_sampling){.temperature = 1, .top_p = 0.95});
    check("top_p_1", (mha_sampling){.temperature = 1, .top_p = 1});
    check("min_p_0.05", (mha_sampling){.temperature = 1, .min_p = 0.05});
    check("min_p_0.5", (mha_sampling){.temperature = 1, .min_p = 0.5});
    check("repetition_1.3", (mha_sampling){.repetition_penalty = 1.3});
    check("repetition_0.8", (mha_sampling){.repetition_penalty = 0.8});
    check("no_repeat_ngram_3", (mha_sampling){.no_repeat_ngram = 3});
    check("no_repeat_ngram_1", (mha_sampling){.no_repeat_ngram = 1});
    check("chain", (mha_sampling){.repetition_penalty = 1.2, .temperature = 0.8, .top_k = 20, .top_p = 0.9});
}

static void refused(mha_sampling s, const char *part)
{
    float x[VOCAB];
    mha_error err = {0};
    memcpy(x, logits, sizeof x);
    assert_int_equal(mha_sampling_apply(NULL, &s, ids, IDS, VOCAB, x, &err), MHA_ERR_ARG);
    assert_memory_equal(x, logits, sizeof x);
    if (!strstr(err.message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err.message);
}

static void test_refusals(void **state)
{
    (void)state;
    float x[VOCAB] = {0};
    const int32_t beyond[1] = {VOCAB};
    mha_error err;
    refused((mha_sampling){.temperature = -1}, "temperature must be finite and at least 0 (got -1)");
    refused((mha_sampling){.temperature = NAN}, "temperature must be finite and at least 0 (got nan)");
    refused((mha_sampling){.top_k = -2}, "top_k must be at least 0 (got -2)");
    refused((mha_sampling){.top_p = 1.5}, "top_p must be from 0 to 1 (got 1.5)");
    refused((mha_sampling){.min_p = -0.5}, "min_p must be from 0 to 1 (got -0.5)");
    refused((mha_sampling){.repetition_penalty = INFINITY},
            "repetition_penalty must be finite and at least 0 (got inf)");
    refused((mha_sampling){.no_repeat_ngram = -1}, "no_repeat_ngram must be at least 0 (got -1)");
    assert_int_equal(mha_sampling_apply(NULL, &(mha_sampling){0}, beyond, 1, VOCAB, x, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "ids[0] must be"));
}

/* ---- generation with sampling ---- */

enum { NEW = 12, PROMPTS = 5 };
static const int32_t starts[PROMPTS][4] = {
    {36, 402, 88, 1}, {7, 0, 0, 0}, {5, 6, 7, 8}, {300, 301, 0, 0}, {9, 1, 1, 0}};
static const int64_t counts[PROMPTS] = {4, 1, 4, 2, 3};

static mha_model *open_tiny(void)
{
    return case_open(NULL, "models/gpt2-tiny");
}

static void run(const mha_model *model, int64_t first, int64_t count, mha_generate_options o, int32_t *out,
                int64_t *lengths)
{
    mha_prompt prompts[PROMPTS];
    mha_error err;
    o.size = sizeof o;
    for (int64_t n = 0; n < count; n++)
        prompts[n] = (mha_prompt){starts[first + n], counts[first + n]};
    if (mha_model_generate(model, prompts, count, &o, out, lengths, &err) != MHA_OK) fail_msg("%s", err.message);
}

/* The tokens of each prompt must not depend on the number of prompts in the batch or on the cache, sampled or
 * greedy. */
static void test_prompts_are_independent(void **state)
{
    (void)state;
    mha_model *model = open_tiny();
    for (int sampled = 0; sampled < 2; sampled++) {
        mha_generate_options o = {.max_new = NEW, .eos_count = -1, .at_once = PROMPTS};
        if (sampled) o.sampling = (mha_sampling){.temperature = 1.3, .top_k = 50, .top_p = 0.9, .seed = 7};
        int32_t all[PROMPTS * NEW], other[PROMPTS * NEW];
        int64_t lengths[PROMPTS], others[PROMPTS];
        run(model, 0, PROMPTS, o, all, lengths);
        for (int64_t at_once = 1; at_once <= 2; at_once++) {
            o.at_once = at_once;
            run(model, 0, PROMPTS, o, other, others);
            assert_memory_equal(all, other, sizeof all);
        }
        o.no_cache = 1;
        run(model, 0, PROMPTS, o, other, others);
        assert_memory_equal(all, other, sizeof all);
        o.no_cache = 0;
        for (int64_t n = 0; n < PROMPTS; n++) { /* each prompt alone, with its seed in the batch */
            o.sampling.seed = sampled ? 7 + (uint64_t)n : 0;
            run(model, n, 1, o, other, others);
            assert_memory_equal(all + n * NEW, other, NEW * sizeof *all);
            assert_int_equal(lengths[n], NEW);
        }
    }
    mha_model_free(model);
}

static int stop_after_three(void *user, int64_t prompt, int32_t id)
{
    (void)id;
    int *calls = user;
    return prompt == 1 && ++*calls == 3;
}

static void test_ends(void **state)
{
    (void)state;
    mha_model *model = open_tiny();
    mha_generate_options o = {.max_new = NEW, .eos_count = -1};
    int32_t all[PROMPTS * NEW], out[PROMPTS * NEW];
    int64_t lengths[PROMPTS];
    int calls = 0;
    run(model, 0, PROMPTS, o, all, lengths);
    /* generation must end at the fifth token of the first prompt, or at an earlier equal token */
    o.eos = &all[4], o.eos_count = 1;
    run(model, 0, 1, o, out, lengths);
    int64_t first = 0;
    while (all[first] != all[4])
        first++;
    assert_int_equal(lengths[0], first + 1);
    assert_memory_equal(out, all, (size_t)(first + 1) * sizeof *out);
    o.min_new = first + 3; /* the end token must be suppressed */
    run(model, 0, 1, o, out, lengths);
    assert_true(lengths[0] > first + 1 && out[first] != all[4]);
    o = (mha_generate_options){.max_new = NEW, .eos_count = -1, .on_token = stop_after_three, .user = &calls};
    run(model, 0, PROMPTS, o, out, lengths);
    assert_int_equal(lengths[1], 3);
    assert_int_equal(lengths[2], NEW);
    mha_model_free(model);
}

static void test_generate_refusals(void **state)
{
    (void)state;
    const struct {
        mha_prompt prompt;
        mha_generate_options o;
        const char *part;
    } cases[] = {
        {{starts[0], 4}, {.max_new = 0}, "max_new must be from 1 to 1073741823 (got 0)"},
        {{starts[0], 4}, {.max_new = INT64_C(1) << 40}, "max_new must be from 1 to 1073741823 (got 1099511627776)"},
        {{starts[0], 0}, {.max_new = 1}, "prompt 1 of 1 must have tokens"},
        {{NULL, 4}, {.max_new = 1}, "prompt 1 of 1 must have tokens"},
        {{starts[0], 4}, {.max_new = 93}, "prompt 1 of 1: prompt tokens + max_new must be at most 96 (got 4 + 93)"},
        {{(const int32_t[]){640}, 1}, {.max_new = 1}, "ids[0] must be from 0 to 639 (got 640)"},
        {{starts[0], 4}, {.max_new = 1, .at_once = -1}, "at_once must be at least 0 (got -1)"},
        {{starts[0], 4}, {.max_new = 1, .sampling = {.top_p = 2}}, "top_p must be from 0 to 1 (got 2)"},
        {{starts[0], 4},
         {.max_new = 1, .eos = (const int32_t[]){-3}, .eos_count = 1},
         "eos[0] must be a token of the model (got -3)"},
        {{starts[0], 4}, {.max_new = 1, .eos_count = 2}, "eos_count must be from -1 to 0 if eos is NULL (got 2)"},
        {{starts[0], 4}, {.max_new = 1, .eos_count = -2}, "eos_count must be from -1 to 0 if eos is NULL (got -2)"},
        {{starts[0], 4},
         {.max_new = 1, .eos = (const int32_t[65]){0}, .eos_count = 65},
         "eos_count must be from -1 to 64 (got 65)"},
    };
    mha_model *model = open_tiny();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mha_generate_options o = cases[i].o;
        int32_t out[NEW * 20];
        int64_t length;
        mha_error err = {0};
        o.size = sizeof o;
        assert_int_equal(mha_model_generate(model, &cases[i].prompt, 1, &o, out, &length, &err), MHA_ERR_ARG);
        if (!strstr(err.message, cases[i].part))
            fail_msg("message must contain \"%s\" (got \"%s\")", cases[i].part, err.message);
    }
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_transformers),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_prompts_are_independent), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_generate_refusals),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
