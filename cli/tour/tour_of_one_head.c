/* tour_of_one_head.c - tours of one head step by step: self-attention and the causal mask. Each step adds one option to
 * a call of the operator; the last step is the layer that computes all steps in one call. */
#include <math.h>
#include <string.h>

#include "tour/tour_head.h"
#include "tour/tours.h"

/* ---- self-attention ---- */

/* Shows softmax of (x, 0) as attention: queries x, keys 1 and 0, values (1, 0) and (0, 1). */
static void show_curve(tour *t)
{
    enum { POINTS = 200 };
    float x[POINTS], pairs[2 * POINTS], points[2 * POINTS];
    const float keys[2] = {1, 0}, values[4] = {1, 0, 0, 1}, step = 10.0f / (POINTS - 1);
    for (int n = 0; n < POINTS; n++)
        x[n] = n < POINTS / 2 ? -5 + step * (float)n : 5 - step * (float)(POINTS - 1 - n);
    const mha_attn_desc desc = {.size = sizeof desc,
                                .batch = 1,
                                .heads = 1,
                                .q_len = POINTS,
                                .kv_len = 2,
                                .head_dim = 1,
                                .v_head_dim = 2,
                                .scale = 1};
    const mha_attn_args args = {.size = sizeof args, .q.data = x, .k.data = keys, .v.data = values, .out.data = pairs};
    TOUR_TRY(mha_attention(t->ctx, &desc, &args, &t->error));
    for (int n = 0; n < POINTS; n++) {
        points[2 * n] = x[n];
        points[2 * n + 1] = pairs[2 * n];
    }
    tour_say(t, "The softmax curve", "mha_attention, .v_head_dim = 2",
             "Softmax turns scores into fractions that sum to 1: e^x of each score, divided by the sum over all "
             "scores. For the two scores x and 0 the first fraction is e^x / (e^x + 1), plotted for x from -5 to 5: "
             "one half at x = 0, nearly 1 at x = 5. Column 0 is x, column 1 the fraction.");
    tour_show(t, "curve", points, TOUR_SHAPE(POINTS, 2))->look = TOUR_CURVE;
}

static void show_layer(tour *t, const float *x)
{
    float output[TOKENS * WIDTH];
    mha_rng rng;
    const mha_self_attention_options options = {.size = sizeof options, .d_in = WIDTH, .d_out = WIDTH};
    const mha_variant_input in = {.size = sizeof in, .batch = 1, .q_len = TOKENS, .query = x};
    mha_rng_manual_seed(&rng, TOUR_SEED);
    TOUR_TRY(mha_self_attention_create(t->ctx, &options, tour_layer(t), &t->error));
    TOUR_TRY(mha_variant_init(t->layer, &rng, &t->error));
    TOUR_TRY(mha_variant_forward(t->layer, &in, output, t->trace, &t->error));
    tour_say(t, "The same head as one layer", "mha_self_attention_create, mha_variant_init, mha_variant_forward",
             "This layer performs the same steps with trainable matrices. They are initialized as in nn.Linear, "
             "between -1/2 and 1/2 for four inputs, so the values differ.");
    tour_show(t, "layer_output", output, TOUR_SHAPE(TOKENS, WIDTH));
    tour_count_layer(t, "one head");
}

static void show_beginning(tour *t, const tour_head *h)
{
    tour_say(t, "A vector for each word", "mha_rng_manual_seed, mha_rng_embedding, mha_embedding_forward",
             "The words \"Once upon a time there\" have the ids 0 to 4, and each id selects a row of a "
             "table. The table is initialized from seed 123, as in nn.Embedding(5, 4). A row represents a "
             "word without its context; attention adds the context.");
    tour_show(t, "x", h->x, TOUR_SHAPE(TOKENS, WIDTH));

    tour_say(t, "Three matrices", "mha_rng_rand",
             "Queries, keys and values have one matrix each, initialized from [0, 1) after setting the seed "
             "to 123 again. Training would change these matrices, so their initial values matter little.");
    tour_show(t, "w_q", h->w_q, TOUR_SHAPE(WIDTH, WIDTH));
    tour_show(t, "w_k", h->w_k, TOUR_SHAPE(WIDTH, WIDTH));
    tour_show(t, "w_v", h->w_v, TOUR_SHAPE(WIDTH, WIDTH));

    tour_say(t, "Queries, keys, values", "mha_linear_create_stack (.transposed = 1), mha_linear_forward",
             "q = x w_q, k = x w_k, v = x w_v: [5, 4] times [4, 4] is [5, 4]. A query represents what a word searches "
             "for, a key what it can be found by, a value what it passes on.");
    tour_show(t, "q", h->q, TOUR_SHAPE(TOKENS, WIDTH));
    tour_show(t, "k", h->k, TOUR_SHAPE(TOKENS, WIDTH));
    tour_show(t, "v", h->v, TOUR_SHAPE(TOKENS, WIDTH));
}

