/* test_heads_prune.c - tests selection and removal of heads in every family. A pruned model must equal the original
 * model with gates of 0. */
#include "mha/prune.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/save_edit.h"
#include "support/sha256.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { L = 11, MAX = 64 };

static const char *const folders[] = {"models/bert-tiny",       "models/bert-mlm-tiny-hubnames",
                                      "models/gpt2-tiny",       "models/gemma2-tiny",
                                      "families/gpt2-hubnames", "families/llama",
                                      "families/llama-f16",     "families/llama-sharded",
                                      "families/mistral",       "families/qwen2-window",
                                      "families/qwen3",         "families/gemma2"};
enum { FOLDERS = sizeof folders / sizeof *folders };

static int64_t group_of(const mha_model *model)
{
    const mha_model_info *info = mha_model_describe(model);
    return info->heads / info->kv_heads;
}

/* Returns the last hidden states of a few tokens, computed with `gates`. The caller must free them. */
static float *states(const mha_model *model, const float *gates)
{
    const mha_model_info *info = mha_model_describe(model);
    int32_t ids[L];
    mha_error err = {0};
    float *x = malloc((size_t)(L * info->hidden) * sizeof *x);
    for (int i = 0; i < L; i++)
        ids[i] = (37 * i + 5) % (int32_t)info->vocab;
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids, .gates = gates};
    const mha_model_output output = {.size = sizeof output, .last_hidden = x};
    if (mha_model_forward(model, &input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
    return x;
}

static void expect_same(const char *what, float *got, float *want, int64_t hidden)
{
    if (memcmp(got, want, (size_t)(L * hidden) * sizeof *got) != 0)
        fail_msg("%s: states must be bitwise identical to those with gates of 0", what);
    free(got);
    free(want);
}

/* Selects groups of heads to remove from every layer except the last. The selection includes the first group of layer
 * 0. */
static void some(const mha_model *model, uint8_t *keep, float *gates)
{
    const mha_model_info *info = mha_model_describe(model);
    const int64_t group = group_of(model), groups = info->kv_heads;
    for (int64_t l = 0; l < info->layers; l++)
        for (int64_t h = 0; h < info->heads; h++) {
            const int64_t g = h / group;
            const bool goes = l < info->layers - 1 && (g + l) % 2 == 0 && (l == 0 || g < groups - 1);
            keep[l * info->heads + h] = !goes;
            gates[l * info->heads + h] = (float)!goes;
        }
}

#define PRUNE(...) (&(mha_prune_options){.size = sizeof(mha_prune_options), __VA_ARGS__})

/* ---- removal of heads ---- */

static void test_removed_is_gated_off(void **state)
{
    (void)state;
    const char *folder = files_folder();
    char out[300];
    snprintf(out, sizeof out, "%s/out", folder);
    for (int f = 0; f < FOLDERS; f++) {
        uint8_t keep[MAX];
        float gates[MAX];
        mha_model_edit *edit;
        mha_error err = {0};
        mha_model *model = case_open(NULL, folders[f]), *pruned;
        const mha_model_info *info = mha_model_describe(model);
        some(model, keep, gates);
        if (mha_prune(model, keep, NULL, &edit, &err) != MHA_OK) fail_msg("%s", err.message);
        assert_int_equal(mha_model_edit_open(edit, &pruned, &err), MHA_OK);
        expect_same(folders[f], states(pruned, NULL), states(model, gates), info->hidden);
        mha_model_free(pruned);
        if (mha_model_edit_save(edit, out, f > 0, &err) != MHA_OK) fail_msg("%s: %s", folders[f], err.message);
        mha_model_edit_free(edit);
        pruned = case_open(NULL, out);
        expect_same(folders[f], states(pruned, NULL), states(model, gates), info->hidden);
        assert_true(mha_model_describe(pruned)->parameters < info->parameters);
        mha_model_free(pruned);
        save_pruned(model, keep, PRUNE(.compatible = 1), out);
        pruned = case_open(NULL, out);
        expect_same(folders[f], states(pruned, NULL), states(model, gates), info->hidden);
        assert_int_equal(mha_model_describe(pruned)->parameters, info->parameters);
        mha_model_free(pruned);
        mha_model_free(model);
    }
    files_remove(out);
    files_remove(folder);
}

static json_t *config_of(const mha_model *model)
{
    return json_loads(mha_model_config_json(model), 0, NULL);
}

/* Pruning in two steps must equal pruning once. Heads must keep their numbers in the original model. */
static void test_pruned_again(void **state)
{
    (void)state;
    static const uint8_t first[12] = {0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 1}, again[12] = {0, 1, 1, 0, 1, 1, 1, 1, 1, 0},
                         both[12] = {0, 0, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0};
    const char *folder = files_folder();
    char one[300], two[300], whole[300];
    snprintf(one, sizeof one, "%s/one", folder);
    snprintf(two, sizeof two, "%s/two", folder);
    snprintf(whole, sizeof whole, "%s/whole", folder);
    mha_model *model = case_open(NULL, "models/bert-tiny");
    save_pruned(model, first, NULL, one);
    mha_model *once = case_open(NULL, one);
    assert_int_equal(mha_head_number(once, 0, 0), 1);
    assert_int_equal(mha_head_number(once, 2, 1), 3);
    assert_int_equal(mha_head_number(once, 2, 2), -1);
    assert_int_equal(mha_head_place(once, 2, 3), 1);
    assert_int_equal(mha_head_place(once, 2, 2), -1);
    assert_int_equal(mha_head_place(once, 3, 0), -1);
    save_pruned(once, again, PRUNE(.chosen_by = "the test"), two);
    mha_model *twice = case_open(NULL, two);
    float gates[12];
    for (int i = 0; i < 12; i++)
        gates[i] = both[i];
    expect_same("twice", states(twice, NULL), states(model, gates), 48);
    json_t *config = config_of(twice), *lists = json_loads("[[2, 3], [0, 1, 2, 3], [1]]", 0, NULL);
    assert_true(json_equal(json_object_get(config, "mha.heads"), lists));
    json_t *record = json_object_get(config, "mha.record"), *last = json_array_get(record, 1);
    json_t *removed = json_loads("[[1], [], [3]]", 0, NULL);
    assert_int_equal(json_array_size(record), 2);
    assert_true(json_equal(json_object_get(last, "removed"), removed));
    assert_string_equal(json_string_value(json_object_get(last, "chosen_by")), "the test");
    size_t bytes = 0;
    char hex[65], *weights = files_read(files_path(one, "model.safetensors"), &bytes);
    sha256_hex(weights, bytes, hex);
    assert_string_equal(json_string_value(json_object_get(json_object_get(last, "from"), "model.safetensors")), hex);
    free(weights);
    /* with `compatible`, the saved model must have the original shapes, with zeros for the removed heads */
    save_pruned(twice, (uint8_t[12]){1, 1, 0, 0, 1, 1, 1, 1, 1}, PRUNE(.compatible = 1), whole);
    mha_model *zeroed = case_open(NULL, whole);
    assert_int_equal(mha_model_describe(zeroed)->parameters, mha_model_describe(model)->parameters);
    expect_same("zeroed", states(zeroed, NULL), states(model, gates), 48);
    json_decref(config);
    json_decref(lists);
    json_decref(removed);
    mha_model_free(zeroed);
    mha_model_free(twice);
    mha_model_free(once);
    mha_model_free(model);
    files_remove(one);
    files_remove(two);
    files_remove(whole);
    files_remove(folder);
}

static int64_t count_in(const json_t *config, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(config, key));
}

