/* test_base_default.c - an invalid MHA_ISA prevents the creation of the default context. Functions that require one
 * must report the invalid variable, not a lack of memory. */
#include "mha/mha.h"
#include "support/check.h"
#include <stdlib.h>
#include <string.h>

#define MODELS MHA_TEST_DATA "/models/gpt2-tiny"

static mha_error err;
static float x[64];

static void want(const char *name, mha_status status)
{
    if (status != MHA_ERR_ARG || !strstr(err.message, "(got \"bogus\", which is unknown)"))
        fail_msg("%s: %s: %s", name, mha_status_text(status), err.message);
    err = (mha_error){0};
}

static void test_files(void **state)
{
    (void)state;
    mha_file *file = NULL;
    mha_model *model = NULL;
    mha_tokenizer *tokenizer = NULL;
    mha_tensors_writer *writer = NULL;
    mha_tokenizer_trainer *words = NULL;
    const int64_t shape[] = {4};
    const mha_named_tensor named = {.name = "x", .dtype = MHA_F32, .rank = 1, .shape = {4}, .data = x};
    const mha_tensor tensor = {.name = "x", .dtype = MHA_F32, .rank = 1, .shape = shape, .data = x, .bytes = 16};
    const mha_model_create_options create = {.size = sizeof create};
    const mha_tokenizer_train_options train = {.size = sizeof train, .vocab_size = 300};
    want("file", mha_file_open(NULL, MODELS "/model.safetensors", NULL, &file, &err));
    want("checkpoint", mha_checkpoint_open(NULL, MODELS, NULL, &file, &err));
    want("tokenizer", mha_tokenizer_open(NULL, MODELS, &tokenizer, &err));
    want("tokenizer trainer", mha_tokenizer_trainer_create(NULL, &train, &words, &err));
    want("model", mha_model_open(NULL, MODELS, NULL, &model, &err));
    want("new model", mha_model_create(NULL, "{\"model_type\":\"gpt2\",\"n_embd\":8,\"n_head\":2,\"n_layer\":1}",
                                       &create, &model, &err));
    want("writer", mha_tensors_writer_create(NULL, "/dev/null", &tensor, 1, NULL, &writer, &err));
    want("tensors", mha_tensors_write(NULL, "/dev/null", &named, 1, 1, &err));
}

/* Checks that creating a layer of type `kind` with the given options fails with the error that `want` requires. */
#define VARIANT(kind, ...)                                              \
    do {                                                                \
        const mha_##kind##_options o = {.size = sizeof o, __VA_ARGS__}; \
        mha_variant *layer = NULL;                                      \
        want(#kind, mha_##kind##_create(NULL, &o, &layer, &err));       \
    } while (0)

static void test_layers(void **state)
{
    (void)state;
    mha_linear *linear = NULL;
    mha_trace *trace = NULL;
    const mha_matrix part = {.weight = x, .out = 4};
    const int64_t options[] = {1, 2};
    want("linear", mha_linear_create(NULL, 4, 4, x, NULL, &linear, &err));
    want("stack", mha_linear_create_stack(NULL, 4, &part, 1, MHA_ACT_NONE, &linear, &err));
    want("trace", mha_trace_create(NULL, &trace, &err));
    VARIANT(self_attention, .d_in = 4, .d_out = 4);
    VARIANT(causal_attention, .d_in = 4, .d_out = 4);
    VARIANT(stacked_heads, .d_in = 4, .d_out = 4, .num_heads = 2);
    VARIANT(weight_split, .d_in = 4, .d_out = 4, .num_heads = 2);
    VARIANT(qkv_attention, .input_dim = 4, .output_dim = 4, .num_heads = 2);
    VARIANT(standard_mha, .d_model = 4, .num_heads = 2);
    VARIANT(grouped_query, .d_model = 4, .num_heads = 2);
    VARIANT(llama_attention, .hidden_size = 4, .num_heads = 2);
    VARIANT(moe_heads, .d_model = 4, .num_heads = 2);
    VARIANT(head_pruning, .d_model = 4, .num_heads = 2, .prune_ratio = 0.5);
    VARIANT(adaptive_heads, .d_model = 4, .head_options = options, .head_option_count = 2);
}

static void test_operator(void **state)
{
    (void)state;
    const mha_attn_desc d = {.size = sizeof d, .batch = 1, .heads = 1, .q_len = 1, .kv_len = 1, .head_dim = 4};
    const mha_attn_args a = {.size = sizeof a};
    const mha_cache_desc c = {.size = sizeof c, .batch = 1, .kv_heads = 1, .head_dim = 4};
    const mha_attn_merge_args m = {.size = sizeof m, .batch = 1, .heads = 1, .v_head_dim = 4};
    mha_attn_plan *plan = NULL;
    mha_cache *cache = NULL;
    double limit;
    want("attention", mha_attention(NULL, &d, &a, &err));
    want("plan", mha_attn_plan_create(NULL, &d, &plan, &err));
    want("cache", mha_cache_create(NULL, &c, &cache, &err));
    want("merge", mha_attn_merge(NULL, &m, &err));
    want("limit", mha_machine_peak_fma(NULL, &limit, &err));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_operator), cmocka_unit_test(test_layers),
                                              cmocka_unit_test(test_files)};
    setenv("MHA_ISA", "bogus", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
