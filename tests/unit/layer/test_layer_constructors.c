/* test_layer_constructors.c - for invalid options, each constructor of an attention layer must return an error that
 * names the field and its value. test_layer_refusals.c tests invalid calls of the layers. */
#include "mha/mha.h"
#include "support/check.h"

static mha_error err;

static void says(mha_status status, mha_variant *layer, const char *sentence)
{
    assert_int_equal(status, MHA_ERR_ARG);
    assert_null(layer);
    assert_string_equal(err.message, sentence);
}

#define REFUSED(create, type, sentence, ...)                      \
    do {                                                          \
        mha_variant *layer = (mha_variant *)&err;                 \
        const type o = {.size = sizeof o, __VA_ARGS__};           \
        const mha_status status = create(NULL, &o, &layer, &err); \
        says(status, layer, sentence);                            \
    } while (0)

static void test_sizes(void **state)
{
    (void)state;
    REFUSED(mha_self_attention_create, mha_self_attention_options,
            "self-attention: d_in must be from 1 to 16777216 (got 0)", .d_out = 4);
    REFUSED(mha_self_attention_create, mha_self_attention_options,
            "self-attention: d_out must be from 1 to 16777216 (got -1)", .d_in = 4, .d_out = -1);
    REFUSED(mha_self_attention_create, mha_self_attention_options,
            "self-attention: qkv_bias must be 0 with plain_matrices", .d_in = 4, .d_out = 4, .qkv_bias = 1,
            .plain_matrices = 1);
    REFUSED(mha_self_attention_create, mha_self_attention_options,
            "self-attention: dtype must be one of f32, f64 (got bf16)", .d_in = 4, .d_out = 4, .dtype = MHA_BF16);
    REFUSED(mha_causal_attention_create, mha_causal_attention_options,
            "causal attention: context_length must be at least 0 (got -2)", .d_in = 4, .d_out = 4,
            .context_length = -2);
    REFUSED(mha_causal_attention_create, mha_causal_attention_options,
            "causal attention: dropout must be from 0 to 1 (got 1.5)", .d_in = 4, .d_out = 4, .dropout = 1.5);
}

static void test_no_options(void **state)
{
    (void)state;
    mha_variant *layer = (mha_variant *)&err;
    mha_status status = mha_self_attention_create(NULL, NULL, &layer, &err);
    says(status, layer, "mha_self_attention_options must not be NULL");
    layer = (mha_variant *)&err;
    status = mha_adaptive_heads_create(NULL, NULL, &layer, &err);
    says(status, layer, "mha_adaptive_heads_options must not be NULL");
    const mha_standard_mha_options o = {.size = sizeof o, .d_model = 8, .num_heads = 2};
    says(mha_standard_mha_create(NULL, &o, NULL, &err), NULL, "attention layer: the output pointer must not be NULL");
}

