/* tour_of_llama.c - the tour of attention in the LLaMA family: rotary position embeddings, cached keys and values
 * (tour_of_llama_cache.c), and keys and values that query heads share. */
#include "tour/walks/tour_of_llama.h"

#include "tour/tour_layer.h"
#include "tour/tours.h"
#include <string.h>

enum { SEED = 82, WIDTH = 8, HEADS = 2 };

static mha_status begin(llama_walk *w)
{
    tour *t = w->t;
    w->width = tour_width(t, WIDTH), w->heads = tour_heads(t, HEADS), w->tokens = LLAMA_TOKENS;
    if (tour_check_heads(t, w->width, w->heads) != MHA_OK) return t->error.status;
    w->D = w->width / w->heads;
    if (w->D % 2 != 0)
        tour_fail(t, MHA_ERR_ARG, "the width of a head must be even for rotary positions (got %lld)", (long long)w->D);
    if (t->error.status == MHA_OK && t->choice.text && tour_read_words(t, "", &w->words) == MHA_OK)
        w->tokens = w->words.count;
    w->past = w->tokens - 1;
    w->x = tour_floats(t, LLAMA_BATCH * w->tokens * w->width);
    w->output = tour_floats(t, LLAMA_BATCH * w->tokens * w->width);
    return t->error.status;
}

/* Samples tokens, or rows of an embedding for the words of the chosen text, which both sequences contain. */
static mha_status sample(llama_walk *w, mha_rng *rng)
{
    const int64_t each = w->tokens * w->width;
    if (!w->t->choice.text) return mha_rng_randn(rng, w->x, LLAMA_BATCH * each, &w->t->error);
    const mha_status status = tour_embed_words(w->t, &w->words, w->width, rng, w->x);
    memcpy(w->x + each, w->x, (size_t)each * sizeof *w->x);
    return status;
}

/* Initializes a layer from the seed, with or without rotation, then samples the tokens. */
static mha_status make(llama_walk *w, int rotary)
{
    tour *t = w->t;
    mha_rng rng;
    const mha_llama_attention_options options = {
        .size = sizeof options, .hidden_size = w->width, .num_heads = w->heads, .causal = 1, .rotary = rotary};
    mha_rng_manual_seed(&rng, tour_seed(t, SEED));
    mha_status status = mha_llama_attention_create(t->ctx, &options, tour_layer(t), &t->error);
    if (status == MHA_OK) status = mha_variant_init(t->layer, &rng, &t->error);
    if (status == MHA_OK) status = sample(w, &rng);
    return status == MHA_OK ? tour_load_layer(t) : status;
}

/* ---- rotary position embeddings ---- */

static void show_angles(llama_walk *w)
{
    tour *t = w->t;
    const int64_t half = w->D / 2;
    float *cosine = tour_floats(t, w->tokens * half), *sine = tour_floats(t, w->tokens * half);
    const mha_rope_options rope = {.size = sizeof rope, .head_dim = w->D};
    TOUR_TRY(t->error.status);
    TOUR_TRY(mha_rope_angles(&rope, NULL, w->tokens, cosine, sine, &t->error));
    tour_say(t, "An angle for each position", "mha_rope_angles",
             "The projections do not depend on positions. Elements i and i + %lld of a head are the coordinates of a "
             "point in the plane, rotated by position * 10000^(-i / %lld): pair 0 by one radian per token%s. Cosines "
             "and sines are %s.",
             (long long)half, (long long)half,
             half == 1 ? "" : tour_format(t, ", pair 1 by %.4g radian", (double)sine[half + 1]),
             TOUR_DIMS(t, w->tokens, half));
    tour_show(t, "cos", cosine, TOUR_SHAPE(w->tokens, half));
    tour_show(t, "sin", sine, TOUR_SHAPE(w->tokens, half));
}

