/* tour_of_many_heads.c - tours of several heads: first as a list of heads, then as one matrix that is split. */
#include "tour/tours.h"

enum { SEED = 123, BATCH = 2, WORDS = 6, D_IN = 3, D_OUT = 4, HEADS = 2, HEAD_DIM = D_OUT / HEADS };

/* Two copies of "Your journey starts with one step", with three features per word. */
static const float sentences[BATCH * WORDS * D_IN] = {0.43f, 0.15f, 0.89f, 0.55f, 0.87f, 0.66f, 0.57f, 0.85f, 0.64f,
                                                      0.22f, 0.58f, 0.33f, 0.77f, 0.25f, 0.10f, 0.05f, 0.80f, 0.55f,
                                                      0.43f, 0.15f, 0.89f, 0.55f, 0.87f, 0.66f, 0.57f, 0.85f, 0.64f,
                                                      0.22f, 0.58f, 0.33f, 0.77f, 0.25f, 0.10f, 0.05f, 0.80f, 0.55f};

static const char *const words[WORDS] = {"Your", "journey", "starts", "with", "one", "step"};

static void show_sentences(tour *t)
{
    tour_say(t, "Two sentences", NULL,
             "The input is [2, 6, 3]: a batch of two sentences of six words, with three features for each word of "
             "\"Your journey starts with one step\". The two sentences are identical, and so are their results.");
    tour_show(t, "x", sentences, TOUR_SHAPE(BATCH, WORDS, D_IN));
}

/* Initializes the current layer and runs it on the sentences. */
static mha_status run(tour *t, float *output)
{
    mha_rng rng;
    const mha_variant_input in = {
        .size = sizeof in, .batch = BATCH, .q_len = WORDS, .query = sentences, .want_weights = 1};
    mha_rng_manual_seed(&rng, SEED);
    mha_status status = mha_variant_init(t->layer, &rng, &t->error);
    if (status == MHA_OK) status = mha_variant_forward(t->layer, &in, output, t->trace, &t->error);
    return status;
}

/* ---- second walk-through: wider heads, random tokens sampled before the layer ---- */

enum { TOKENS = 5, WIDTH = 6 };

static mha_status run_wide(tour *t, float *output)
{
    float x[BATCH * TOKENS * WIDTH];
    mha_rng rng;
    const mha_variant_input in = {.size = sizeof in, .batch = BATCH, .q_len = TOKENS, .query = x};
    mha_rng_manual_seed(&rng, SEED);
    mha_status status = mha_rng_randn(&rng, x, BATCH * TOKENS * WIDTH, &t->error);
    if (status == MHA_OK) status = mha_variant_init(t->layer, &rng, &t->error);
    if (status == MHA_OK) status = mha_variant_forward(t->layer, &in, output, t->trace, &t->error);
    return status;
}

static mha_status stacked(tour *t, int64_t d_in, int64_t d_out, int plain_matrices, mha_scale_rule rule)
{
    const mha_stacked_heads_options options = {.size = sizeof options,
                                               .d_in = d_in,
                                               .d_out = d_out,
                                               .num_heads = HEADS,
                                               .plain_matrices = plain_matrices,
                                               .scale_rule = rule};
    return mha_stacked_heads_create(t->ctx, &options, tour_layer(t), &t->error);
}

/* ---- list of heads ---- */

void tour_stacked_heads(tour *t)
{
    float output[BATCH * WORDS * D_OUT], wide[BATCH * TOKENS * WIDTH];
    show_sentences(t);
    TOUR_TRY(stacked(t, D_IN, D_OUT, 1, MHA_SCALE_HEAD_DIM));
    TOUR_TRY(run(t, output));

    tour_say(t, "Matrices of each head", "mha_stacked_heads_create (.plain_matrices = 1), mha_variant_init",
             "The layer has two heads, each with its own three matrices [3, 2] for query, key and value, initialized "
             "head by head with values from [0, 1). With its own matrices, each head can attend to different "
             "features.");
    tour_show_parameter(t, "heads.0.w_q");
    tour_show_parameter(t, "heads.0.w_k");
    tour_show_parameter(t, "heads.0.w_v");
    tour_show_parameter(t, "heads.1.w_q");
    tour_show_parameter(t, "heads.1.w_k");
    tour_show_parameter(t, "heads.1.w_v");

    tour_say(t, "Weights of each head", "mha_variant_forward (.want_weights = 1), MHA_STEP_WEIGHTS",
             "The axes are [batch, head, query, key]. Each head computes causal attention over the six words, with "
             "scores divided by sqrt(2), the square root of its width.");
    tour_name_words(t, tour_show_trace(t, "weights", MHA_STEP_WEIGHTS), words);

    tour_say(t, "Concatenated outputs", "mha_variant_forward",
             "The output of each head is [2, 6, 2]; concatenated, it is [2, 6, 4]. Columns 0 and 1 belong to head "
             "0, columns 2 and 3 to head 1. The heads are not mixed yet.");
    tour_color_heads(tour_show(t, "output", output, TOUR_SHAPE(BATCH, WORDS, D_OUT)), HEADS, HEAD_DIM);
    tour_count_layer(t, "a list of two heads");

    TOUR_TRY(stacked(t, WIDTH, WIDTH, 0, MHA_SCALE_D_OUT));
    TOUR_TRY(run_wide(t, wide));
    tour_say(t, "Wider heads, a different scale", "mha_stacked_heads_create (.scale_rule = MHA_SCALE_D_OUT)",
             "This layer has two heads of width 3, on random tokens [2, 5, 6], with matrices initialized as in "
             "nn.Linear. One published walk-through divides the scores by sqrt(6), the width of all heads together, "
             "instead of sqrt(3); the layer has an option for this rule, to reproduce the published digits.");
    tour_show(t, "wide_output", wide, TOUR_SHAPE(BATCH, TOKENS, WIDTH));
}

