/* tour_of_one_head.c - tours of one head step by step: self-attention and the causal mask. Each step adds one option to
 * a call of the operator; the last step is the layer that computes all steps in one call. */
#include "tour/tour_choice.h"
#include "tour/tour_head.h"
#include "tour/tours.h"
#include <math.h>
#include <string.h>

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

/* Returns the bound of nn.Linear, 1 / sqrt(width): "1/2" for 4. */
static const char *bound(tour *t, int64_t width)
{
    const int64_t root = (int64_t)lround(sqrt((double)width));
    return root * root == width ? tour_format(t, "1/%lld", (long long)root)
                                : tour_format(t, "1/sqrt(%lld)", (long long)width);
}

static void show_layer(tour *t, const tour_head *h)
{
    float *output = tour_floats(t, h->tokens * h->width);
    mha_rng rng;
    const mha_self_attention_options options = {.size = sizeof options, .d_in = h->width, .d_out = h->width};
    const mha_variant_input in = {.size = sizeof in, .batch = 1, .q_len = h->tokens, .query = h->x};
    mha_rng_manual_seed(&rng, tour_seed(t, TOUR_HEAD_SEED));
    TOUR_TRY(t->error.status);
    TOUR_TRY(mha_self_attention_create(t->ctx, &options, tour_layer(t), &t->error));
    TOUR_TRY(mha_variant_init(t->layer, &rng, &t->error));
    TOUR_TRY(mha_variant_forward(t->layer, &in, output, t->trace, &t->error));
    tour_say(t, "The same head as one layer", "mha_self_attention_create, mha_variant_init, mha_variant_forward",
             "This layer performs the same steps with trainable matrices. They are initialized as in nn.Linear, "
             "between -%s and %s for %s, so the values differ.",
             bound(t, h->width), bound(t, h->width), tour_many(t, h->width, "input"));
    tour_show(t, "layer_output", output, TOUR_SHAPE(h->tokens, h->width));
    tour_count_layer(t, "one head");
}

static void show_words(tour *t, const tour_head *h)
{
    if (h->model_name)
        tour_say(t, "A vector for each token", "mha_model_forward, .on_activations",
                 "The text \"%s\" has %s. The input of %s is %s: a row of hidden states for each token, after the norm "
                 "before the attention, if the model has one.",
                 h->text, tour_many(t, h->tokens, "token"), h->model_name, TOUR_DIMS(t, h->tokens, h->in));
    else
        tour_say(t, "A vector for each word", "mha_rng_manual_seed, mha_rng_embedding, mha_embedding_forward",
                 "The words \"%s\" have the ids 0 to %lld, and each id selects a row of a "
                 "table. The table is initialized from seed %llu, as in nn.Embedding(%lld, %lld). A row represents a "
                 "word without its context; attention adds the context.",
                 h->text, (long long)h->distinct - 1, (unsigned long long)tour_seed(t, TOUR_HEAD_SEED),
                 (long long)h->distinct, (long long)h->width);
    tour_show(t, "x", h->x, TOUR_SHAPE(h->tokens, h->in));
}

static void show_matrices(tour *t, const tour_head *h)
{
    if (h->model_name)
        tour_say(
            t, "Three matrices", "mha_head_weights",
            "Queries, keys and values have one matrix each, %s: the columns of head %lld in the projections of %s. "
            "A bias %s is added to each product.",
            TOUR_DIMS(t, h->in, h->width), (long long)h->head, h->model_name, TOUR_DIMS(t, h->width));
    else if (t->choice.weights)
        tour_say(t, "Three matrices", "mha_file_open, mha_tensors_read",
                 "Queries, keys and values have one matrix each. The matrices are read from the given file.");
    else
        tour_say(t, "Three matrices", "mha_rng_rand",
                 "Queries, keys and values have one matrix each, initialized from [0, 1) after setting the seed "
                 "to %llu again. Training would change these matrices, so their initial values matter little.",
                 (unsigned long long)tour_seed(t, TOUR_HEAD_SEED));
    tour_show(t, "w_q", h->w_q, TOUR_SHAPE(h->in, h->width));
    tour_show(t, "w_k", h->w_k, TOUR_SHAPE(h->in, h->width));
    tour_show(t, "w_v", h->w_v, TOUR_SHAPE(h->in, h->width));
    if (!h->b_q) return;
    tour_show(t, "b_q", h->b_q, TOUR_SHAPE(h->width));
    tour_show(t, "b_k", h->b_k, TOUR_SHAPE(h->width));
    tour_show(t, "b_v", h->b_v, TOUR_SHAPE(h->width));
}