static void show_tokens(llama_walk *w)
{
    tour *t = w->t;
    const char *shape = TOUR_DIMS(t, LLAMA_BATCH, w->tokens, w->width);
    if (t->choice.text)
        tour_say(t, "Tokens", "mha_rng_embedding, mha_embedding_forward",
                 "The input is %s: two copies of the words \"%s\", with a row of an embedding for each word.", shape,
                 w->words.text);
    else
        tour_say(t, "Tokens", "mha_rng_randn", "The input is %s: two sequences of %s with %s each.", shape,
                 tour_many(t, w->tokens, "token"), tour_many(t, w->width, "feature"));
    tour_show(t, "x", w->x, TOUR_SHAPE(LLAMA_BATCH, w->tokens, w->width));
}

static void show_plain(llama_walk *w)
{
    tour *t = w->t;
    TOUR_TRY(make(w, 0));
    const mha_variant_input in = {.size = sizeof in, .batch = LLAMA_BATCH, .q_len = w->tokens, .query = w->x};
    TOUR_TRY(mha_variant_forward(t->layer, &in, w->output, t->trace, &t->error));
    show_tokens(w);
    tour_say(t, "Queries, keys, values by head", "mha_llama_attention_create, mha_variant_init",
             "The layer has four matrices %s without biases. Each projection is viewed as %s and "
             "transposed to %s: batch, head, token, feature.",
             TOUR_DIMS(t, w->width, w->width), TOUR_DIMS(t, LLAMA_BATCH, w->tokens, w->heads, w->D),
             TOUR_DIMS(t, LLAMA_BATCH, w->heads, w->tokens, w->D));
    tour_show_qkv(t);
}

static void show_whole(llama_walk *w)
{
    tour *t = w->t;
    const int64_t n = w->tokens;
    const mha_variant_input in = {
        .size = sizeof in, .batch = LLAMA_BATCH, .q_len = n, .query = w->x, .want_scores = 1, .want_weights = 1};
    TOUR_TRY(mha_variant_forward(t->layer, &in, w->output, t->trace, &t->error));
    tour_say(t, "Rotated queries and keys", "mha_rope_turn, or mha_llama_attention_create (.rotary = 1)",
             "Queries and keys are rotated, values are not. Token 0 is unchanged. The dot product of a "
             "rotated query and a rotated key depends only on their distance, not on their positions.");
    tour_show_trace(t, "q_turned", MHA_STEP_Q);
    tour_show_trace(t, "k_turned", MHA_STEP_K);

    tour_say(t, "Weights", "mha_llama_attention_create (.causal = 1), MHA_STEP_SCORES, MHA_STEP_WEIGHTS",
             "The scores q k^T / sqrt(%lld) are %s. The causal mask and softmax in float32 give the weights.",
             (long long)w->D, TOUR_DIMS(t, LLAMA_BATCH, w->heads, n, n));
    tour_show_trace(t, "scores", MHA_STEP_SCORES);
    tour_tensor *weights = tour_show_trace(t, "weights", MHA_STEP_WEIGHTS);
    if (t->choice.text) tour_name_words(t, weights, w->words.word);

    tour_say(t, "Concatenated heads and output", "MHA_STEP_CONTEXT, mha_variant_forward",
             "The product weights v is %s. It is transposed back and viewed as rows of %s, the context "
             "%s, which is then multiplied by o_proj.",
             TOUR_DIMS(t, LLAMA_BATCH, w->heads, n, w->D), tour_count_word(t, w->width),
             TOUR_DIMS(t, LLAMA_BATCH, n, w->width));
    tour_show_trace(t, "context", MHA_STEP_CONTEXT);
    tour_show(t, "output", w->output, TOUR_SHAPE(LLAMA_BATCH, n, w->width));
}

/* ---- shared keys and values ---- */