/* ---- one matrix, split into heads ---- */

static mha_status split(tour *t, int64_t d_in, int64_t d_out, mha_scale_rule rule)
{
    const mha_weight_split_options options = {
        .size = sizeof options, .d_in = d_in, .d_out = d_out, .num_heads = HEADS, .scale_rule = rule};
    return mha_weight_split_create(t->ctx, &options, tour_layer(t), &t->error);
}

/* Computes q of all heads in one product with the parameter q_proj of the layer. */
static mha_status project(tour *t, float *q)
{
    int64_t count;
    mha_linear *linear = NULL;
    const mha_named_tensor *list = mha_variant_parameters(t->layer, &count); /* the first parameter is q_proj.weight */
    mha_status status = mha_linear_create(t->ctx, D_IN, D_OUT, list[0].data, NULL, &linear, &t->error);
    if (status == MHA_OK) status = mha_linear_forward(linear, sentences, BATCH * WORDS, q, &t->error);
    mha_linear_free(linear);
    return status;
}

static void show_split(tour *t, const float *q)
{
    tour_say(t, "One product for all heads", "mha_linear_create, mha_linear_forward",
             "One matrix [4, 3] replaces two matrices [2, 3]: rows 0 and 1 belong to head 0, rows 2 and 3 to head 1. q "
             "= x q_proj^T is [2, 6, 4], the queries of both heads together. k and v are computed in the same way.");
    tour_show_parameter(t, "q_proj.weight");
    tour_color_heads(tour_show(t, "q", q, TOUR_SHAPE(BATCH, WORDS, D_OUT)), HEADS, HEAD_DIM);

    tour_say(t, "View", "mha_cview, .stride = {24, 2, 4, 1}",
             "The last axis is split into heads: [2, 6, 4] becomes [2, 6, 2, 2]. No element moves; this is "
             "another view of the same memory.");
    tour_color_heads(tour_show(t, "q_view", q, TOUR_SHAPE(BATCH, WORDS, HEADS, HEAD_DIM)), HEADS, HEAD_DIM);

    tour_say(
        t, "Transpose", "MHA_STEP_Q of the trace",
        "The head axis is moved before the word axis, [2, 2, 6, 2], so that each head is a matrix. For the operator "
        "this is also only a change of strides, without a copy; the tour reshape shows it element by element.");
    tour_color_heads(tour_show_trace(t, "q_heads", MHA_STEP_Q), HEADS, (int64_t)WORDS * HEAD_DIM);
}

void tour_weight_split(tour *t)
{
    float output[BATCH * WORDS * D_OUT], q[BATCH * WORDS * D_OUT], wide[BATCH * TOKENS * WIDTH];
    show_sentences(t);
    TOUR_TRY(stacked(t, D_IN, D_OUT, 1, MHA_SCALE_HEAD_DIM));
    TOUR_TRY(run(t, output));
    const tour_count list = tour_counted(t, "a list of two heads");

    TOUR_TRY(split(t, D_IN, D_OUT, MHA_SCALE_HEAD_DIM));
    TOUR_TRY(run(t, output));
    TOUR_TRY(project(t, q));
    show_split(t, q);

    tour_say(t, "Weights", "mha_variant_forward (.want_weights = 1), MHA_STEP_WEIGHTS",
             "The axes are [batch, head, query, key]. One call computes causal attention of both heads, with scores "
             "divided by sqrt(2).");
    tour_name_words(t, tour_show_trace(t, "weights", MHA_STEP_WEIGHTS), words);

    tour_say(t, "Concatenated heads", "MHA_STEP_CONTEXT of the trace",
             "The product weights v is [2, 2, 6, 2]. It is transposed back, and the last two axes are merged: [2, 6, "
             "4].");
    tour_show_trace(t, "context", MHA_STEP_CONTEXT);

    tour_say(t, "Output projection", "mha_weight_split_create, mha_variant_forward",
             "The output is context o_proj^T + bias, [2, 6, 4]. The projection is the only step that mixes the heads. "
             "It is optional and adds the parameters below; q, k and v have as many parameters as in the list of "
             "heads.");
    tour_show(t, "output", output, TOUR_SHAPE(BATCH, WORDS, D_OUT));
    tour_count_given(t, list);
    tour_count_layer(t, "one matrix, split");

    TOUR_TRY(split(t, WIDTH, WIDTH, MHA_SCALE_D_OUT));
    TOUR_TRY(run_wide(t, wide));
    tour_say(
        t, "Wider heads, a different scale", "mha_weight_split_create (.scale_rule = MHA_SCALE_D_OUT)",
        "This layer has two heads of width 3, on random tokens [2, 5, 6], with scores divided by sqrt(6) as in one "
        "published walk-through.");
    tour_show(t, "wide_output", wide, TOUR_SHAPE(BATCH, TOKENS, WIDTH));
}
