/* variants.c - runs the plain layer and other variants of multi-head attention on one input, and prints the parameter
 * count and the operations per forward pass of each variant. */
#include <mha/mha.h>
#include <stdio.h>

enum { TOKENS = 16, WIDTH = 64, HEADS = 8 };
static float x[TOKENS * WIDTH], y[TOKENS * WIDTH];

/* Initializes the layer, runs it, prints its row, and frees it. */
static mha_status show(const char *name, mha_variant *layer, mha_error *err)
{
    mha_rng rng;
    mha_trace *trace = NULL;
    const mha_variant_input in = {.size = sizeof in, .batch = 1, .q_len = TOKENS, .query = x};
    mha_rng_manual_seed(&rng, 123);
    mha_status status = mha_variant_init(layer, &rng, err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, x, TOKENS * WIDTH, err);
    if (status == MHA_OK) status = mha_trace_create(NULL, &trace, err);
    if (status == MHA_OK) status = mha_variant_forward(layer, &in, y, trace, err);
    if (status == MHA_OK)
        printf("%-16s%8lld parameters%8lld flops\n", name, (long long)mha_variant_parameter_count(layer),
               (long long)mha_trace_flops(trace));
    mha_trace_free(trace);
    mha_variant_free(layer);
    return status;
}

int main(void)
{
    mha_error err;
    mha_variant *layer;
    const int64_t choices[] = {4, 8, 16};
    const mha_standard_mha_options plain = {.size = sizeof plain, .d_model = WIDTH, .num_heads = HEADS};
    const mha_grouped_query_options grouped = {
        .size = sizeof grouped, .d_model = WIDTH, .num_heads = HEADS, .num_kv_heads = 2};
    const mha_head_pruning_options pruned = {
        .size = sizeof pruned, .d_model = WIDTH, .num_heads = HEADS, .prune_ratio = 0.5};
    const mha_moe_heads_options experts = {.size = sizeof experts, .d_model = WIDTH, .num_heads = HEADS, .top_k = 2};
    const mha_adaptive_heads_options adaptive = {
        .size = sizeof adaptive, .d_model = WIDTH, .head_options = choices, .head_option_count = 3};
    const mha_llama_attention_options llama = {
        .size = sizeof llama, .hidden_size = WIDTH, .num_heads = HEADS, .num_kv_heads = 2, .causal = 1, .rotary = 1};

    mha_status status = mha_standard_mha_create(NULL, &plain, &layer, &err);
    if (status == MHA_OK) status = show("plain", layer, &err);
    if (status == MHA_OK) status = mha_grouped_query_create(NULL, &grouped, &layer, &err);
    if (status == MHA_OK) status = show("grouped queries", layer, &err);
    if (status == MHA_OK) status = mha_head_pruning_create(NULL, &pruned, &layer, &err);
    if (status == MHA_OK) status = show("head pruning", layer, &err);
    if (status == MHA_OK) status = mha_moe_heads_create(NULL, &experts, &layer, &err);
    if (status == MHA_OK) status = show("experts", layer, &err);
    if (status == MHA_OK) status = mha_adaptive_heads_create(NULL, &adaptive, &layer, &err);
    if (status == MHA_OK) status = show("adaptive heads", layer, &err);
    if (status == MHA_OK) status = mha_llama_attention_create(NULL, &llama, &layer, &err);
    if (status == MHA_OK) status = show("LLaMA", layer, &err);
    if (status != MHA_OK) fprintf(stderr, "%s\n", err.message);
    return status != MHA_OK;
}