/* Runs the layer with twice as many query heads, key/value heads for two query heads each, and no rotation. */
static mha_status run_grouped(llama_walk *w, int64_t tokens, uint64_t seed, float *x, float *output)
{
    tour *t = w->t;
    mha_rng rng;
    const mha_llama_attention_options options = {
        .size = sizeof options, .hidden_size = w->width, .num_heads = 2 * w->heads, .num_kv_heads = w->heads};
    const mha_variant_input in = {
        .size = sizeof in, .batch = LLAMA_BATCH, .q_len = tokens, .query = x, .want_weights = 1};
    mha_rng_manual_seed(&rng, seed);
    mha_status status = mha_llama_attention_create(t->ctx, &options, tour_layer(t), &t->error);
    if (status == MHA_OK) status = mha_variant_init(t->layer, &rng, &t->error);
    if (status == MHA_OK) status = mha_rng_randn(&rng, x, LLAMA_BATCH * tokens * w->width, &t->error);
    if (status == MHA_OK) status = mha_variant_forward(t->layer, &in, output, t->trace, &t->error);
    return status;
}

/* Counts the plain layer with twice as many heads. */
static mha_status count_plain(llama_walk *w, int64_t tokens, uint64_t seed, float *x, float *output)
{
    tour *t = w->t;
    mha_rng rng;
    const mha_standard_mha_options plain = {.size = sizeof plain, .d_model = w->width, .num_heads = 2 * w->heads};
    const mha_variant_input in = {.size = sizeof in, .batch = LLAMA_BATCH, .q_len = tokens, .query = x};
    mha_rng_manual_seed(&rng, seed);
    mha_status status = mha_rng_randn(&rng, x, LLAMA_BATCH * tokens * w->width, &t->error);
    if (status == MHA_OK) status = mha_standard_mha_create(t->ctx, &plain, tour_layer(t), &t->error);
    if (status == MHA_OK) status = mha_variant_init(t->layer, &rng, &t->error);
    if (status == MHA_OK) status = mha_variant_forward(t->layer, &in, output, t->trace, &t->error);
    return status;
}

/* Shows a layer with shared keys and values, compared with the plain layer. */
static void show_grouped(llama_walk *w)
{
    enum { SHORT = 4, OTHER_SEED = 61 };
    tour *t = w->t;
    const int64_t elements = LLAMA_BATCH * SHORT * w->width;
    const uint64_t seed = tour_seed(t, OTHER_SEED);
    float *x = tour_floats(t, elements), *output = tour_floats(t, elements);
    TOUR_TRY(t->error.status);
    TOUR_TRY(count_plain(w, SHORT, seed, x, output));
    const tour_count count = tour_counted(t, "plain");
    TOUR_TRY(run_grouped(w, SHORT, seed, x, output));
    tour_say(t, "Shared keys and values",
             tour_format(t, "mha_llama_attention_create (.num_heads = %lld, .num_kv_heads = %lld)",
                         (long long)(2 * w->heads), (long long)w->heads),
             "Larger models of the family share keys and values between query heads: %s for %s halve the cache. The "
             "layer shown here has no rotation and no mask, and is compared with the plain layer.",
             tour_many(t, w->heads, "key/value head"), tour_many(t, 2 * w->heads, "query head"));
    tour_show_trace(t, "grouped_weights", MHA_STEP_WEIGHTS);
    tour_show(t, "grouped_output", output, TOUR_SHAPE(LLAMA_BATCH, SHORT, w->width));
    tour_count_given(t, count);
    tour_count_layer(t,
                     tour_format(t, "%s for %s", tour_many(t, w->heads, "k/v head"), tour_count_word(t, 2 * w->heads)));
}

void tour_llama_attention(tour *t)
{
    llama_walk w = {.t = t};
    if (t->choice.model_chosen) {
        tour_show_layer(t, "Once upon a time there", TOUR_SHOWS_ROTARY);
        return;
    }
    TOUR_TRY(begin(&w));
    show_plain(&w);
    TOUR_TRY(t->error.status);
    show_angles(&w);
    TOUR_TRY(t->error.status);
    TOUR_TRY(make(&w, 1));
    show_whole(&w);
    if (t->error.status == MHA_OK) llama_show_cache(&w);
    if (t->error.status == MHA_OK) llama_show_pages(&w);
    if (t->error.status == MHA_OK) show_grouped(&w);
}
