/* tour_of_inputs.c - the tour of the general layer: queries, keys and values from three inputs of two lengths, and a
 * padding mask. */
#include "tour/tours.h"

enum { SEED = 3, BATCH = 2, LQ = 3, LK = 5, D_IN = 6, D_OUT = 8, HEADS = 2 };

/* The first sequence has four keys, the second sequence has three; all other keys are padding. */
static const float padding[BATCH * LK] = {0, 0, 0, 0, 1, 0, 0, 0, 1, 1};

typedef struct inputs {
    float query[BATCH * LQ * D_IN], key[BATCH * LK * D_IN], value[BATCH * LK * D_IN];
} inputs;

static mha_status draw(tour *t, inputs *in)
{
    mha_rng rng;
    mha_rng_manual_seed(&rng, SEED);
    mha_status status = mha_variant_init(t->layer, &rng, &t->error);
    if (status == MHA_OK) status = mha_rng_randn(&rng, in->query, BATCH * LQ * D_IN, &t->error);
    if (status == MHA_OK) status = mha_rng_randn(&rng, in->key, BATCH * LK * D_IN, &t->error);
    if (status == MHA_OK) status = mha_rng_randn(&rng, in->value, BATCH * LK * D_IN, &t->error);
    return status;
}

static void show_projections(tour *t)
{
    tour_say(t, "Projections split into heads", "mha_qkv_attention_create, mha_variant_init, mha_variant_forward",
             "The layer has three matrices [8, 6] with biases, one for each input; the eight features are split into "
             "two heads of four. Queries are [2, 2, 3, 4], keys and values [2, 2, 5, 4]: batch, head, token, "
             "feature.");
    tour_show_qkv(t);

    tour_say(t, "Scaled scores", "mha_variant_forward (.want_scores = 1), MHA_STEP_SCORES",
             "The scores q k^T / sqrt(4) are [2, 2, 3, 5]: three queries and five keys. Queries and keys must have the "
             "same width, but their counts may differ, for example if a translation attends to its source text.");
    tour_show_trace(t, "scores", MHA_STEP_SCORES);
    tour_show_trace(t, "weights", MHA_STEP_WEIGHTS);
}

void tour_qkv_attention(tour *t)
{
    inputs x;
    float output[BATCH * LQ * D_OUT];
    const mha_qkv_attention_options options = {
        .size = sizeof options, .input_dim = D_IN, .num_heads = HEADS, .output_dim = D_OUT};
    TOUR_TRY(mha_qkv_attention_create(t->ctx, &options, tour_layer(t), &t->error));
    TOUR_TRY(draw(t, &x));
    tour_say(
        t, "Three inputs", "mha_rng_randn",
        "Queries come from one sequence of three tokens, keys and values from another sequence of five tokens; all "
        "have width 6, in a batch of two. In self-attention all three inputs are the same.");
    tour_show(t, "query", x.query, TOUR_SHAPE(BATCH, LQ, D_IN));
    tour_show(t, "key", x.key, TOUR_SHAPE(BATCH, LK, D_IN));
    tour_show(t, "value", x.value, TOUR_SHAPE(BATCH, LK, D_IN));

    mha_variant_input in = {.size = sizeof in,
                            .batch = BATCH,
                            .q_len = LQ,
                            .kv_len = LK,
                            .query = x.query,
                            .key = x.key,
                            .value = x.value,
                            .want_scores = 1,
                            .want_weights = 1};
    TOUR_TRY(mha_variant_forward(t->layer, &in, output, t->trace, &t->error));
    show_projections(t);

    in.blocked = (mha_mask){.data = padding, .rank = 3, .shape = {BATCH, 1, LK}};
    TOUR_TRY(mha_variant_forward(t->layer, &in, output, t->trace, &t->error));
    tour_say(t, "Masked padding", "mha_variant_input, .blocked = {padding, 3, {2, 1, 5}}",
             "The first sequence has only four keys and the second three; the rest is padding. The mask is "
             "1 for a masked key and is added to the scores as mask * -1e10, before softmax. It has no head "
             "axis and one row for all queries, so it applies to every head and every query of its "
             "sequence.");
    tour_show_weights(t, "blocked", padding, TOUR_SHAPE(BATCH, 1, LK));
    tour_show_trace(t, "masked_weights", MHA_STEP_WEIGHTS);

    tour_say(t, "Output", "mha_variant_forward",
             "The output is the product weights v of each head, with the heads concatenated: [2, 3, 8]. It is as long "
             "as the queries and as wide as all heads together. This layer has no output projection.");
    tour_show(t, "output", output, TOUR_SHAPE(BATCH, LQ, D_OUT));
    tour_count_layer(t, "q/k/v attention");
}
