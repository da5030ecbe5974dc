/* tour_of_dropout.c - the tour of dropout on a matrix of ones, on the weights of five words, and in the operator. */
#include "tour/tour_choice.h"
#include "tour/tour_head.h"
#include "tour/tours.h"

static const double RATE = 0.2;

/* Shows dropout of a matrix of ones [side, side]; *zeros receives the number of elements that become 0. */
static void show_small(tour *t, mha_rng *rng, int64_t side, int *zeros)
{
    const int64_t count = side * side;
    const double expected = RATE * (double)count;
    float *ones = tour_floats(t, count), *dropped = tour_floats(t, count);
    double sum = 0;
    for (int64_t n = 0; ones && n < count; n++)
        ones[n] = 1;
    tour_say(t, "Ones", NULL,
             "Dropout with rate 0.2 is first applied to a matrix of ones, where its effect is visible.");
    TOUR_TRY(t->error.status);
    tour_show(t, "ones", ones, TOUR_SHAPE(side, side));

    TOUR_TRY(mha_rng_dropout(rng, RATE, MHA_RNG_ROUTE_DEFAULT, ones, dropped, count, &t->error));
    for (int64_t n = 0; n < count; n++) {
        *zeros += dropped[n] == 0;
        sum += (double)dropped[n] / (double)count;
    }
    tour_say(t, "Ones after dropout", "mha_rng_manual_seed, mha_rng_dropout",
             "Each element becomes 0 with probability 0.2; all other elements are multiplied by 1 / (1 - 0.2) = 1.25, "
             "so that the expected mean remains 1. With seed %llu, %d of the %lld elements become 0, %s %g, and the "
             "mean is %.2f.",
             (unsigned long long)tour_seed(t, TOUR_HEAD_SEED), *zeros, (long long)count,
             *zeros == expected ? "the expected" : "not", expected, sum);
    tour_show(t, "dropped", dropped, TOUR_SHAPE(side, side));
    tour_show(t, "zeros", &(float){(float)*zeros}, 0, NULL)->look = TOUR_WHOLE;
    tour_show_number(t, "mean", sum);
}

static void show_ones(tour *t, int64_t side, int *zeros)
{
    enum { MANY = 500 };
    float *ones = tour_floats(t, MANY * MANY);
    double large = 0;
    mha_rng rng;
    mha_rng_manual_seed(&rng, tour_seed(t, TOUR_HEAD_SEED));
    show_small(t, &rng, side, zeros);
    TOUR_TRY(t->error.status);
    for (int n = 0; n < MANY * MANY; n++)
        ones[n] = 1;
    TOUR_TRY(mha_rng_dropout(&rng, RATE, MHA_RNG_ROUTE_DEFAULT, ones, ones, MANY * MANY, &t->error));
    for (int n = 0; n < MANY * MANY; n++)
        large += (double)ones[n] / (MANY * MANY);
    tour_say(t, "Dropout on many elements", "mha_rng_dropout",
             "After dropout on 500 by 500 ones, the mean is close to 1. A head of a real model has even more weights.");
    tour_show_number(t, "mean_of_250000", large);
}

static void show_map(tour *t, const tour_head *h, const char *name, const float *values, tour_look look)
{
    tour_tensor *tensor = tour_show(t, name, values, TOUR_SHAPE(h->tokens, h->tokens));
    tensor->look = look;
    tour_name_words(t, tensor, h->words);
}

static void show_dropped_weights(tour *t, const tour_head *h, int zeros)
{
    float *dropped = tour_floats(t, h->tokens * h->tokens);
    mha_rng rng;
    mha_rng_manual_seed(&rng, tour_seed(t, TOUR_HEAD_SEED));
    TOUR_TRY(t->error.status);
    TOUR_TRY(mha_rng_dropout(&rng, RATE, MHA_RNG_ROUTE_DEFAULT, h->weights, dropped, h->tokens * h->tokens, &t->error));
    tour_say(t, "Weights after dropout", "mha_rng_dropout",
             "The same mask is applied to the attention weights: the result is 0 at %s%s and 1.25 "
             "times the weight elsewhere. Rows no longer sum to 1, but their expected sum is 1.",
             zeros ? "the same " : "", tour_many(t, zeros, "position"));
    show_map(t, h, "dropped_weights", dropped, TOUR_NUMBERS);
}

static void show_operator(tour *t, const tour_head *h, mha_attn_desc desc)
{
    const int64_t n = h->tokens;
    mha_rng rng;
    uint8_t *keep = tour_memory(t, (size_t)(n * n));
    float *seen = tour_floats(t, n * n);
    mha_rng_manual_seed(&rng, tour_seed(t, TOUR_HEAD_SEED));
    TOUR_TRY(t->error.status);
    TOUR_TRY(mha_rng_dropout_mask(&rng, RATE, MHA_RNG_ROUTE_DEFAULT, keep, n * n, &t->error));
    for (int64_t i = 0; i < n * n; i++)
        seen[i] = keep[i];
    desc.dropout = RATE;
    desc.inputs = MHA_ATTN_DROPOUT_KEEP;
    const mha_attn_args args = {.size = sizeof args,
                                .q.data = h->q,
                                .k.data = h->k,
                                .v.data = h->v,
                                .out.data = h->out,
                                .dropout_keep = {keep, {0, 0, n, 1}},
                                .scores.data = h->scores,
                                .probs.data = h->weights};
    TOUR_TRY(mha_attention(t->ctx, &desc, &args, &t->error));
    tour_say(t, "Inside the operator", "mha_rng_dropout_mask, mha_attention, .dropout = 0.2, MHA_ATTN_DROPOUT_KEEP",
             "The operator can apply a given mask while it sums the values. It can also sample the mask from a seed "
             "and the position of each weight; the backward pass then samples the same mask. The returned weights are "
             "the weights before dropout.");
    show_map(t, h, "keep", seen, TOUR_WEIGHTS);
    tour_show(t, "output", h->out, TOUR_SHAPE(n, h->width));
}

void tour_dropout(tour *t)
{
    tour_head h;
    int zeros = 0;
    TOUR_TRY(tour_head_begin(t, &h, true));
    mha_attn_desc desc = tour_head_desc(&h);
    desc.causal = 1;
    TOUR_TRY(tour_head_attend(t, &h, &desc));
    show_ones(t, h.tokens, &zeros);
    tour_say(t, "Weights", "mha_attention, .causal = 1, .outputs = MHA_ATTN_PROBS",
             "Attention applies dropout to the weights, after softmax, so that a token does not rely on a single other "
             "token. The weights are from the tour causal-attention.");
    show_map(t, &h, "weights", h.weights, TOUR_WEIGHTS);
    show_dropped_weights(t, &h, zeros);
    show_operator(t, &h, desc);
}