void tour_self_attention(tour *t)
{
    tour_head h;
    mha_attn_desc desc = tour_head_desc();
    TOUR_TRY(tour_head_begin(t, &h));
    show_beginning(t, &h);

    desc.scale = 1;
    TOUR_TRY(tour_head_attend(t, &h, &desc));
    tour_say(t, "Scores", "mha_attention, .scale = 1, .scores = MHA_SCORES_RAW",
             "The scores are q k^T: [5, 4] times [4, 5] is [5, 5]. The element in row i and column j is the dot "
             "product of query i and key j: how well word j matches what word i searches for.");
    tour_name_words(t, tour_show(t, "scores", h.scores, TOUR_SHAPE(TOKENS, TOKENS)), tour_head_words);

    desc.scale = 0;
    TOUR_TRY(tour_head_attend(t, &h, &desc));
    tour_say(t, "Scaled scores", "mha_attention, .scale = 0 (1 / sqrt of .head_dim)",
             "The scores are divided by sqrt(4) = 2. A dot product is a sum over the width, so wider heads "
             "have larger scores. Dividing by the square root of the width makes their size independent of the width, "
             "so softmax does not saturate.");
    tour_name_words(t, tour_show(t, "scaled_scores", h.scores, TOUR_SHAPE(TOKENS, TOKENS)), tour_head_words);

    show_curve(t);

    tour_say(t, "Weights", "mha_attention, .outputs = MHA_ATTN_PROBS",
             "Softmax is applied to each row. Every row then sums to 1 and contains the weights with which a word "
             "attends to each word. The word \"upon\" attends to itself with weight %.4f.",
             (double)h.weights[TOKENS + 1]);
    tour_name_words(t, tour_show_weights(t, "weights", h.weights, TOUR_SHAPE(TOKENS, TOKENS)), tour_head_words);

    tour_say(t, "Output", "mha_attention, .out",
             "The output is weights v: [5, 5] times [5, 4] is [5, 4], the shape of x. Each output row is the mean of "
             "the values, weighted by a row of the weights. One call of the operator computes all these steps and "
             "stores the weights only on request.");
    tour_show(t, "output", h.out, TOUR_SHAPE(TOKENS, WIDTH));

    show_layer(t, h.x);
}

/* ---- the causal mask ---- */

/* Shows the mask: with all-zero queries the raw scores are 0, so the biased scores are the mask. */
static void show_mask(tour *t, const tour_head *given, const mha_attn_desc *desc)
{
    tour_head h = *given;
    memset(h.q, 0, sizeof h.q);
    TOUR_TRY(tour_head_attend(t, &h, desc));
    float seen[TOKENS * TOKENS];
    for (int n = 0; n < TOKENS * TOKENS; n++)
        seen[n] = isinf(h.scores[n]) ? 0 : 1;
    tour_say(t, "The mask", "mha_attention, .causal = 1, .scores = MHA_SCORES_BIASED, queries of zeros",
             "A model that generates text cannot read ahead: word i may attend to words 0 to i. As a mask of ones and "
             "zeros, this is a lower triangle; as a bias added to the scores, it is 0 for an unmasked word and -inf "
             "for a masked word.");
    tour_name_words(t, tour_show_weights(t, "seen", seen, TOUR_SHAPE(TOKENS, TOKENS)), tour_head_words);
    tour_name_words(t, tour_show(t, "mask", h.scores, TOUR_SHAPE(TOKENS, TOKENS)), tour_head_words);
}

