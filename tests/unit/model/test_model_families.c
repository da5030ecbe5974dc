/* test_model_families.c - tests further model families: positions, discriminators, pruning, saving, shared layers, new
 * models and failed allocations. tests/golden/verify/test_verify_models.sh compares recorded results;
 * test_model_grads.c tests gradients of single config options. */
#include "mha/circuits.h"
#include "mha/model_create.h"
#include "mha/model_grads.h"
#include "mha/model_save.h"
#include "mha/prune.h"
#include "mha/regroup.h"
#include "mha/seq2seq.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { L = 9 };
static const int32_t ids[L] = {5, 61, 17, 30, 9, 44, 25, 60, 12};

/* ---- position embeddings ---- */

/* In RoBERTa and OPT, positions begin after two reserved embedding rows. A model with 66 rows must accept 64 tokens,
 * but not 65. */
static void test_max_tokens(void **state)
{
    (void)state;
    static const char *const folders[] = {"families2/roberta", "families2/opt"};
    static const int64_t max = 64;
    int32_t many[65];
    for (int i = 0; i < 65; i++)
        many[i] = 4 + i % 60;
    for (int f = 0; f < 2; f++) {
        mha_model *model = case_open(NULL, folders[f]);
        assert_int_equal(mha_model_describe(model)->max_positions, max);
        free(case_logits(model, many, max, NULL));
        const mha_model_input longer = {.size = sizeof longer, .batch = 1, .length = max + 1, .ids = many};
        mha_error err = {0};
        assert_int_equal(mha_model_forward(model, &longer, NULL, &err), MHA_ERR_ARG);
        assert_non_null(strstr(err.message, "length must be from 1 to 64 (got 65)"));
        mha_model_free(model);
    }
}

/* Fails unless position_table tells whether the model rejects more than max_positions tokens. Returns it. */
static int check_position_table(const mha_model *model, const char *folder)
{
    const mha_model_info *info = mha_model_describe(model);
    const int64_t length = info->max_positions + 1;
    int32_t *many = calloc((size_t)length, sizeof *many);
    char sentence[128];
    mha_error err = {0};
    assert_non_null(many);
    const mha_model_input longer = {.size = sizeof longer, .batch = 1, .length = length, .ids = many};
    snprintf(sentence, sizeof sentence, "length must be from 1 to %lld (got %lld)", (long long)info->max_positions,
             (long long)length);
    const mha_status status = mha_model_forward(model, &longer, NULL, &err);
    const bool rejected = status == MHA_ERR_ARG && strstr(err.message, sentence);
    if (rejected != info->position_table || (!rejected && status != MHA_OK && !info->encoder_decoder))
        fail_msg("%s: position_table must tell whether a long text is rejected (got %d, %s)", folder,
                 info->position_table, err.message);
    free(many);
    return info->position_table;
}

/* All recorded models. Whisper's encoder reads features, whose number is fixed. */
static void test_position_tables(void **state)
{
    (void)state;
    static const char *const folders[] = {"models", "families", "families2", "seq2seq"};
    int models = 0, tables = 0;
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", MHA_TEST_DATA, folders[f]);
        DIR *entries = opendir(path);
        assert_non_null(entries);
        for (const struct dirent *e = readdir(entries); e; e = readdir(entries)) {
            if (strchr(e->d_name, '.')) continue; /* a file */
            snprintf(path, sizeof path, "%s/%s", folders[f], e->d_name);
            mha_model *model = case_open(NULL, path);
            const mha_model *encoder = mha_model_encoder(model);
            tables += check_position_table(model, path);
            if (encoder && !mha_model_describe(encoder)->feature_bins) check_position_table(encoder, path);
            mha_model_free(model);
            models++;
        }
        closedir(entries);
    }
    assert_true(models >= 59 && tables >= 20);
}

/* ---- discriminators ---- */

/* A discriminator must have one logit per token, also after removing heads and saving, and must be refused where logits
 * of tokens are required. */