static void test_heads_that_do_not_divide(void **state)
{
    (void)state;
    REFUSED(mha_stacked_heads_create, mha_stacked_heads_options,
            "stacked heads: num_heads must divide d_out = 6 (got 4)", .d_in = 3, .d_out = 6, .num_heads = 4);
    REFUSED(mha_weight_split_create, mha_weight_split_options,
            "weight-split attention: num_heads must be from 1 to 65536 (got 0)", .d_in = 3, .d_out = 6);
    REFUSED(mha_qkv_attention_create, mha_qkv_attention_options,
            "q/k/v attention: num_heads must divide output_dim = 8 (got 3)", .input_dim = 6, .output_dim = 8,
            .num_heads = 3);
    REFUSED(mha_standard_mha_create, mha_standard_mha_options,
            "multi-head attention: num_heads must divide d_model = 10 (got 4)", .d_model = 10, .num_heads = 4);
    REFUSED(mha_grouped_query_create, mha_grouped_query_options,
            "grouped-query attention: num_kv_heads must divide num_heads = 4 (got 3)", .d_model = 8, .num_heads = 4,
            .num_kv_heads = 3);
    REFUSED(mha_grouped_query_create, mha_grouped_query_options,
            "grouped-query attention: kv_groups must divide num_heads = 4 (got 3)", .d_model = 8, .num_heads = 4,
            .kv_groups = 3);
    REFUSED(mha_grouped_query_create, mha_grouped_query_options,
            "grouped-query attention: kv_groups must be 0 with num_kv_heads", .d_model = 8, .num_heads = 4,
            .kv_groups = 2, .num_kv_heads = 2);
    REFUSED(mha_llama_attention_create, mha_llama_attention_options,
            "LLaMA attention: num_heads must divide hidden_size = 8 (got 3)", .hidden_size = 8, .num_heads = 3);
    REFUSED(mha_llama_attention_create, mha_llama_attention_options,
            "LLaMA attention: num_kv_heads must divide num_heads = 4 (got 3)", .hidden_size = 8, .num_heads = 4,
            .num_kv_heads = 3);
    REFUSED(mha_llama_attention_create, mha_llama_attention_options,
            "LLaMA attention: mha_rope_options: rotary_dim must be even and from 2 to 4 (got 3)", .hidden_size = 8,
            .num_heads = 2, .rotary = 1, .rope.rotary_dim = 3);
    REFUSED(mha_llama_attention_create, mha_llama_attention_options,
            "LLaMA attention: head_dim must be even with rotary (got 3)", .hidden_size = 6, .num_heads = 2,
            .rotary = 1);
    REFUSED(mha_llama_attention_create, mha_llama_attention_options,
            "LLaMA attention: rope must be NULL without rotary", .hidden_size = 8, .num_heads = 2,
            .rope.theta = 500000);
}

static void test_choices(void **state)
{
    (void)state;
    REFUSED(mha_moe_heads_create, mha_moe_heads_options, "MoE heads: num_experts must be from 1 to 4096 (got 5000)",
            .d_model = 8, .num_heads = 4, .num_experts = 5000);
    REFUSED(mha_moe_heads_create, mha_moe_heads_options, "MoE heads: top_k must be from 1 to num_experts = 4 (got 5)",
            .d_model = 8, .num_heads = 4, .top_k = 5);
    REFUSED(mha_moe_heads_create, mha_moe_heads_options,
            "MoE heads: num_experts must equal num_heads (4) if expert_output is slot (got 6)", .d_model = 8,
            .num_heads = 4, .num_experts = 6, .expert_output = MHA_EXPERT_SLOT);
    REFUSED(mha_moe_heads_create, mha_moe_heads_options,
            "MoE heads: num_heads must be 1 if expert_output is plain (got 4)", .d_model = 8, .num_heads = 4,
            .expert_output = MHA_EXPERT_PLAIN);
    REFUSED(mha_head_pruning_create, mha_head_pruning_options,
            "head pruning: prune_ratio must be from 0 to 1 (got 1.1)", .d_model = 8, .num_heads = 4,
            .prune_ratio = 1.1);
    REFUSED(mha_head_pruning_create, mha_head_pruning_options,
            "head pruning: selection must be a value of mha_selection (got 7)", .d_model = 8, .num_heads = 4,
            .selection = (mha_selection)7);
    const int64_t options[] = {4, 3};
    REFUSED(mha_adaptive_heads_create, mha_adaptive_heads_options,
            "adaptive heads: head_options[1] must divide d_model = 8 (got 3)", .d_model = 8, .head_options = options,
            .head_option_count = 2);
    REFUSED(mha_adaptive_heads_create, mha_adaptive_heads_options,
            "adaptive heads: head_option_count must be from 1 to 16 (got 0)", .d_model = 8, .head_options = options);
    REFUSED(mha_adaptive_heads_create, mha_adaptive_heads_options, "adaptive heads: head_options must not be NULL",
            .d_model = 8, .head_option_count = 2);
}

/* The default of top_k must be 2, or 1 if there is only one expert. */
static void test_one_expert(void **state)
{
    (void)state;
    mha_variant *layer = NULL;
    const mha_moe_heads_options o = {.size = sizeof o, .d_model = 8, .num_heads = 1};
    assert_int_equal(mha_moe_heads_create(NULL, &o, &layer, &err), MHA_OK);
    mha_variant_free(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_options),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_heads_that_do_not_divide),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_one_expert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
