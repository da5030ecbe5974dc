/* test_model_golden.c - compares tiny checkpoints that have a config.json of transformers 4.x with the results of
 * transformers: every layer, every map, the logits and the score. verify/test_verify_models.sh compares the same
 * checkpoints with a config.json of transformers 5.x, and with the tensor names of old checkpoints. */
#include "mha/generate.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HIDDEN_LIMIT 1e-4
#define ATTN_LIMIT 2e-5

/* Compares the prompt of a golden file: hidden states, maps, pooler output. */
static void check_prompt(const mha_model *model, const mha_file *golden)
{
    int32_t *ids = case_ints(golden, "prompt/input_ids");
    float *hidden = case_floats(golden, "prompt/hidden"), *attn = case_floats(golden, "prompt/attn");
    const int has_pooler = mha_file_find(golden, "prompt/pooler") != NULL;
    const mha_model_input input = {
        .size = sizeof input, .batch = 1, .length = case_dimension(golden, "prompt/input_ids", 0), .ids = ids};
    case_run run;
    case_forward(model, &input, has_pooler, &run);
    assert_int_equal(case_dimension(golden, "prompt/hidden", 0), run.layers + 1);
    const double h = case_near("hidden", run.hidden, hidden, (run.layers + 1) * run.cells, HIDDEN_LIMIT);
    const double a = case_near("attention", run.attn, attn, run.layers * run.maps, ATTN_LIMIT);
    case_near("last_hidden", run.last_hidden, hidden + run.layers * run.cells, run.cells, HIDDEN_LIMIT);
    if (has_pooler) {
        float *pooled = case_floats(golden, "prompt/pooler");
        case_near("pooler", run.pooled, pooled, mha_model_describe(model)->hidden, HIDDEN_LIMIT);
        free(pooled);
    }
    print_message("hidden within %.2g, attention within %.2g\n", h, a);
    case_run_free(&run);
    free(ids);
    free(hidden);
    free(attn);
}

/* Compares the padded batch, except for padding rows. */
static void check_padded(const mha_model *model, const mha_file *golden)
{
    if (!mha_file_find(golden, "pad/last_hidden_state")) return;
    const int64_t B = case_dimension(golden, "pad/input_ids", 0), L = case_dimension(golden, "pad/input_ids", 1);
    const int64_t E = mha_model_describe(model)->hidden;
    int32_t *ids = case_ints(golden, "pad/input_ids"), *types = case_ints(golden, "pad/token_type_ids");
    int32_t *ones = case_ints(golden, "pad/attention_mask"), padding = 0;
    float *want = case_floats(golden, "pad/last_hidden_state");
    uint8_t *mask = malloc((size_t)(B * L));
    for (int64_t i = 0; i < B * L; i++)
        mask[i] = ones[i] != 0;
    const mha_model_input input = {
        .size = sizeof input, .batch = B, .length = L, .ids = ids, .type_ids = types, .mask = mask};
    case_run run;
    case_forward(model, &input, 0, &run);
    for (int64_t i = 0; i < B * L; i++)
        if (mask[i])
            case_near("padded", run.last_hidden + i * E, want + i * E, E, HIDDEN_LIMIT);
        else
            padding++;
    assert_true(padding > 0);
    case_run_free(&run);
    free(ids);
    free(types);
    free(ones);
    free(want);
    free(mask);
}

/* The score must equal the next-token probabilities computed from the recorded logits. */
static void check_score(const mha_model *model, const int32_t *ids, int64_t L, const float *logits, int64_t V)
{
    float *logprob = malloc((size_t)L * sizeof *logprob);
    mha_error err;
    if (mha_model_score(model, ids, L, logprob, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int64_t i = 0; i + 1 < L; i++) {
        double sum = 0;
        for (int64_t v = 0; v < V; v++)
            sum += exp((double)logits[i * V + v]);
        assert_true(fabs((double)logprob[i] - ((double)logits[i * V + ids[i + 1]] - log(sum))) < 1e-4);
    }
    free(logprob);
}

/* Compares the logits of the prompt. If only the last real token is requested, its logits must be bitwise identical. */
static void check_logits(const mha_model *model, const mha_file *golden)
{
    if (!mha_file_find(golden, "prompt/logits")) return;
    const int64_t L = case_dimension(golden, "prompt/input_ids", 0), V = mha_model_describe(model)->vocab;
    int32_t *ids = case_ints(golden, "prompt/input_ids");
    float *want = case_floats(golden, "prompt/logits"), *got = malloc((size_t)(L * V) * sizeof *got);
    float *last = malloc((size_t)V * sizeof *last);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
    const mha_model_output output = {.size = sizeof output, .logits = got, .last_logits = last};
    assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
    print_message("logits within %.2g\n", case_near("logits", got, want, L * V, HIDDEN_LIMIT));
    assert_memory_equal(last, got + (L - 1) * V, (size_t)V * sizeof *last);
    if (mha_model_describe(model)->causal) check_score(model, ids, L, want, V);
    free(ids);
    free(want);
    free(got);
    free(last);
}

static void check_folder(const char *folder, const char *golden_name)
{
    mha_model *model = case_open(NULL, folder);
    mha_file *golden = case_file(golden_name);
    check_prompt(model, golden);
    check_logits(model, golden);
    check_padded(model, golden);
    mha_file_free(golden);
    mha_model_free(model);
}

/* Compares the same weights with a config.json of transformers 4.x. */
static void check_old_config(const char *folder, const char *golden_name)
{
    char name[200];
    size_t n = 0;
    const char *copy = case_copy(folder);
    snprintf(name, sizeof name, "%s/%s/v4/config.json", MHA_TEST_DATA, folder);
    char *config = files_read(name, &n);
    assert_non_null(config);
    files_write(files_path(copy, "config.json"), config, n);
    free(config);
    check_folder(copy, golden_name);
    files_remove(copy);
}

static void test_bert_tiny(void **state)
{
    (void)state;
    check_old_config("models/bert-tiny", "models/bert-tiny.safetensors");
}

static void test_bert_mlm_tiny(void **state)
{
    (void)state;
    check_old_config("models/bert-mlm-tiny", "models/bert-mlm-tiny.safetensors");
}

/* Tests Conv1D weights, learned position embeddings, and one matrix for q, k and v. */
static void test_gpt2_tiny(void **state)
{
    (void)state;
    check_old_config("models/gpt2-tiny", "models/gpt2-tiny.safetensors");
}

/* Tests RMSNorm, rotary position embeddings, SwiGLU, grouped-query attention, windows in every second layer, softcaps,
 * and four norms per layer. */
static void test_gemma2_tiny(void **state)
{
    (void)state;
    check_old_config("models/gemma2-tiny", "models/gemma2-tiny.safetensors");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bert_tiny),
        cmocka_unit_test(test_bert_mlm_tiny),
        cmocka_unit_test(test_gpt2_tiny),
        cmocka_unit_test(test_gemma2_tiny),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
