/* tour_of_choices.c - tours of the plain layer, and of variants compared with it at the same width, head count and
 * input: shared keys and values, experts, pruned heads, and a head count per sequence. */
#include "tour/tours.h"

enum { MOST = 256 }; /* maximum number of elements of an input or output */

/* Queries, keys and values, with their sizes. */
typedef struct inputs {
    float query[MOST], key[MOST], value[MOST], output[MOST];
    int64_t batch, q_len, kv_len, width;
    mha_mask keep;
} inputs;

/* Initializes the current layer and the inputs, in this order, and runs the layer. */
static mha_status run(tour *t, uint64_t seed, inputs *x)
{
    mha_rng rng;
    const mha_variant_input in = {.size = sizeof in,
                                  .batch = x->batch,
                                  .q_len = x->q_len,
                                  .kv_len = x->kv_len,
                                  .query = x->query,
                                  .key = x->key,
                                  .value = x->value,
                                  .keep = x->keep,
                                  .want_weights = 1};
    const int64_t queries = x->batch * x->q_len * x->width, keys = x->batch * x->kv_len * x->width;
    mha_rng_manual_seed(&rng, seed);
    mha_status status = mha_variant_init(t->layer, &rng, &t->error);
    if (status == MHA_OK) status = mha_rng_randn(&rng, x->query, queries, &t->error);
    if (status == MHA_OK) status = mha_rng_randn(&rng, x->key, keys, &t->error);
    if (status == MHA_OK) status = mha_rng_randn(&rng, x->value, keys, &t->error);
    if (status == MHA_OK) status = mha_variant_forward(t->layer, &in, x->output, t->trace, &t->error);
    return status;
}

static mha_status plain_layer(tour *t, int64_t width, int64_t heads)
{
    const mha_standard_mha_options options = {.size = sizeof options, .d_model = width, .num_heads = heads};
    return mha_standard_mha_create(t->ctx, &options, tour_layer(t), &t->error);
}

/* Counts parameters and flops of plain multi-head attention at this size. */
static mha_status count_plain(tour *t, int64_t heads, inputs *x, tour_count *count)
{
    mha_status status = plain_layer(t, x->width, heads);
    if (status == MHA_OK) status = run(t, 0, x);
    if (status == MHA_OK) *count = tour_counted(t, "plain");
    return status;
}

static void show_output(tour *t, const inputs *x, tour_count plain, const char *name)
{
    tour_show(t, "output", x->output, TOUR_SHAPE(x->batch, x->q_len, x->width));
    tour_count_given(t, plain);
    tour_count_layer(t, name);
}

/* Shows the chosen heads as a tensor [batch, n]. */
static void show_chosen(tour *t, const char *name, int64_t batch)
{
    float chosen[MOST];
    int64_t n = 0;
    for (int64_t b = 0; b < batch; b++) {
        const int32_t *list = mha_trace_chosen(t->trace, b, &n);
        for (int64_t i = 0; list && i < n; i++)
            chosen[b * n + i] = (float)list[i];
    }
    tour_show(t, name, chosen, TOUR_SHAPE(batch, n))->look = TOUR_WHOLE;
}

/* ---- plain multi-head attention ---- */

