/* test_model_minilm.c - the real all-MiniLM-L6-v2 against what transformers computed from it.
 *
 * The weights (91 MB) are not part of the project. They are looked for in $MHA_MINILM and in the cache folder that
 * `./run fetch minilm` fills; without them the test is skipped. */
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HIDDEN_LIMIT 2e-5
#define EMBED_LIMIT 2e-6
#define ATTN_LIMIT 1e-5

static mha_model *model;

static const char *const cases[] = {"english",   "punctuation", "accents",    "cjk",          "emoji", "empty",
                                    "uppercase", "numbers",     "whitespace", "special_text", "pair",  "long_word"};

static mha_file *golden_of(const char *name)
{
    char path[100];
    snprintf(path, sizeof path, "minilm/%s.safetensors", name);
    return case_file(path);
}

static void check_forward(const mha_file *golden)
{
    int32_t *ids = case_ints(golden, "input_ids"), *types = case_ints(golden, "token_type_ids");
    float *hidden = case_floats(golden, "last_hidden_state"), *pooled = case_floats(golden, "pooler_output");
    const mha_model_input input = {
        .size = sizeof input, .batch = 1, .length = case_extent(golden, "input_ids", 0), .ids = ids, .type_ids = types};
    case_run run;
    case_forward(model, &input, 1, &run);
    const double worst = case_near("last_hidden", run.last_hidden, hidden, run.cells, HIDDEN_LIMIT);
    case_near("pooler", run.pooled, pooled, mha_model_describe(model)->hidden, HIDDEN_LIMIT);
    double maps = 0;
    if (mha_file_find(golden, "attentions")) {
        float *attn = case_floats(golden, "attentions");
        maps = case_near("attention", run.attn, attn, run.layers * run.maps, ATTN_LIMIT);
        free(attn);
    }
    print_message("%lld tokens: hidden within %.2g, attention within %.2g\n", (long long)input.length, worst, maps);
    case_run_free(&run);
    free(ids);
    free(types);
    free(hidden);
    free(pooled);
}

static void test_forward(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mha_file *golden = golden_of(cases[i]);
        check_forward(golden);
        mha_file_free(golden);
    }
}

/* A text's bytes, terminated; NULL when it holds NUL (embed takes C strings). */
static char *text_of(const mha_file *golden)
{
    const mha_tensor *tensor = mha_file_find(golden, "text");
    char *text = calloc(1, tensor->bytes + 1);
    if (tensor->bytes) memcpy(text, tensor->data, tensor->bytes);
    if (strlen(text) == tensor->bytes) return text;
    free(text);
    return NULL;
}

/* All texts in one call, and each of them alone: golden to within the limit, and the same bits. */
static void test_embed(void **state)
{
    (void)state;
    enum { CASES = sizeof cases / sizeof *cases };
    const int64_t width = mha_model_describe(model)->hidden;
    char *texts[CASES];
    float *want[CASES];
    int64_t count = 0;
    for (size_t i = 0; i < CASES; i++) {
        mha_file *golden = golden_of(cases[i]);
        texts[count] = strcmp(cases[i], "pair") == 0 ? NULL : text_of(golden);
        if (texts[count]) want[count++] = case_floats(golden, "embedding");
        mha_file_free(golden);
    }
    assert_true(count >= 10);
    float *all = malloc((size_t)(count * width) * sizeof *all), *alone = malloc((size_t)width * sizeof *alone);
    mha_error err = {0};
    if (mha_model_embed(model, (const char *const *)texts, count, NULL, all, &err) != MHA_OK)
        fail_msg("%s", err.message);
    for (int64_t i = 0; i < count; i++) {
        case_near(texts[i], all + i * width, want[i], width, EMBED_LIMIT);
        assert_int_equal(mha_model_embed(model, (const char *const *)&texts[i], 1, NULL, alone, NULL), MHA_OK);
        assert_memory_equal(alone, all + i * width, (size_t)width * sizeof *alone);
        free(texts[i]);
        free(want[i]);
    }
    free(all);
    free(alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward), cmocka_unit_test(test_embed)};
    const char *folder = case_minilm();
    mha_error err = {0};
    if (!folder) {
        printf("skipped: no all-MiniLM-L6-v2 in $MHA_MINILM or the cache folder; ./run fetch minilm gets it\n");
        return 77;
    }
    if (mha_model_open(NULL, folder, NULL, &model, &err) != MHA_OK) {
        printf("%s\n", err.message);
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mha_model_free(model);
    return failed;
}
