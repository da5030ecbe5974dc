/* tour_of_inputs.c - the tour of the general layer: queries, keys and values from three inputs of two lengths, and a
 * padding mask. */
#include "tour/tour_choice.h"
#include "tour/tours.h"

enum { SEED = 3, BATCH = 2, LQ = 3, LK = 5, D_IN = 6, D_OUT = 8, HEADS = 2 };

/* The first sequence has four keys, the second sequence has three; all other keys are padding. */
static const float padding[BATCH * LK] = {0, 0, 0, 0, 1, 0, 0, 0, 1, 1};

/* `width`: of an input; `out`: of all heads together. */
typedef struct inputs {
    int64_t width, out, heads, head_dim;
    float *query, *key, *value, *output;
} inputs;

static mha_status begin(tour *t, inputs *in)
{
    *in = (inputs){.width = tour_width(t, D_IN), .out = tour_width(t, D_OUT), .heads = tour_heads(t, HEADS)};
    if (tour_check_heads(t, in->out, in->heads) != MHA_OK) return t->error.status;
    in->head_dim = in->out / in->heads;
    in->query = tour_floats(t, BATCH * LQ * in->width);
    in->key = tour_floats(t, BATCH * LK * in->width);
    in->value = tour_floats(t, BATCH * LK * in->width);
    in->output = tour_floats(t, BATCH * LQ * in->out);
    return t->error.status;
}

static mha_status sample(tour *t, inputs *in)
{
    mha_rng rng;
    mha_rng_manual_seed(&rng, tour_seed(t, SEED));
    mha_status status = mha_variant_init(t->layer, &rng, &t->error);
    if (status == MHA_OK) status = mha_rng_randn(&rng, in->query, BATCH * LQ * in->width, &t->error);
    if (status == MHA_OK) status = mha_rng_randn(&rng, in->key, BATCH * LK * in->width, &t->error);
    if (status == MHA_OK) status = mha_rng_randn(&rng, in->value, BATCH * LK * in->width, &t->error);
    return status == MHA_OK ? tour_load_layer(t) : status;
}

static void show_inputs(tour *t, const inputs *x)
{
    tour_say(
        t, "Three inputs", "mha_rng_randn",
        "Queries come from one sequence of three tokens, keys and values from another sequence of five tokens; all "
        "have width %lld, in a batch of two. In self-attention all three inputs are the same.",
        (long long)x->width);
    tour_show(t, "query", x->query, TOUR_SHAPE(BATCH, LQ, x->width));
    tour_show(t, "key", x->key, TOUR_SHAPE(BATCH, LK, x->width));
    tour_show(t, "value", x->value, TOUR_SHAPE(BATCH, LK, x->width));
}

static void show_projections(tour *t, const inputs *x)
{
    tour_say(t, "Projections split into heads", "mha_qkv_attention_create, mha_variant_init, mha_variant_forward",
             "The layer has three matrices %s with biases, one for each input; the %s are split into "
             "%s of %s. Queries are %s, keys and values %s: batch, head, token, "
             "feature.",
             TOUR_DIMS(t, x->out, x->width), tour_many(t, x->out, "feature"), tour_many(t, x->heads, "head"),
             tour_count_word(t, x->head_dim), TOUR_DIMS(t, BATCH, x->heads, LQ, x->head_dim),
             TOUR_DIMS(t, BATCH, x->heads, LK, x->head_dim));
    tour_show_qkv(t);

    tour_say(t, "Scaled scores", "mha_variant_forward (.want_scores = 1), MHA_STEP_SCORES",
             "The scores q k^T / sqrt(%lld) are %s: three queries and five keys. Queries and keys must have the "
             "same width, but their counts may differ, for example if a translation attends to its source text.",
             (long long)x->head_dim, TOUR_DIMS(t, BATCH, x->heads, LQ, LK));
    tour_show_trace(t, "scores", MHA_STEP_SCORES);
    tour_show_trace(t, "weights", MHA_STEP_WEIGHTS);
}

static void show_masked(tour *t)
{
    tour_say(t, "Masked padding", "mha_variant_input, .blocked = {padding, 3, {2, 1, 5}}",
             "The first sequence has only four keys and the second three; the rest is padding. The mask is "
             "1 for a masked key and is added to the scores as mask * -1e10, before softmax. It has no head "
             "axis and one row for all queries, so it applies to every head and every query of its "
             "sequence.");
    tour_show_weights(t, "blocked", padding, TOUR_SHAPE(BATCH, 1, LK));
    tour_show_trace(t, "masked_weights", MHA_STEP_WEIGHTS);
}

void tour_qkv_attention(tour *t)
{
    inputs x;
    TOUR_TRY(begin(t, &x));
    const mha_qkv_attention_options options = {
        .size = sizeof options, .input_dim = x.width, .num_heads = x.heads, .output_dim = x.out};
    TOUR_TRY(mha_qkv_attention_create(t->ctx, &options, tour_layer(t), &t->error));
    TOUR_TRY(sample(t, &x));
    show_inputs(t, &x);

    mha_variant_input in = {.size = sizeof in,
                            .batch = BATCH,
                            .q_len = LQ,
                            .kv_len = LK,
                            .query = x.query,
                            .key = x.key,
                            .value = x.value,
                            .want_scores = 1,
                            .want_weights = 1};
    TOUR_TRY(mha_variant_forward(t->layer, &in, x.output, t->trace, &t->error));
    show_projections(t, &x);

    in.blocked = (mha_mask){.data = padding, .rank = 3, .shape = {BATCH, 1, LK}};
    TOUR_TRY(mha_variant_forward(t->layer, &in, x.output, t->trace, &t->error));
    show_masked(t);

    tour_say(t, "Output", "mha_variant_forward",
             "The output is the product weights v of each head, with the heads concatenated: %s. It is as long "
             "as the queries and as wide as all heads together. This layer has no output projection.",
             TOUR_DIMS(t, BATCH, LQ, x.out));
    tour_show(t, "output", x.output, TOUR_SHAPE(BATCH, LQ, x.out));
    tour_count_layer(t, "q/k/v attention");
}