/* Selects the same number of heads to remove from every layer: the first group of even layers and the last group of odd
 * layers. */
static void alike(const mha_model *model, uint8_t *keep, float *gates)
{
    const mha_model_info *info = mha_model_describe(model);
    const int64_t group = group_of(model);
    for (int64_t n = 0; n < info->layers * info->heads; n++) {
        const int64_t layer = n / info->heads, h = n % info->heads;
        keep[n] = layer % 2 ? h < info->heads - group : h >= group;
        gates[n] = keep[n];
    }
}

/* If every layer loses the same number of heads, the config of the pruned model must use the standard keys of its
 * family, if they can express the head count. The original head numbers must be stored in any case. A second pruning
 * must be recorded relative to the original model. */
static void test_equal_head_counts(void **state)
{
    (void)state;
    const char *folder = files_folder();
    char out[300], whole[300];
    snprintf(out, sizeof out, "%s/out", folder);
    snprintf(whole, sizeof whole, "%s/whole", folder);
    for (int f = 0; f < FOLDERS; f++) {
        uint8_t keep[MAX];
        float gates[MAX];
        mha_model *model = case_open(NULL, folders[f]);
        const mha_model_info *info = mha_model_describe(model);
        const int64_t group = group_of(model), left = info->heads - group;
        const bool encoder = !info->causal, plain = !encoder && strcmp(info->family, "gpt2") != 0;
        alike(model, keep, gates);
        save_pruned(model, keep, NULL, out);
        mha_model *pruned = case_open(NULL, out);
        expect_same(folders[f], states(pruned, NULL), states(model, gates), info->hidden);
        json_t *config = config_of(pruned);
        assert_int_equal(count_in(config, "num_attention_heads"), plain ? left : encoder ? info->heads : 0);
        assert_int_equal(count_in(config, "num_key_value_heads"), plain ? left / group : 0);
        assert_int_equal(count_in(config, "mha.original_heads"), plain ? info->heads : 0);
        assert_int_equal(mha_model_describe(pruned)->heads, plain ? left : info->heads);
        assert_int_equal(mha_model_describe(pruned)->original_heads, info->heads);
        assert_int_equal(mha_head_number(pruned, 0, 0), group);
        assert_int_equal(mha_head_place(pruned, 0, info->heads - 1), left - 1);
        assert_int_equal(mha_head_place(pruned, 1, info->heads - 1), -1);
        json_decref(config);
        memset(keep, 1, sizeof keep);
        save_pruned(pruned, keep, PRUNE(.compatible = 1), whole);
        mha_model *zeroed = case_open(NULL, whole);
        expect_same(folders[f], states(zeroed, NULL), states(model, gates), info->hidden);
        assert_int_equal(mha_model_describe(zeroed)->heads, info->heads);
        assert_int_equal(mha_model_describe(zeroed)->parameters, info->parameters);
        mha_model_free(zeroed);
        mha_model_free(pruned);
        mha_model_free(model);
    }
    files_remove(out);
    files_remove(whole);
    files_remove(folder);
}