/* Shows that masked keys and values may contain any value, even NaN. */
static void show_unread(tour *t, const tour_head *given, const mha_attn_desc *desc)
{
    tour_head h = *given;
    int same = 0;
    for (int d = 0; d < WIDTH; d++)
        h.k[(TOKENS - 1) * WIDTH + d] = h.v[(TOKENS - 1) * WIDTH + d] = NAN;
    TOUR_TRY(tour_head_attend(t, &h, desc));
    for (int i = 0; i < TOKENS; i++)
        same += memcmp(h.out + (ptrdiff_t)(i * WIDTH), given->out + (ptrdiff_t)(i * WIDTH), sizeof *h.out * WIDTH) == 0;
    tour_say(t, "Masked keys and values are not read", "mha_attention, .causal = 1",
             "The key and the value of the last word are NaN here. %d of 5 rows are bitwise unchanged, because only "
             "the last word attends to this key. Multiplying by a mask of zeros would make all rows NaN.",
             same);
    tour_show(t, "output_beside_nan", h.out, TOUR_SHAPE(TOKENS, WIDTH));
}

static void show_causal_layer(tour *t)
{
    enum { BATCH = 2 };
    float x[BATCH * TOKENS * WIDTH], output[BATCH * TOKENS * WIDTH];
    mha_rng rng;
    const mha_causal_attention_options options = {
        .size = sizeof options, .d_in = WIDTH, .d_out = WIDTH, .context_length = TOKENS};
    const mha_variant_input in = {.size = sizeof in, .batch = BATCH, .q_len = TOKENS, .query = x, .want_weights = 1};
    mha_rng_manual_seed(&rng, TOUR_SEED);
    TOUR_TRY(mha_rng_randn(&rng, x, BATCH * TOKENS * WIDTH, &t->error));
    TOUR_TRY(mha_causal_attention_create(t->ctx, &options, tour_layer(t), &t->error));
    TOUR_TRY(mha_variant_init(t->layer, &rng, &t->error));
    TOUR_TRY(mha_variant_forward(t->layer, &in, output, t->trace, &t->error));
    tour_say(t, "The causal layer on two sequences",
             "mha_causal_attention_create, mha_variant_init, mha_variant_forward",
             "The input is [2, 5, 4]: two sequences of five tokens, sampled like torch.randn from seed 123; the layer "
             "is then initialized. Row 0 of each sequence has one unmasked token, so the weight of this token is 1, "
             "and the output is its value.");
    tour_show(t, "layer_input", x, TOUR_SHAPE(BATCH, TOKENS, WIDTH));
    tour_show_trace(t, "layer_weights", MHA_STEP_WEIGHTS);
    tour_show(t, "layer_output", output, TOUR_SHAPE(BATCH, TOKENS, WIDTH));
    tour_count_layer(t, "one causal head");
}

void tour_causal_attention(tour *t)
{
    tour_head h;
    mha_attn_desc desc = tour_head_desc();
    TOUR_TRY(tour_head_begin(t, &h));
    TOUR_TRY(tour_head_attend(t, &h, &desc));
    tour_say(t, "Scores without a mask", "mha_attention, .scores = MHA_SCORES_RAW",
             "These are the scaled scores of five words, as in the tour self-attention: every word has a score for "
             "every word.");
    tour_name_words(t, tour_show(t, "scaled_scores", h.scores, TOUR_SHAPE(TOKENS, TOKENS)), tour_head_words);

    desc.causal = 1;
    desc.scores = MHA_SCORES_BIASED;
    show_mask(t, &h, &desc);

    TOUR_TRY(tour_head_attend(t, &h, &desc));
    tour_say(t, "Masked scores", "mha_attention, .causal = 1, .scores = MHA_SCORES_BIASED",
             "The mask is added to the scores. Unmasked words keep their score; every later word gets -inf.");
    tour_name_words(t, tour_show(t, "masked_scores", h.scores, TOUR_SHAPE(TOKENS, TOKENS)), tour_head_words);

    tour_say(t, "Masked weights", "mha_attention, .causal = 1, .outputs = MHA_ATTN_PROBS",
             "e^-inf is 0, so later words get weight 0, and each row still sums to 1 over the unmasked "
             "words.");
    tour_name_words(t, tour_show_weights(t, "weights", h.weights, TOUR_SHAPE(TOKENS, TOKENS)), tour_head_words);
    tour_show(t, "output", h.out, TOUR_SHAPE(TOKENS, WIDTH));

    show_unread(t, &h, &desc);
    show_causal_layer(t);
}