static void test_discriminator(void **state)
{
    (void)state;
    mha_model *model = case_open(NULL, "families2/electra-discriminator"), *less = NULL;
    const mha_model_info *info = mha_model_describe(model);
    float logits[2][L + 1] = {{[L] = 7}, {[L] = 7}};
    uint8_t keep[8] = {0, 1, 1, 1, 1, 1, 1, 1};
    float gates[8] = {0, 1, 1, 1, 1, 1, 1, 1};
    mha_model_edit *edit = NULL;
    mha_prompt_pair *pair = NULL;
    mha_error err = {0};
    assert_int_equal(info->logits, 0);
    assert_int_equal(info->logit_width, 1);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids, .gates = gates};
    assert_int_equal(
        mha_model_forward(model, &input, &(mha_model_output){sizeof(mha_model_output), .logits = logits[0]}, &err),
        MHA_OK);
    if (mha_prune(model, keep, NULL, &edit, &err) != MHA_OK || mha_model_edit_open(edit, &less, &err) != MHA_OK)
        fail_msg("%s", err.message);
    const char *saved = files_folder();
    assert_int_equal(
        mha_model_save(less, saved, &(mha_model_save_options){.size = sizeof(mha_model_save_options)}, &err), MHA_OK);
    mha_model *again = case_open(NULL, saved);
    const mha_model_input plain = {.size = sizeof plain, .batch = 1, .length = L, .ids = ids};
    assert_int_equal(
        mha_model_forward(again, &plain, &(mha_model_output){sizeof(mha_model_output), .logits = logits[1]}, &err),
        MHA_OK);
    case_near("discriminator", logits[0], logits[1], L + 1, 1e-5);
    const mha_prompt_pair_options o = {.size = sizeof o, .clean = ids, .corrupted = ids, .length = L};
    assert_int_equal(mha_prompt_pair_create(model, &o, &pair, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "model must have logits of tokens (got the discriminator of electra"));
    mha_model_free(again);
    mha_model_free(less);
    mha_model_edit_free(edit);
    mha_model_free(model);
    files_remove(saved);
}

/* ---- removed heads ---- */

/* A model with removed heads must give the results of the complete model with gates of 0, in memory and after
 * saving. */
static void check_pruned(const char *folder)
{
    enum { MAX = 64 };
    mha_model *whole = case_open(NULL, folder), *less = NULL;
    const mha_model_info *info = mha_model_describe(whole);
    const int64_t cells = info->layers * info->heads, group = info->heads / info->kv_heads;
    uint8_t keep[MAX];
    float gates[MAX];
    mha_model_edit *edit = NULL;
    mha_error err = {0};
    assert_true(cells <= MAX && info->heads > group);
    memset(keep, 1, sizeof keep);
    memset(keep + group, 0, (size_t)group);
    for (int64_t n = 0; n < cells; n++)
        gates[n] = keep[n];
    if (mha_prune(whole, keep, NULL, &edit, &err) != MHA_OK || mha_model_edit_open(edit, &less, &err) != MHA_OK)
        fail_msg("%s: %s", folder, err.message);
    float *want = case_logits(whole, ids, L, gates), *got = case_logits(less, ids, L, NULL);
    case_near(folder, got, want, L * info->vocab, 1e-4);
    const char *saved = files_folder();
    if (mha_model_save(less, saved, &(mha_model_save_options){.size = sizeof(mha_model_save_options)}, &err) != MHA_OK)
        fail_msg("%s: %s", folder, err.message);
    mha_model *again = case_open(NULL, saved);
    float *reopened = case_logits(again, ids, L, NULL);
    assert_memory_equal(got, reopened, (size_t)(L * info->vocab) * sizeof *got);
    free(want);
    free(got);
    free(reopened);
    mha_model_free(again);
    mha_model_free(less);
    mha_model_edit_free(edit);
    mha_model_free(whole);
    files_remove(saved);
}

