/* tour_of_dropout.c - the tour of dropout on a matrix of ones, on the weights of five words, and in the operator. */
#include "tour/tour_head.h"
#include "tour/tours.h"

static const double rate = 0.2;

static void show_ones(tour *t)
{
    enum { SIDE = 500 };
    static float ones[SIDE * SIDE];
    double sum = 0, large = 0;
    int zeros = 0;
    mha_rng rng;
    for (int n = 0; n < SIDE * SIDE; n++)
        ones[n] = 1;
    tour_say(t, "Ones", NULL,
             "Dropout with rate 0.2 is first applied to a matrix of ones, where its effect is visible.");
    tour_show(t, "ones", ones, TOUR_SHAPE(TOKENS, TOKENS));

    float dropped[TOKENS * TOKENS];
    mha_rng_manual_seed(&rng, TOUR_SEED);
    TOUR_TRY(mha_rng_dropout(&rng, rate, MHA_RNG_ROUTE_DEFAULT, ones, dropped, TOKENS * TOKENS, &t->error));
    for (int n = 0; n < TOKENS * TOKENS; n++) {
        zeros += dropped[n] == 0;
        sum += (double)dropped[n] / (TOKENS * TOKENS);
    }
    tour_say(t, "Ones after dropout", "mha_rng_manual_seed, mha_rng_dropout",
             "Each element becomes 0 with probability 0.2; all other elements are multiplied by 1 / (1 - 0.2) = 1.25, "
             "so that the expected mean remains 1. With seed 123, %d of the 25 elements become 0, not 5, and the mean "
             "is %.2f.",
             zeros, sum);
    tour_show(t, "dropped", dropped, TOUR_SHAPE(TOKENS, TOKENS));
    tour_show(t, "zeros", &(float){(float)zeros}, 0, NULL)->look = TOUR_WHOLE;
    tour_show_number(t, "mean", sum);

    TOUR_TRY(mha_rng_dropout(&rng, rate, MHA_RNG_ROUTE_DEFAULT, ones, ones, SIDE * SIDE, &t->error));
    for (int n = 0; n < SIDE * SIDE; n++)
        large += (double)ones[n] / (SIDE * SIDE);
    tour_say(t, "Dropout on many elements", "mha_rng_dropout",
             "After dropout on 500 by 500 ones, the mean is close to 1. A head of a real model has even more weights.");
    tour_show_number(t, "mean_of_250000", large);
}

static void show_dropped_weights(tour *t, tour_head *h)
{
    float dropped[TOKENS * TOKENS];
    mha_rng rng;
    mha_rng_manual_seed(&rng, TOUR_SEED);
    TOUR_TRY(mha_rng_dropout(&rng, rate, MHA_RNG_ROUTE_DEFAULT, h->weights, dropped, TOKENS * TOKENS, &t->error));
    tour_say(t, "Weights after dropout", "mha_rng_dropout",
             "The same mask is applied to the attention weights: the result is 0 at the same two positions and 1.25 "
             "times the weight elsewhere. Rows no longer sum to 1, but their expected sum is 1.");
    tour_name_words(t, tour_show(t, "dropped_weights", dropped, TOUR_SHAPE(TOKENS, TOKENS)), tour_head_words);
}

void tour_dropout(tour *t)
{
    tour_head h;
    mha_rng rng;
    uint8_t keep[TOKENS * TOKENS];
    float seen[TOKENS * TOKENS];
    mha_attn_desc desc = tour_head_desc();
    show_ones(t);

    desc.causal = 1;
    TOUR_TRY(tour_head_begin(t, &h));
    TOUR_TRY(tour_head_attend(t, &h, &desc));
    tour_say(t, "Weights", "mha_attention, .causal = 1, .outputs = MHA_ATTN_PROBS",
             "Attention applies dropout to the weights, after softmax, so that a token does not rely on a single other "
             "token. The weights are from the tour causal-attention.");
    tour_name_words(t, tour_show_weights(t, "weights", h.weights, TOUR_SHAPE(TOKENS, TOKENS)), tour_head_words);
    show_dropped_weights(t, &h);

    mha_rng_manual_seed(&rng, TOUR_SEED);
    TOUR_TRY(mha_rng_dropout_mask(&rng, rate, MHA_RNG_ROUTE_DEFAULT, keep, TOKENS * TOKENS, &t->error));
    for (int n = 0; n < TOKENS * TOKENS; n++)
        seen[n] = keep[n];
    desc.dropout = rate;
    desc.inputs = MHA_ATTN_DROPOUT_KEEP;
    const mha_attn_args args = {.size = sizeof args,
                                .q.data = h.q,
                                .k.data = h.k,
                                .v.data = h.v,
                                .out.data = h.out,
                                .dropout_keep = {keep, {0, 0, TOKENS, 1}},
                                .scores.data = h.scores,
                                .probs.data = h.weights};
    TOUR_TRY(mha_attention(t->ctx, &desc, &args, &t->error));
    tour_say(t, "Inside the operator", "mha_rng_dropout_mask, mha_attention, .dropout = 0.2, MHA_ATTN_DROPOUT_KEEP",
             "The operator can apply a given mask while it sums the values. It can also sample the mask from a seed "
             "and the position of each weight; the backward pass then samples the same mask. The returned weights are "
             "the weights before dropout.");
    tour_name_words(t, tour_show_weights(t, "keep", seen, TOUR_SHAPE(TOKENS, TOKENS)), tour_head_words);
    tour_show(t, "output", h.out, TOUR_SHAPE(TOKENS, WIDTH));
}