void tour_standard_mha(tour *t)
{
    enum { BATCH = 3, LQ = 3, LK = 5, HEADS = 4, WIDTH = 8 };
    /* Sequences of five, four and three keys; the first query of the last sequence has no unmasked key. */
    static const uint8_t keep[BATCH * LQ * LK] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1,
                                                  1, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0};
    float shown[BATCH * LQ * LK];
    inputs x = {.batch = BATCH,
                .q_len = LQ,
                .kv_len = LK,
                .width = WIDTH,
                .keep = {.data = keep, .rank = 4, .shape = {BATCH, 1, LQ, LK}}};
    for (int n = 0; n < BATCH * LQ * LK; n++)
        shown[n] = keep[n];
    TOUR_TRY(plain_layer(t, WIDTH, HEADS));
    TOUR_TRY(run(t, 13, &x));

    tour_say(t, "Queries by head", "mha_standard_mha_create (.d_model = 8, .num_heads = 4), mha_variant_init",
             "The layer has four projections [8, 8] with biases. Each of the four heads gets two of the eight "
             "columns: queries [3, 3, 8] become [3, 4, 3, 2] (batch, head, token, feature). Keys and values are split "
             "in the same way.");
    tour_show(t, "query", x.query, TOUR_SHAPE(BATCH, LQ, WIDTH));
    tour_show_trace(t, "q", MHA_STEP_Q);

    tour_say(t, "Weights with a boolean mask", "mha_variant_input, .keep = {mask, 4, {3, 1, 3, 5}}",
             "0 marks a masked key: its score becomes -1e9, and its weight after softmax is 0. The axis of "
             "size 1 is broadcast over the heads. The first query of the last sequence has no unmasked key; "
             "its five scores of -1e9 are equal, so its weights are uniform instead of 0 divided by 0.");
    tour_show_weights(t, "mask", shown, TOUR_SHAPE(BATCH, 1, LQ, LK));
    tour_show_trace(t, "weights", MHA_STEP_WEIGHTS);

    tour_say(t, "Output", "mha_variant_forward, mha_variant_parameter_count, mha_trace_flops",
             "The heads are concatenated to [3, 3, 8] and multiplied by the output projection. The layer has 4 (8 * 8 "
             "+ 8) parameters for any number of heads, because more heads are narrower.");
    tour_show(t, "output", x.output, TOUR_SHAPE(BATCH, LQ, WIDTH));
    tour_count_layer(t, "four heads");
    TOUR_TRY(plain_layer(t, WIDTH, 2));
    TOUR_TRY(run(t, 13, &x));
    tour_count_layer(t, "two heads");

    tour_say(t, "Saving and loading", "mha_variant_parameters, mha_tensors_write, mha_tensors_read, mha_variant_update",
             "The layer lists its parameters by name: weight and bias of q_proj, k_proj, v_proj and o_proj; "
             "two of these eight are shown. The list can be written to a safetensors file, which PyTorch also loads, "
             "and read back into a layer: examples/save_and_load.c. Gradients form a list with "
             "the same names.");
    tour_show_parameter(t, "q_proj.bias");
    tour_show_parameter(t, "o_proj.bias");
}

/* ---- shared keys and values ---- */

static mha_status grouped(tour *t, int64_t kv_heads)
{
    const mha_grouped_query_options options = {
        .size = sizeof options, .d_model = 8, .num_heads = 4, .num_kv_heads = kv_heads};
    return mha_grouped_query_create(t->ctx, &options, tour_layer(t), &t->error);
}

void tour_grouped_query(tour *t)
{
    inputs x = {.batch = 2, .q_len = 3, .kv_len = 5, .width = 8};
    tour_count plain = {0};
    TOUR_TRY(count_plain(t, 4, &x, &plain));
    TOUR_TRY(grouped(t, 1));
    TOUR_TRY(run(t, 42, &x));
    const tour_count one = tour_counted(t, "one k/v head for all");
    TOUR_TRY(grouped(t, 2));
    TOUR_TRY(run(t, 42, &x));

    tour_say(t, "Fewer keys and values", "mha_grouped_query_create (.num_heads = 4, .num_kv_heads = 2)",
             "The layer has four query heads but only two key/value heads, each shared by two query heads: q is [2, 4, "
             "3, 2], k and v are [2, 2, 5, 2]. A decoder caches k and v of every token, so half as many key/value "
             "heads require half the cache.");
    tour_show_qkv(t);

    tour_say(t, "Weights of every query head", "mha_variant_forward (.want_weights = 1), MHA_STEP_WEIGHTS",
             "Query head h reads key/value head h / 2: query heads 0 and 1 read head 0, heads 2 and 3 read "
             "head 1. Each of the four query heads still has its own weights, [2, 4, 3, 5]. Keys and values "
             "are not repeated in memory.");
    tour_show_trace(t, "weights", MHA_STEP_WEIGHTS);

    tour_say(t, "Output", "mha_variant_forward, mha_variant_parameter_count, mha_trace_flops",
             "The output is [2, 3, 8], as in plain attention. Only the projections of k and v are smaller. A single "
             "key/value head for all query heads is called multi-query attention.");
    show_output(t, &x, plain, "two k/v heads for four");
    tour_count_given(t, one);
}