static void show_projections(tour *t, const tour_head *h)
{
    const char *result = TOUR_DIMS(t, h->tokens, h->width);
    tour_say(t, "Queries, keys, values", "mha_linear_create_stack (.transposed = 1), mha_linear_forward",
             "q = x w_q%s, k = x w_k%s, v = x w_v%s: %s times %s is %s. A query represents what a word searches "
             "for, a key what it can be found by, a value what it passes on.",
             h->b_q ? " + b_q" : "", h->b_q ? " + b_k" : "", h->b_q ? " + b_v" : "", TOUR_DIMS(t, h->tokens, h->in),
             TOUR_DIMS(t, h->in, h->width), result);
    tour_show(t, "q", h->q, TOUR_SHAPE(h->tokens, h->width));
    tour_show(t, "k", h->k, TOUR_SHAPE(h->tokens, h->width));
    tour_show(t, "v", h->v, TOUR_SHAPE(h->tokens, h->width));
}

static void show_matrix(tour *t, const tour_head *h, const char *name, const float *values)
{
    tour_name_words(t, tour_show(t, name, values, TOUR_SHAPE(h->tokens, h->tokens)), h->words);
}

static void show_weights(tour *t, const tour_head *h, const char *name, const float *values)
{
    tour_name_words(t, tour_show_weights(t, name, values, TOUR_SHAPE(h->tokens, h->tokens)), h->words);
}

static void show_scores(tour *t, tour_head *h, mha_attn_desc desc)
{
    desc.scale = 1;
    TOUR_TRY(tour_head_attend(t, h, &desc));
    tour_say(t, "Scores", "mha_attention, .scale = 1, .scores = MHA_SCORES_RAW",
             "The scores are q k^T: %s times %s is %s. The element in row i and column j is the dot "
             "product of query i and key j: how well word j matches what word i searches for.",
             TOUR_DIMS(t, h->tokens, h->width), TOUR_DIMS(t, h->width, h->tokens), TOUR_DIMS(t, h->tokens, h->tokens));
    show_matrix(t, h, "scores", h->scores);

    desc.scale = 0;
    TOUR_TRY(tour_head_attend(t, h, &desc));
    tour_say(t, "Scaled scores", "mha_attention, .scale = 0 (1 / sqrt of .head_dim)",
             "The scores are divided by sqrt(%lld) = %.4g. A dot product is a sum over the width, so wider heads "
             "have larger scores. Dividing by the square root of the width makes their size independent of the width, "
             "so softmax does not saturate.",
             (long long)h->width, sqrt((double)h->width));
    show_matrix(t, h, "scaled_scores", h->scores);
}

void tour_self_attention(tour *t)
{
    tour_head h;
    TOUR_TRY(tour_head_begin(t, &h, false));
    show_words(t, &h);
    show_matrices(t, &h);
    show_projections(t, &h);
    show_scores(t, &h, tour_head_desc(&h));
    show_curve(t);

    tour_say(t, "Weights", "mha_attention, .outputs = MHA_ATTN_PROBS",
             "Softmax is applied to each row. Every row then sums to 1 and contains the weights with which a word "
             "attends to each word. The word \"%s\" attends to itself with weight %.4f.",
             h.words[1], (double)h.weights[h.tokens + 1]);
    show_weights(t, &h, "weights", h.weights);

    tour_say(t, "Output", "mha_attention, .out",
             "The output is weights v: %s times %s is %s, the shape of %s. Each output row is the mean of "
             "the values, weighted by a row of the weights. One call of the operator computes all these steps and "
             "stores the weights only on request.%s",
             TOUR_DIMS(t, h.tokens, h.tokens), TOUR_DIMS(t, h.tokens, h.width), TOUR_DIMS(t, h.tokens, h.width),
             h.model_name ? "v" : "x", tour_head_compare(t, &h));
    tour_show(t, "output", h.out, TOUR_SHAPE(h.tokens, h.width));

    if (!h.model_name) show_layer(t, &h);
}

/* ---- the causal mask ---- */

/* Shows the mask: with all-zero queries the raw scores are 0, so the biased scores are the mask. */
static void show_mask(tour *t, const tour_head *given, const mha_attn_desc *desc)
{
    const int64_t n = given->tokens;
    tour_head h = *given;
    float *seen = tour_floats(t, n * n);
    h.q = tour_floats(t, n * h.width);
    TOUR_TRY(t->error.status);
    TOUR_TRY(tour_head_attend(t, &h, desc));
    for (int64_t i = 0; i < n * n; i++)
        seen[i] = isinf(h.scores[i]) ? 0 : 1;
    tour_say(t, "The mask", "mha_attention, .causal = 1, .scores = MHA_SCORES_BIASED, queries of zeros",
             "A model that generates text cannot read ahead: word i may attend to words 0 to i. As a mask of ones and "
             "zeros, this is a lower triangle; as a bias added to the scores, it is 0 for an unmasked word and -inf "
             "for a masked word.");
    show_weights(t, &h, "seen", seen);
    show_matrix(t, &h, "mask", h.scores);
}

static float *copy_of(tour *t, const float *from, int64_t count)
{
    float *to = tour_floats(t, count);
    if (to) memcpy(to, from, (size_t)count * sizeof *to);
    return to;
}