/* The record of a pruning must contain a digest of every shard of the original checkpoint. */
static void test_record_of_shards(void **state)
{
    (void)state;
    uint8_t keep[MAX];
    float gates[MAX];
    const char *folder = files_folder();
    char out[300];
    snprintf(out, sizeof out, "%s/out", folder);
    mha_model *model = case_open(NULL, "families/llama-sharded"), *pruned;
    mha_model_edit *edit;
    mha_error err = {0};
    some(model, keep, gates);
    assert_int_equal(mha_prune(model, keep, NULL, &edit, &err), MHA_OK);
    assert_int_equal(mha_model_edit_note(edit, "{\"cosine\": 0.5}", &err), MHA_OK);
    assert_int_equal(mha_model_edit_note(edit, "[1]", &err), MHA_ERR_FORMAT);
    assert_int_equal(mha_model_edit_save(edit, out, 0, &err), MHA_OK);
    pruned = case_open(NULL, out);
    json_t *config = config_of(pruned), *entry = json_array_get(json_object_get(config, "mha.record"), 0), *digest;
    const char *name;
    assert_true(json_object_size(json_object_get(entry, "from")) > 1);
    json_object_foreach(json_object_get(entry, "from"), name, digest)
    {
        size_t bytes = 0;
        char hex[65], path[400];
        snprintf(path, sizeof path, "%s/families/llama-sharded/%s", MHA_TEST_DATA, name);
        char *weights = files_read(path, &bytes);
        sha256_hex(weights, bytes, hex);
        assert_string_equal(json_string_value(digest), hex);
        free(weights);
    }
    assert_true(json_real_value(json_object_get(json_object_get(entry, "quality"), "cosine")) == 0.5);
    json_decref(config);
    mha_model_free(pruned);
    mha_model_edit_free(edit);
    mha_model_free(model);
    files_remove(out);
    files_remove(folder);
}