/* ---- experts ---- */

static mha_status experts(tour *t, mha_expert_output output)
{
    const mha_moe_heads_options options = {
        .size = sizeof options, .d_model = 8, .num_heads = 4, .top_k = 2, .expert_output = output};
    return mha_moe_heads_create(t->ctx, &options, tour_layer(t), &t->error);
}

/* Shows the layer with MHA_EXPERT_SLOT, an alternative to the published definition, on tokens from a separate seed. */
static void show_slots(tour *t, inputs *x, tour_count plain, tour_count projected)
{
    TOUR_TRY(experts(t, MHA_EXPERT_SLOT));
    TOUR_TRY(run(t, 23, x));
    tour_say(t, "Slots instead of projections", "mha_moe_heads_create (.expert_output = MHA_EXPERT_SLOT)",
             "The published code adds outputs of width 2 to a sum of width 8, which fails. One correction is an output "
             "projection per expert. The correction shown here is a slot per expert: expert e writes columns 2 e and 2 "
             "e + 1, and the columns of unselected experts remain 0. There are as many experts as heads. The layer is "
             "initialized from seed 23.");
    show_chosen(t, "slot_chosen", x->batch);
    tour_show_trace(t, "slot_mixed", MHA_STEP_MIXED);
    tour_show(t, "slot_output", x->output, TOUR_SHAPE(x->batch, x->q_len, x->width));
    tour_count_given(t, plain);
    tour_count_given(t, projected);
    tour_count_layer(t, "with slots");
}

void tour_moe_heads(tour *t)
{
    inputs x = {.batch = 3, .q_len = 4, .kv_len = 4, .width = 8};
    tour_count plain = {0};
    TOUR_TRY(count_plain(t, 4, &x, &plain));
    TOUR_TRY(experts(t, MHA_EXPERT_PROJECT));
    TOUR_TRY(run(t, 152, &x));

    tour_say(t, "Router logits", "mha_moe_heads_create (.num_heads = 4, .top_k = 2), MHA_STEP_LOGITS",
             "The four heads are experts. A router maps the mean of a sequence's queries to one logit per "
             "expert: [3, 4] for three sequences.");
    tour_show_trace(t, "logits", MHA_STEP_LOGITS);

    tour_say(t, "Two experts for each sequence", "mha_trace_chosen, MHA_STEP_GATES",
             "The two experts with the largest logits of each row are chosen, the largest first. Softmax "
             "over these two logits gives their gates; the other experts are not computed for this "
             "sequence.");
    show_chosen(t, "chosen", x.batch);
    tour_show_trace(t, "gates", MHA_STEP_GATES);

    tour_say(t, "Weights of the chosen experts", "mha_variant_forward (.want_weights = 1), MHA_STEP_WEIGHTS",
             "The axes are [sequence, chosen expert, query, key]. Each expert computes plain attention of width 2.");
    tour_show_trace(t, "weights", MHA_STEP_WEIGHTS);

    tour_say(t, "Weighted sum of the experts", "MHA_STEP_MIXED",
             "Each expert has its own output projection from width 2 to 8; the outputs are summed, weighted "
             "by the gates: [3, 4, 8].");
    tour_show_trace(t, "mixed", MHA_STEP_MIXED);

    tour_say(t, "Output", "mha_variant_forward, mha_variant_parameter_count, mha_trace_flops",
             "One output projection follows, as in plain attention. The layer has more parameters than plain "
             "attention, since every expert has its own projections, but only the selected experts are computed.");
    show_output(t, &x, plain, "two of four experts");
    show_slots(t, &x, plain, tour_counted(t, "with projections"));
}