/* Shows that masked keys and values may contain any value, even NaN. */
static void show_unread(tour *t, const tour_head *given, const mha_attn_desc *desc)
{
    const int64_t n = given->tokens, width = given->width;
    tour_head h = *given;
    int same = 0;
    h.k = copy_of(t, given->k, n * width);
    h.v = copy_of(t, given->v, n * width);
    h.out = tour_floats(t, n * width);
    TOUR_TRY(t->error.status);
    for (int64_t d = 0; d < width; d++)
        h.k[(n - 1) * width + d] = h.v[(n - 1) * width + d] = NAN;
    TOUR_TRY(tour_head_attend(t, &h, desc));
    for (int64_t i = 0; i < n; i++)
        same += memcmp(h.out + i * width, given->out + i * width, sizeof *h.out * (size_t)width) == 0;
    tour_say(t, "Masked keys and values are not read", "mha_attention, .causal = 1",
             "The key and the value of the last word are NaN here. %d of %lld rows are bitwise unchanged, because only "
             "the last word attends to this key. Multiplying by a mask of zeros would make all rows NaN.",
             same, (long long)n);
    tour_show(t, "output_beside_nan", h.out, TOUR_SHAPE(n, width));
}

static void show_causal_layer(tour *t, const tour_head *h)
{
    enum { BATCH = 2 };
    const int64_t n = h->tokens, width = h->width;
    const uint64_t seed = tour_seed(t, TOUR_HEAD_SEED);
    float *x = tour_floats(t, BATCH * n * width), *output = tour_floats(t, BATCH * n * width);
    mha_rng rng;
    const mha_causal_attention_options options = {
        .size = sizeof options, .d_in = width, .d_out = width, .context_length = n};
    const mha_variant_input in = {.size = sizeof in, .batch = BATCH, .q_len = n, .query = x, .want_weights = 1};
    mha_rng_manual_seed(&rng, seed);
    TOUR_TRY(t->error.status);
    TOUR_TRY(mha_rng_randn(&rng, x, BATCH * n * width, &t->error));
    TOUR_TRY(mha_causal_attention_create(t->ctx, &options, tour_layer(t), &t->error));
    TOUR_TRY(mha_variant_init(t->layer, &rng, &t->error));
    TOUR_TRY(mha_variant_forward(t->layer, &in, output, t->trace, &t->error));
    tour_say(t, "The causal layer on two sequences",
             "mha_causal_attention_create, mha_variant_init, mha_variant_forward",
             "The input is %s: two sequences of %s, sampled like torch.randn from seed %llu; the layer "
             "is then initialized. Row 0 of each sequence has one unmasked token, so the weight of this token is 1, "
             "and the output is its value.",
             TOUR_DIMS(t, BATCH, n, width), tour_many(t, n, "token"), (unsigned long long)seed);
    tour_show(t, "layer_input", x, TOUR_SHAPE(BATCH, n, width));
    tour_show_trace(t, "layer_weights", MHA_STEP_WEIGHTS);
    tour_show(t, "layer_output", output, TOUR_SHAPE(BATCH, n, width));
    tour_count_layer(t, "one causal head");
}

static void show_unmasked(tour *t, const tour_head *h)
{
    if (h->model_name)
        tour_say(t, "Scores without a mask", "mha_model_forward, mha_head_weights, mha_attention",
                 "These are the scaled scores of head %lld of %s on the text \"%s\", %s: every token has a score for "
                 "every token. The tour weight-split shows the projections.",
                 (long long)h->head, h->model_name, h->text, tour_many(t, h->tokens, "token"));
    else
        tour_say(t, "Scores without a mask", "mha_attention, .scores = MHA_SCORES_RAW",
                 "These are the scaled scores of %s, as in the tour self-attention: every word has a score for "
                 "every word.",
                 tour_many(t, h->tokens, "word"));
    show_matrix(t, h, "scaled_scores", h->scores);
}

void tour_causal_attention(tour *t)
{
    tour_head h;
    TOUR_TRY(tour_head_begin(t, &h, true));
    mha_attn_desc desc = tour_head_desc(&h);
    TOUR_TRY(tour_head_attend(t, &h, &desc));
    show_unmasked(t, &h);

    desc.causal = 1;
    desc.scores = MHA_SCORES_BIASED;
    show_mask(t, &h, &desc);

    TOUR_TRY(tour_head_attend(t, &h, &desc));
    tour_say(t, "Masked scores", "mha_attention, .causal = 1, .scores = MHA_SCORES_BIASED",
             "The mask is added to the scores. Unmasked words keep their score; every later word gets -inf.");
    show_matrix(t, &h, "masked_scores", h.scores);

    tour_say(t, "Masked weights", "mha_attention, .causal = 1, .outputs = MHA_ATTN_PROBS",
             "e^-inf is 0, so later words get weight 0, and each row still sums to 1 over the unmasked "
             "words.%s",
             tour_head_compare(t, &h));
    show_weights(t, &h, "weights", h.weights);
    tour_show(t, "output", h.out, TOUR_SHAPE(h.tokens, h.width));

    show_unread(t, &h, &desc);
    if (!h.model_name) show_causal_layer(t, &h);
}