static void test_impossible_requests(void **state)
{
    (void)state;
    const uint8_t none[12] = {1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1},
                  part[16] = {1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    mha_model_edit *edit;
    mha_error err = {0};
    mha_model *bert = case_open(NULL, "models/bert-tiny"), *gemma = case_open(NULL, "models/gemma2-tiny");
    assert_int_equal(mha_prune(bert, none, NULL, &edit, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "layer 1"));
    assert_null(edit);
    assert_int_equal(mha_prune(gemma, part, NULL, &edit, &err), MHA_ERR_ARG);
    assert_string_equal(err.message,
                        "layer 0: heads 0, 1 must be kept or removed together, since they share keys or values");
    const uint8_t rest[16] = {0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    mha_model *fewer;
    assert_int_equal(mha_prune(gemma, rest, NULL, &edit, &err), MHA_OK);
    assert_int_equal(mha_model_edit_open(edit, &fewer, &err), MHA_OK);
    mha_model_edit *again;
    assert_int_equal(mha_prune(fewer, part, NULL, &again, &err), MHA_ERR_ARG);
    assert_string_equal(err.message,
                        "layer 0: heads 2, 3 must be kept or removed together, since they share keys or values");
    mha_model_free(fewer);
    mha_model_edit_free(edit);
    assert_int_equal(mha_prune(gemma, NULL, NULL, &edit, &err), MHA_ERR_ARG);
    assert_null(edit);
    mha_model_free(bert);
    mha_model_free(gemma);
}

/* With a budget of 0, 1, 2, ... allocations, each failed call must return MHA_ERR_MEMORY, free its memory and leave no
 * file. */
static void test_without_memory(void **state)
{
    (void)state;
    static const uint8_t keep[12] = {0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 1};
    counting count = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .allocator = counting_allocator(&count), .threads = 1};
    mha_ctx *ctx;
    const char *folder = files_folder();
    char out[300];
    snprintf(out, sizeof out, "%s/out", folder);
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = case_open(ctx, "models/bert-tiny");
    const long live = count.live;
    int failed = 0;
    count.budget = 0; /* mha_head_number and mha_head_place must not allocate */
    assert_int_equal(mha_head_number(model, 0, 1), 1);
    assert_int_equal(mha_head_place(model, 2, 3), 3);
    for (long budget = 0;; budget++) {
        mha_error err = {0};
        count.budget = count.calls + budget;
        mha_model_edit *edit = NULL;
        mha_status status = mha_prune(model, keep, NULL, &edit, &err);
        if (status == MHA_OK) status = mha_model_edit_save(edit, out, 0, &err);
        mha_model_edit_free(edit);
        count.budget = -1;
        assert_int_equal(count.live, live);
        if (status == MHA_OK) break;
        assert_int_equal(status, MHA_ERR_MEMORY);
        assert_int_equal(files_count(folder), 0);
        failed++;
    }
    assert_true(failed > 20);
    mha_model_free(model);
    mha_ctx_free(ctx);
    files_remove(out);
    files_remove(folder);
}

/* ---- selection of heads ---- */

#define RULE(...) (&(mha_prune_rule){.size = sizeof(mha_prune_rule), __VA_ARGS__})

static void expect_keep(const mha_model *model, const double *scores, const mha_prune_rule *rule, const char *want)
{
    uint8_t keep[MAX];
    char got[MAX + 1] = "";
    mha_error err = {0};
    const mha_model_info *info = mha_model_describe(model);
    if (mha_prune_choose(model, scores, rule, keep, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int64_t n = 0; n < info->layers * info->heads; n++)
        got[n] = keep[n] ? '1' : '0';
    got[info->layers * info->heads] = '\0';
    assert_string_equal(got, want);
}

static void test_choice(void **state)
{
    (void)state;
    static const double scores[12] = {5, 1, 1, 9, .1, .2, .3, .4, 7, 7, 7, 7};
    mha_model *model = case_open(NULL, "models/bert-tiny");
    /* per layer, ceil(4 * 0.3) = 2 heads are removed; of heads with equal scores, the head with the lower number is
     * kept */
    expect_keep(model, scores, RULE(.ratio = 0.3, .per_layer = 1), "100100111100");
    expect_keep(model, scores, RULE(.ratio = 0.25, .per_layer = 1), "110101111110");
    expect_keep(model, scores, RULE(.ratio = 1, .per_layer = 1), "000100011000");
    expect_keep(model, scores, RULE(.ratio = 1, .per_layer = 1, .floor = 3), "110101111110");
    expect_keep(model, scores, RULE(.ratio = 0), "111111111111");
    expect_keep(model, scores, RULE(.ratio = 0.25), "111100011111");
    expect_keep(model, scores, RULE(.count = 6), "000100011111"); /* layer 1 loses 3 heads, the maximum */
    /* for all 12 heads, 3.6 is rounded to 4, 3.48 to 3, 0.36 to 0, and 1.5 to 2 */
    expect_keep(model, scores, RULE(.ratio = 0.3), "110100011111");
    expect_keep(model, scores, RULE(.ratio = 0.29), "111100011111");
    expect_keep(model, scores, RULE(.ratio = 0.03), "111111111111");
    expect_keep(model, scores, RULE(.ratio = 0.125), "111100111111");
    expect_keep(model, scores, RULE(.count = 4), "110100011111");
    expect_keep(model, scores, RULE(.count = 1, .per_layer = 1), "110101111110");
    expect_keep(model, scores, RULE(.count = 9), "000100011000");
    expect_keep(model, scores, RULE(.ratio = 0.5, .floor = 2), "100100111100");
    mha_error err = {0};
    uint8_t keep[MAX];
    assert_int_equal(mha_prune_choose(model, scores, RULE(.count = 10), keep, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "count must be at most 9"));
    assert_int_equal(mha_prune_choose(model, scores, RULE(.ratio = 1.5), keep, &err), MHA_ERR_ARG);
    assert_int_equal(mha_prune_choose(model, scores, NULL, keep, &err), MHA_ERR_ARG);
    double odd[12] = {0};
    odd[6] = NAN;
    assert_int_equal(mha_prune_choose(model, odd, RULE(.count = 1), keep, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "head 1.2"));
    mha_model_free(model);
}

/* Two query heads that share a key/value head must be removed together, in the order of their mean score. */
static void test_choice_of_groups(void **state)
{
    (void)state;
    static const double scores[16] = {0, 9, 3, 3, 2, 2, 1, 9, 5, 5, 5, 5, 1, 1, 8, 8};
    mha_model *model = case_open(NULL, "models/gemma2-tiny");
    expect_keep(model, scores, RULE(.ratio = 0.01, .per_layer = 1), "1100001111000011");
    expect_keep(model, scores, RULE(.count = 1), "1111111111110011");
    expect_keep(model, scores, RULE(.count = 4), "1111001111110011");
    expect_keep(model, scores, RULE(.count = 5), "1100001111110011");
    /* 0.3 * 16 = 4.8 heads are rounded to 4, the nearest multiple of the group size */
    expect_keep(model, scores, RULE(.ratio = 0.3), "1111001111110011");
    expect_keep(model, scores, RULE(.ratio = 0.32), "1100001111110011");
    expect_keep(model, scores, RULE(.ratio = 0.05), "1111111111111111");
    mha_model_free(model);
}

/* In a layer that already has fewer heads, scores after its last head must not be read, and their keep flags must be
 * 0. */
static void test_choice_in_a_pruned_layer(void **state)
{
    (void)state;
    static const uint8_t first[12] = {0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 1};
    static const double scores[12] = {3, 2, 1, NAN, 4, 4, 4, 4, 1, 2, NAN, NAN};
    const char *folder = files_folder();
    char out[300];
    snprintf(out, sizeof out, "%s/out", folder);
    mha_model *model = case_open(NULL, "models/bert-tiny");
    save_pruned(model, first, NULL, out);
    mha_model *pruned = case_open(NULL, out);
    expect_keep(pruned, scores, RULE(.ratio = 0.3, .per_layer = 1), "110011000100");
    expect_keep(pruned, scores, RULE(.count = 2), "110011110100");
    mha_model_free(pruned);
    mha_model_free(model);
    files_remove(out);
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_removed_is_gated_off),
        cmocka_unit_test(test_pruned_again),
        cmocka_unit_test(test_equal_head_counts),
        cmocka_unit_test(test_record_of_shards),
        cmocka_unit_test(test_impossible_requests),
        cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_choice_of_groups),
        cmocka_unit_test(test_choice_in_a_pruned_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
