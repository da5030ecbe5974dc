/* test_layer_parameters.c - the parameter count of each layer must equal the count on its page in docs/layers and the
 * total size of its tensors. */
#include "mha/mha.h"
#include "support/check.h"

static mha_error err;

static int64_t held(const mha_variant *layer)
{
    int64_t count, sum = 0;
    const mha_named_tensor *list = mha_variant_parameters(layer, &count);
    for (int64_t n = 0; n < count; n++)
        sum += list[n].shape[0] * (list[n].rank == 2 ? list[n].shape[1] : 1);
    return sum;
}

/* COUNTED(kind, count, options...): fails unless a layer of type `kind` with these options has `count` parameters. */
#define COUNTED(kind, numbers, ...)                                               \
    do {                                                                          \
        mha_variant *layer = NULL;                                                \
        const mha_##kind##_options o = {.size = sizeof o, __VA_ARGS__};           \
        assert_int_equal(mha_##kind##_create(NULL, &o, &layer, &err), MHA_OK);    \
        assert_int_equal(mha_variant_parameter_count(layer), (int64_t)(numbers)); \
        assert_int_equal(held(layer), (int64_t)(numbers));                        \
        mha_variant_free(layer);                                                  \
    } while (0)

static void test_one_input(void **state)
{
    (void)state;
    enum { IN = 5, OUT = 12, H = 3 };
    for (int bias = 0; bias < 2; bias++) {
        const int64_t qkv = 3 * IN * OUT + bias * 3 * OUT;
        COUNTED(self_attention, qkv, .d_in = IN, .d_out = OUT, .qkv_bias = bias);
        COUNTED(causal_attention, qkv, .d_in = IN, .d_out = OUT, .qkv_bias = bias);
        COUNTED(stacked_heads, qkv, .d_in = IN, .d_out = OUT, .num_heads = H, .qkv_bias = bias);
        COUNTED(weight_split, qkv + OUT * OUT + OUT, .d_in = IN, .d_out = OUT, .num_heads = H, .qkv_bias = bias);
    }
    COUNTED(self_attention, 3 * IN * OUT, .d_in = IN, .d_out = OUT, .plain_matrices = 1);
    COUNTED(stacked_heads, 3 * IN * OUT, .d_in = IN, .d_out = OUT, .num_heads = H, .plain_matrices = 1);
}

static void test_several_inputs(void **state)
{
    (void)state;
    enum { IN = 5, E = 12, H = 6, D = E / H, SHARED = 2 };
    COUNTED(qkv_attention, 3 * (IN + 1) * E, .input_dim = IN, .num_heads = H, .output_dim = E);
    for (int heads = 1; heads <= H; heads++) /* the count must be the same for any number of heads */
        if (E % heads == 0) COUNTED(standard_mha, 4 * E * (E + 1), .d_model = E, .num_heads = heads);
    COUNTED(grouped_query, 2 * E * E + 2 * E * SHARED * D + 2 * E + 2 * SHARED * D, .d_model = E, .num_heads = H,
            .num_kv_heads = SHARED);
    COUNTED(llama_attention, 2 * E * (E + SHARED * D), .hidden_size = E, .num_heads = H, .num_kv_heads = SHARED);
}

static void test_selectors(void **state)
{
    (void)state;
    enum { E = 12, H = 4, D = E / H, EXPERTS = 7, HIDDEN = 9 };
    const int64_t options[] = {1, 2, 3}, plain = 4 * E * (E + 1), expert = 3 * D * (E + 1);
    COUNTED(head_pruning, plain + H * (E + 1), .d_model = E, .num_heads = H, .prune_ratio = 0.5);
    COUNTED(moe_heads, EXPERTS * (E + 1) + EXPERTS * (expert + E * (D + 1)) + E * (E + 1), .d_model = E, .num_heads = H,
            .num_experts = EXPERTS);
    COUNTED(moe_heads, H * (E + 1) + H * expert + E * (E + 1), .d_model = E, .num_heads = H,
            .expert_output = MHA_EXPERT_SLOT);
    COUNTED(moe_heads, EXPERTS * (E + 1) + EXPERTS * 3 * E * (E + 1) + E * (E + 1), .d_model = E, .num_heads = 1,
            .num_experts = EXPERTS, .expert_output = MHA_EXPERT_PLAIN);
    COUNTED(adaptive_heads, HIDDEN * (E + 1) + 3 * (HIDDEN + 1) + plain, .d_model = E, .head_options = options,
            .head_option_count = 3, .predictor_width = HIDDEN);
    COUNTED(adaptive_heads, 128 * (E + 1) + 2 * 129 + plain, .d_model = E, .head_options = options,
            .head_option_count = 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_input),
        cmocka_unit_test(test_several_inputs),
        cmocka_unit_test(test_selectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
