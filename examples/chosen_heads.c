/* chosen_heads.c - prints the choices of three selectors for each sequence: a router selects two of four experts, a
 * predictor selects two of four heads, and another predictor selects the number of heads. Seeds and choices match those
 * of `mha tour`. */
#include <mha/mha.h>
#include <stdio.h>

enum { MAX = 4 * 4 * 16 };
static float query[MAX], key[MAX], value[MAX], y[MAX];

static void print_row(const char *name, const mha_step_view *step, int64_t b)
{
    printf("%s", name);
    for (int64_t i = 0; i < step->shape[1]; i++)
        printf(" %.4f", (double)((const float *)step->data)[b * step->stride[0] + i * step->stride[1]]);
}

/* Prints one line per sequence: the logits of the selector, its choice, and the gates of the chosen heads. */
static void print_choices(const mha_trace *trace, int64_t batch)
{
    mha_step_view logits, gates;
    for (int64_t b = 0; b < batch && mha_trace_step(trace, MHA_STEP_LOGITS, &logits); b++) {
        int64_t count;
        const int32_t *chosen = mha_trace_chosen(trace, b, &count);
        printf("  sequence %d:", (int)b);
        print_row(" logits", &logits, b);
        printf(", chosen");
        for (int64_t i = 0; i < count; i++)
            printf(" %d", (int)chosen[i]);
        if (mha_trace_step(trace, MHA_STEP_GATES, &gates)) print_row(", gates", &gates, b);
        printf(", %d heads\n", (int)mha_trace_heads(trace, b));
    }
}

/* Initializes the layer and its inputs, runs it, prints its choices, and frees it. */
static mha_status show(const char *name, mha_variant *layer, uint64_t seed, int64_t batch, int64_t width,
                       mha_error *err)
{
    enum { TOKENS = 4 };
    mha_rng rng;
    mha_trace *trace = NULL;
    const int64_t numbers = batch * TOKENS * width;
    const mha_variant_input in = {
        .size = sizeof in, .batch = batch, .q_len = TOKENS, .query = query, .key = key, .value = value};
    mha_rng_manual_seed(&rng, seed);
    mha_status status = mha_variant_init(layer, &rng, err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, query, numbers, err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, key, numbers, err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, value, numbers, err);
    if (status == MHA_OK) status = mha_trace_create(NULL, &trace, err);
    if (status == MHA_OK) status = mha_variant_forward(layer, &in, y, trace, err);
    if (status == MHA_OK) printf("%s: %lld flops\n", name, (long long)mha_trace_flops(trace));
    if (status == MHA_OK) print_choices(trace, batch);
    mha_trace_free(trace);
    mha_variant_free(layer);
    return status;
}

int main(void)
{
    mha_error err;
    mha_variant *layer;
    const int64_t choices[] = {4, 8, 16};
    const mha_moe_heads_options experts = {.size = sizeof experts, .d_model = 8, .num_heads = 4, .top_k = 2};
    mha_moe_heads_options slots = experts;
    slots.expert_output = MHA_EXPERT_SLOT;
    const mha_head_pruning_options pruned = {.size = sizeof pruned, .d_model = 8, .num_heads = 4, .prune_ratio = 0.5};
    const mha_adaptive_heads_options adaptive = {
        .size = sizeof adaptive, .d_model = 16, .head_options = choices, .head_option_count = 3};

    mha_status status = mha_moe_heads_create(NULL, &experts, &layer, &err);
    if (status == MHA_OK) status = show("experts with separate projections", layer, 152, 3, 8, &err);
    if (status == MHA_OK) status = mha_moe_heads_create(NULL, &slots, &layer, &err);
    if (status == MHA_OK) status = show("experts with separate columns", layer, 23, 3, 8, &err);
    if (status == MHA_OK) status = mha_head_pruning_create(NULL, &pruned, &layer, &err);
    if (status == MHA_OK) status = show("head pruning", layer, 31, 3, 8, &err);
    if (status == MHA_OK) status = mha_adaptive_heads_create(NULL, &adaptive, &layer, &err);
    if (status == MHA_OK) status = show("4, 8 or 16 heads (options 0, 1, 2)", layer, 9, 4, 16, &err);
    if (status != MHA_OK) fprintf(stderr, "%s\n", err.message);
    return status != MHA_OK;
}
