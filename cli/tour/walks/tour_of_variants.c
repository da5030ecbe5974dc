/* tour_of_variants.c - runs every variant of multi-head attention at one size and compares its parameters and flops
 * with the plain layer. */
#include "tour/tour_choice.h"
#include "tour/tours.h"
#include <stdlib.h>

enum { D_MODEL = 768, HEADS = 12, TOKENS = 128, SEED = 123 };

static mha_status make_plain(tour *t)
{
    const mha_standard_mha_options o = {.size = sizeof o, .d_model = D_MODEL, .num_heads = HEADS};
    return mha_standard_mha_create(t->ctx, &o, tour_layer(t), &t->error);
}

static mha_status make_pruning(tour *t)
{
    const mha_head_pruning_options o = {.size = sizeof o, .d_model = D_MODEL, .num_heads = HEADS, .prune_ratio = 0.25};
    return mha_head_pruning_create(t->ctx, &o, tour_layer(t), &t->error);
}

static mha_status make_grouped(tour *t)
{
    const mha_grouped_query_options o = {.size = sizeof o, .d_model = D_MODEL, .num_heads = HEADS, .num_kv_heads = 3};
    return mha_grouped_query_create(t->ctx, &o, tour_layer(t), &t->error);
}

static mha_status make_multi_query(tour *t)
{
    const mha_grouped_query_options o = {.size = sizeof o, .d_model = D_MODEL, .num_heads = HEADS, .num_kv_heads = 1};
    return mha_grouped_query_create(t->ctx, &o, tour_layer(t), &t->error);
}

static mha_status make_llama(tour *t)
{
    const mha_llama_attention_options o = {
        .size = sizeof o, .hidden_size = D_MODEL, .num_heads = HEADS, .num_kv_heads = 3, .causal = 1, .rotary = 1};
    return mha_llama_attention_create(t->ctx, &o, tour_layer(t), &t->error);
}

static mha_status make_moe(tour *t)
{
    const mha_moe_heads_options o = {.size = sizeof o, .d_model = D_MODEL, .num_heads = HEADS};
    return mha_moe_heads_create(t->ctx, &o, tour_layer(t), &t->error);
}

static mha_status make_adaptive(tour *t)
{
    const int64_t choices[] = {4, 8, 16};
    const mha_adaptive_heads_options o = {
        .size = sizeof o, .d_model = D_MODEL, .head_options = choices, .head_option_count = 3};
    return mha_adaptive_heads_create(t->ctx, &o, tour_layer(t), &t->error);
}

static const struct variant {
    const char *name, *output, *title, *call, *text;
    mha_status (*make)(tour *t);
} variants[] = {
    {"plain", "plain_output", "Plain multi-head attention", "mha_standard_mha_create",
     "The layer has four projections from 768 to 768 with biases, and twelve heads of width 64. The number of heads "
     "changes neither parameters nor flops.",
     make_plain},
    {"head pruning", "pruned_output", "Dynamic head pruning", "mha_head_pruning_create (.prune_ratio = 0.25)",
     "A predictor scores the heads of each sequence, and nine of twelve are computed: fewer flops, "
     "but not fewer parameters. The tour head-pruning shows the steps.",
     make_pruning},
    {"grouped queries", "grouped_output", "Grouped-query attention", "mha_grouped_query_create (.num_kv_heads = 3)",
     "Four query heads share one key/value head, so k_proj and v_proj have a quarter of the rows, and a decoder "
     "requires a quarter of the cache. The tour grouped-query shows the steps.",
     make_grouped},
    {"multi-query", "multi_query_output", "Multi-query attention", "mha_grouped_query_create (.num_kv_heads = 1)",
     "All twelve query heads share one key/value head, which gives the smallest possible cache.", make_multi_query},
    {"LLaMA", "llama_output", "LLaMA attention",
     "mha_llama_attention_create (.num_kv_heads = 3, .causal = 1, .rotary = 1)",
     "This is grouped-query attention without biases, with rotary position embeddings and a cache. The tour "
     "llama-attention shows the steps.",
     make_llama},
    {"two of 12 experts", "experts_output", "Experts", "mha_moe_heads_create (.top_k = 2)",
     "Twelve heads are experts, each with its own projections; a router chooses two of them for "
     "each sequence. The tour moe-heads shows the steps.",
     make_moe},
    {"adaptive heads", "adaptive_output", "Number of heads per sequence",
     "mha_adaptive_heads_create (.head_options = {4, 8, 16})",
     "A predictor chooses the number of heads that the width is split into; the matrices are the same as in the plain "
     "layer. The tour adaptive-heads shows the steps.",
     make_adaptive},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* Creates the layer, initializes it and runs it on x. */
static mha_status run(tour *t, const struct variant *v, const float *x, float *output, tour_count *count)
{
    mha_rng rng;
    const mha_variant_input in = {.size = sizeof in, .batch = 1, .q_len = TOKENS, .query = x};
    mha_rng_manual_seed(&rng, tour_seed(t, SEED));
    mha_status status = v->make(t);
    if (status == MHA_OK) status = mha_variant_init(t->layer, &rng, &t->error);
    if (status == MHA_OK) status = mha_variant_forward(t->layer, &in, output, t->trace, &t->error);
    if (status == MHA_OK) *count = tour_counted(t, v->name);
    return status;
}

static void walk(tour *t, float *x, float *output)
{
    tour_count counts[VARIANTS];
    mha_rng rng;
    mha_rng_manual_seed(&rng, tour_seed(t, SEED));
    TOUR_TRY(mha_rng_randn(&rng, x, (int64_t)TOKENS * D_MODEL, &t->error));
    for (int v = 0; v < VARIANTS; v++) {
        TOUR_TRY(run(t, &variants[v], x, output, &counts[v]));
        tour_say(t, variants[v].title, variants[v].call, "%s", variants[v].text);
        tour_show(t, variants[v].output, output, TOUR_SHAPE(1, TOKENS, D_MODEL))->look = TOUR_ROWS;
        tour_count_given(t, counts[0]);
        if (v > 0) tour_count_given(t, counts[v]);
    }
    tour_say(t, "All variants", "mha_variant_parameter_count, mha_trace_flops",
             "Each layer of width 768 with twelve heads is initialized and run on one sequence of 128 tokens. "
             "Parameters include biases. Flops are the multiplications and additions of matrix products, including "
             "masked weights and excluding heads that are not computed. `mha plan` computes parameters and flops for a "
             "model of any size.");
    for (int v = 0; v < VARIANTS; v++)
        tour_count_given(t, counts[v]);
}

void tour_variants(tour *t)
{
    float *x = malloc(2 * (size_t)TOKENS * D_MODEL * sizeof *x);
    if (x)
        walk(t, x, x + (ptrdiff_t)(TOKENS * D_MODEL));
    else
        t->error = (mha_error){MHA_ERR_MEMORY, "out of memory for the tokens of the tour"};
    free(x);
}