static void test_pruned(void **state)
{
    (void)state;
    static const char *const folders[] = {"families2/roberta",
                                          "families2/xlm-roberta",
                                          "families2/distilbert",
                                          "families2/electra",
                                          "families2/mixtral",
                                          "families2/qwen2-moe",
                                          "families2/qwen3-moe",
                                          "families2/nomic-bert",
                                          "families2/gemma",
                                          "families2/gemma3",
                                          "families2/phi",
                                          "families2/phi3",
                                          "families2/opt",
                                          "families2/opt-post",
                                          "families2/opt-mapped",
                                          "families2/gpt-neox",
                                          "families2/gpt-neox-parallel",
                                          "families2/granite",
                                          "families2/smollm3",
                                          "families2/cohere",
                                          "families2/bloom",
                                          "families2/modernbert",
                                          "families2/gpt-oss",
                                          "families2/deberta-v2",
                                          "families2/deberta-v3",
                                          "families2/deberta-v2-convolution",
                                          "families2/deepseek-v3",
                                          "families2/deepseek-v3-plain"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++)
        check_pruned(folders[f]);
}

static void test_refused_edits(void **state)
{
    (void)state;
    uint8_t keep[8] = {0, 0, 1, 1, 1, 1, 1, 1};
    mha_model *norms = case_open(NULL, "families2/olmo2"), *rows = case_open(NULL, "families2/gpt-neox");
    mha_model_edit *edit = NULL;
    mha_error err = {0};
    const mha_regroup_options fewer = {
        .size = sizeof fewer, .method = MHA_REGROUP_MEAN, .key_heads = 2, .value_heads = 2};
    const mha_regroup_options one = {.size = sizeof one, .method = MHA_REGROUP_MEAN, .key_heads = 1, .value_heads = 1};
    assert_int_equal(mha_prune(norms, keep, NULL, &edit, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(err.message, "heads of olmo2 must not be removed or regrouped, since a norm covers all heads"));
    assert_int_equal(mha_regroup(rows, &fewer, &edit, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "key and value heads of gpt_neox must not be regrouped"));
    mha_model *shared = case_open(NULL, "families2/albert");
    uint8_t few[16] = {0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1};
    assert_int_equal(mha_prune(shared, few, NULL, &edit, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "heads of albert must not be removed or regrouped, since layers share"));
    assert_int_equal(mha_regroup(shared, &fewer, &edit, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "heads of albert must not be removed or regrouped, since layers share"));
    mha_model *sinks = case_open(NULL, "families2/gpt-oss");
    assert_int_equal(mha_regroup(sinks, &one, &edit, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "key and value heads of gpt_oss must not be regrouped, since each query head"));
    mha_model_free(sinks);
    mha_model *distances = case_open(NULL, "families2/deberta-v3"), *latent = case_open(NULL, "families2/deepseek-v3");
    assert_int_equal(mha_regroup(distances, &one, &edit, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "since each head has relative positions of its own"));
    assert_int_equal(mha_regroup(latent, &one, &edit, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "since each head has keys and values of its own"));
    mha_model_free(distances);
    mha_model_free(latent);
    mha_model_free(shared);
    mha_model_free(norms);
    mha_model_free(rows);
}

/* ---- layers that share their tensors ---- */

/* Layers that share their tensors must be counted, listed and saved once, and the saved model must give the same
 * logits. */
static void test_shared_layers(void **state)
{
    (void)state;
    mha_model *model = case_open(NULL, "families2/albert");
    const mha_model_info *info = mha_model_describe(model);
    mha_model_grads *grads = NULL;
    mha_error err = {0};
    int64_t count = 0, elements = 0;
    assert_int_equal(info->layers, 4);
    if (mha_model_grads_create(model, NULL, &grads, &err) != MHA_OK) fail_msg("%s", err.message);
    const mha_named_tensor *list = mha_model_grads_list(grads, &count);
    for (int64_t n = 0; n < count; n++)
        elements += case_elements(&list[n]);
    assert_int_equal(count, 12 + 2 * 16); /* 12 tensors outside the layers, and 16 tensors per group */
    assert_int_equal(elements, info->parameters);
    mha_model_grads_free(grads);
    const char *saved = files_folder();
    if (mha_model_save(model, saved, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_model *again = case_open(NULL, saved);
    float *want = case_logits(model, ids, L, NULL), *got = case_logits(again, ids, L, NULL);
    assert_memory_equal(want, got, (size_t)(L * info->vocab) * sizeof *got);
    free(want);
    free(got);
    mha_model_free(again);
    mha_model_free(model);
    files_remove(saved);
}

/* ---- new models ---- */

/* The loss of a new model must be near that of random guessing, since its norms have gains of 1. */
static void check_created(const char *folder)
{
    const mha_model_create_options o = {.size = sizeof o, .seed = 3};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
    const mha_model_loss_args args = {.size = sizeof args, .labels = ids};
    mha_model *like = case_open(NULL, folder), *model = NULL;
    mha_model_grads *grads = NULL;
    mha_error err = {0};
    double loss = 0;
    if (mha_model_create(NULL, mha_model_config_json(like), &o, &model, &err) != MHA_OK ||
        mha_model_grads_create(model, NULL, &grads, &err) != MHA_OK ||
        mha_model_grads_loss(grads, &input, &args, &loss, NULL, &err) != MHA_OK)
        fail_msg("%s: %s", folder, err.message);
    if (!(fabs(loss - log((double)mha_model_describe(model)->vocab)) < 0.1))
        fail_msg("%s: loss must be near that of random guessing (got %g)", folder, loss);
    mha_model_grads_free(grads);
    mha_model_free(model);
    mha_model_free(like);
}

static void test_created(void **state)
{
    (void)state;
    static const char *const folders[] = {"families2/roberta",     "families2/xlm-roberta",
                                          "families2/distilbert",  "families2/nomic-bert",
                                          "families2/gemma3",      "families2/phi",
                                          "families2/phi3",        "families2/gpt-neox",
                                          "families2/opt",         "families2/opt-post",
                                          "families2/olmo2",       "families2/granite",
                                          "families2/smollm3",     "families2/cohere",
                                          "families2/bloom",       "families2/modernbert",
                                          "families2/mpnet",       "families2/electra",
                                          "families2/albert",      "families2/mixtral",
                                          "families2/qwen2-moe",   "families2/qwen3-moe",
                                          "families2/gpt-oss",     "families2/deberta-v2",
                                          "families2/deepseek-v3", "families2/deberta-v2-convolution"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++)
        check_created(folders[f]);
}

/* ---- failed allocations ---- */

/* With a budget of 0, 1, 2, ... allocations, opening a model or computing its gradients must return MHA_ERR_MEMORY
 * until both succeed, and must free all memory. */
static void check_memory(const char *folder)
{
    const char *copy = case_copy(folder);
    counting memory = {.budget = -1};
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
    const mha_model_loss_args args = {.size = sizeof args, .labels = ids};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    const long live = memory.live;
    mha_status status = MHA_ERR_MEMORY;
    long n = 0;
    for (; status != MHA_OK; n++) {
        mha_model *model = NULL;
        mha_model_grads *grads = NULL;
        memory.budget = memory.calls + n;
        status = mha_model_open(ctx, copy, &o, &model, NULL);
        if (status == MHA_OK) status = mha_model_grads_create(model, NULL, &grads, NULL);
        if (status == MHA_OK) status = mha_model_grads_loss(grads, &input, &args, NULL, NULL, NULL);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        memory.budget = -1;
        mha_model_grads_free(grads);
        mha_model_free(model);
        assert_int_equal(memory.live, live);
    }
    assert_true(n > 40);
    files_remove(copy);
    mha_ctx_free(ctx);
    assert_int_equal(memory.live, 0);
}

static void test_no_memory(void **state)
{
    (void)state;
    check_memory("families2/gpt-neox-parallel");
    check_memory("families2/phi3");
    check_memory("families2/modernbert");
    check_memory("families2/cohere");
    check_memory("families2/mpnet");
    check_memory("families2/albert");
    check_memory("families2/qwen2-moe");
    check_memory("families2/deberta-v2-convolution");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_max_tokens),    cmocka_unit_test(test_discriminator),   cmocka_unit_test(test_pruned),
        cmocka_unit_test(test_refused_edits), cmocka_unit_test(test_created),         cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_shared_layers), cmocka_unit_test(test_position_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