/* ---- pruned heads ---- */

void tour_head_pruning(tour *t)
{
    inputs x = {.batch = 3, .q_len = 4, .kv_len = 4, .width = 8};
    tour_count plain = {0};
    const mha_head_pruning_options options = {.size = sizeof options, .d_model = 8, .num_heads = 4, .prune_ratio = 0.5};
    TOUR_TRY(count_plain(t, 4, &x, &plain));
    TOUR_TRY(mha_head_pruning_create(t->ctx, &options, tour_layer(t), &t->error));
    TOUR_TRY(run(t, 31, &x));

    tour_say(t, "A score for each head", "mha_head_pruning_create (.num_heads = 4, .prune_ratio = 0.5)",
             "A linear layer maps the mean of a sequence's queries to a score for each of the four heads: "
             "[3, 4].");
    tour_show_trace(t, "logits", MHA_STEP_LOGITS);

    tour_say(t, "Heads with the highest scores", "mha_trace_chosen",
             "int(4 * (1 - 0.5)) = 2 heads are kept for each sequence, the highest score first; different sequences "
             "may keep different heads.");
    show_chosen(t, "chosen", x.batch);

    tour_say(t, "Weights of the kept heads", "mha_variant_forward (.want_weights = 1), MHA_STEP_WEIGHTS",
             "The axes are [sequence, kept head, query, key]. The published code computes all heads and multiplies two "
             "of them by 0. Here, the two removed heads are neither projected nor computed.");
    tour_show_trace(t, "weights", MHA_STEP_WEIGHTS);

    tour_say(t, "Output", "mha_variant_forward, mha_variant_parameter_count, mha_trace_flops",
             "The columns of removed heads are treated as 0, so the output is the sum over the kept heads plus the "
             "bias: [3, 4, 8]. The predictor adds a few parameters; the flops are about half of the flops of "
             "plain attention.");
    show_output(t, &x, plain, "two of four heads");
}

/* ---- number of heads per sequence ---- */

void tour_adaptive_heads(tour *t)
{
    inputs x = {.batch = 4, .q_len = 4, .kv_len = 4, .width = 16};
    tour_count plain = {0};
    float heads[4];
    const int64_t choices[] = {4, 8, 16};
    const mha_adaptive_heads_options options = {
        .size = sizeof options, .d_model = 16, .head_options = choices, .head_option_count = 3};
    TOUR_TRY(count_plain(t, 4, &x, &plain));
    TOUR_TRY(mha_adaptive_heads_create(t->ctx, &options, tour_layer(t), &t->error));
    TOUR_TRY(run(t, 9, &x));
    for (int64_t b = 0; b < x.batch; b++)
        heads[b] = (float)mha_trace_heads(t->trace, b);

    tour_say(t, "Predictor logits", "mha_adaptive_heads_create (.head_options = {4, 8, 16})",
             "A small network (linear 16 to 128, ReLU, linear 128 to 3) maps the mean of a sequence's "
             "queries to a logit for each option, 4, 8 or 16 heads: [4, 3] for four sequences.");
    tour_show_trace(t, "logits", MHA_STEP_LOGITS);

    tour_say(t, "Number of heads per sequence", "mha_trace_chosen, mha_trace_heads",
             "The option with the largest logit of each row is chosen. The sixteen columns are then split "
             "into that many heads: 4 heads of width 4, 8 of width 2, or 16 of width 1. The weight matrices "
             "are the same in all three cases.");
    show_chosen(t, "chosen", x.batch);
    tour_show(t, "heads", heads, TOUR_SHAPE(4))->look = TOUR_WHOLE;

    tour_say(t, "Output", "mha_variant_forward, mha_variant_parameter_count, mha_trace_flops",
             "The output is [4, 4, 16]. The matrix products have the same cost for every split. The predictor adds a "
             "cost, which at this small width is larger than the cost of the layer itself.");
    show_output(t, &x, plain, "4, 8 or 16 heads");
}
