/* tour_of_llama.c - the tour of attention in the LLaMA family: rotary position embeddings, cached keys and values. */
#include <string.h>

#include "tour/tours.h"

enum { SEED = 82, BATCH = 2, TOKENS = 6, WIDTH = 8, HEADS = 2, D = WIDTH / HEADS, PAST = TOKENS - 1 };

/* Initializes a layer from the seed, with or without rotation, then samples the tokens. */
static mha_status make(tour *t, int rotary, float *x)
{
    mha_rng rng;
    const mha_llama_attention_options options = {
        .size = sizeof options, .hidden_size = WIDTH, .num_heads = HEADS, .causal = 1, .rotary = rotary};
    mha_rng_manual_seed(&rng, SEED);
    mha_status status = mha_llama_attention_create(t->ctx, &options, tour_layer(t), &t->error);
    if (status == MHA_OK) status = mha_variant_init(t->layer, &rng, &t->error);
    if (status == MHA_OK) status = mha_rng_randn(&rng, x, BATCH * TOKENS * WIDTH, &t->error);
    return status;
}

/* ---- rotary position embeddings ---- */

static void show_angles(tour *t)
{
    float cosine[TOKENS * D / 2], sine[TOKENS * D / 2];
    const mha_rope_options rope = {.size = sizeof rope, .head_dim = D};
    TOUR_TRY(mha_rope_angles(&rope, NULL, TOKENS, cosine, sine, &t->error));
    tour_say(t, "An angle for each position", "mha_rope_angles",
             "The projections do not depend on positions. Elements i and i + 2 of a head are the coordinates of a "
             "point in the plane, rotated by position * 10000^(-i / 2): pair 0 by one radian per token, pair 1 by 0.01 "
             "radian. Cosines and sines are [6, 2].");
    tour_show(t, "cos", cosine, TOUR_SHAPE(TOKENS, D / 2));
    tour_show(t, "sin", sine, TOUR_SHAPE(TOKENS, D / 2));
}

static void show_plain(tour *t, float *x)
{
    float output[BATCH * TOKENS * WIDTH];
    TOUR_TRY(make(t, 0, x));
    const mha_variant_input in = {.size = sizeof in, .batch = BATCH, .q_len = TOKENS, .query = x};
    TOUR_TRY(mha_variant_forward(t->layer, &in, output, t->trace, &t->error));
    tour_say(t, "Tokens", "mha_rng_randn",
             "The input is [2, 6, 8]: two sequences of six tokens with eight features each.");
    tour_show(t, "x", x, TOUR_SHAPE(BATCH, TOKENS, WIDTH));

    tour_say(t, "Queries, keys, values by head", "mha_llama_attention_create, mha_variant_init",
             "The layer has four matrices [8, 8] without biases. Each projection is viewed as [2, 6, 2, 4] and "
             "transposed to [2, 2, 6, 4]: batch, head, token, feature.");
    tour_show_qkv(t);
}

static void show_whole(tour *t, const float *x, float *output)
{
    const mha_variant_input in = {
        .size = sizeof in, .batch = BATCH, .q_len = TOKENS, .query = x, .want_scores = 1, .want_weights = 1};
    TOUR_TRY(mha_variant_forward(t->layer, &in, output, t->trace, &t->error));
    tour_say(t, "Rotated queries and keys", "mha_rope_turn, or mha_llama_attention_create (.rotary = 1)",
             "Queries and keys are rotated, values are not. Token 0 is unchanged. The dot product of a "
             "rotated query and a rotated key depends only on their distance, not on their positions.");
    tour_show_trace(t, "q_turned", MHA_STEP_Q);
    tour_show_trace(t, "k_turned", MHA_STEP_K);

    tour_say(t, "Weights", "mha_llama_attention_create (.causal = 1), MHA_STEP_SCORES, MHA_STEP_WEIGHTS",
             "The scores q k^T / sqrt(4) are [2, 2, 6, 6]. The causal mask and softmax in float32 give the weights.");
    tour_show_trace(t, "scores", MHA_STEP_SCORES);
    tour_show_trace(t, "weights", MHA_STEP_WEIGHTS);

    tour_say(t, "Concatenated heads and output", "MHA_STEP_CONTEXT, mha_variant_forward",
             "The product weights v is [2, 2, 6, 4]. It is transposed back and viewed as rows of eight, the context "
             "[2, 6, 8], which is then multiplied by o_proj.");
    tour_show_trace(t, "context", MHA_STEP_CONTEXT);
    tour_show(t, "output", output, TOUR_SHAPE(BATCH, TOKENS, WIDTH));
}

/* ---- KV cache ---- */

/* Keys and values cached by earlier calls. */
typedef struct cache {
    float k[BATCH * HEADS * TOKENS * D], v[BATCH * HEADS * TOKENS * D];
} cache;

static void keep(const tour *t, mha_step step, float *to)
{
    mha_step_view view;
    if (!mha_trace_step(t->trace, step, &view)) return;
    for (int64_t row = 0; row < view.shape[0] * view.shape[1] * view.shape[2]; row++, to += D) {
        const int64_t token = row % view.shape[2], head = row / view.shape[2] % view.shape[1],
                      b = row / view.shape[2] / view.shape[1];
        memcpy(to, (const float *)view.data + b * view.stride[0] + head * view.stride[1] + token * view.stride[2],
               D * sizeof *to);
    }
}

/* Copies rows `first` to first + n - 1 of every sequence. */
static void take(float *to, const float *from, int64_t first, int64_t n)
{
    for (int64_t b = 0; b < BATCH; b++)
        memcpy(to + b * n * WIDTH, from + (b * TOKENS + first) * WIDTH, (size_t)(n * WIDTH) * sizeof *to);
}

/* Runs the layer on rows `past` to past + n - 1 and caches their keys and values. */
static mha_status advance(tour *t, cache *c, const float *x, int64_t past, int64_t n, float *output)
{
    float rows[BATCH * TOKENS * WIDTH];
    take(rows, x, past, n);
    const mha_variant_input in = {.size = sizeof in,
                                  .batch = BATCH,
                                  .q_len = n,
                                  .query = rows,
                                  .past_len = past,
                                  .past_key = past ? c->k : NULL,
                                  .past_value = past ? c->v : NULL,
                                  .want_weights = 1};
    const mha_status status = mha_variant_forward(t->layer, &in, output, t->trace, &t->error);
    if (status != MHA_OK) return status;
    keep(t, MHA_STEP_K, c->k);
    keep(t, MHA_STEP_V, c->v);
    return MHA_OK;
}

static void show_cache(tour *t, const float *x, const float *whole, tour_count again)
{
    cache c;
    float first[BATCH * PAST * WIDTH], one[BATCH * WIDTH], last[BATCH * WIDTH];
    TOUR_TRY(advance(t, &c, x, 0, PAST, first));
    tour_say(t, "Five cached tokens", "MHA_STEP_K, MHA_STEP_V of the trace",
             "A decoder that generates one token at a time would compute the keys and values of all earlier "
             "tokens at every step. These keys and values do not change, so they are cached, with the keys already "
             "rotated: [2, 2, 5, 4] each.");
    tour_show(t, "key_cache", c.k, TOUR_SHAPE(BATCH, HEADS, PAST, D));
    tour_show(t, "value_cache", c.v, TOUR_SHAPE(BATCH, HEADS, PAST, D));

    TOUR_TRY(advance(t, &c, x, PAST, 1, one));
    take(last, whole, PAST, 1);
    tour_say(t, "The sixth token alone", "mha_variant_input, .past_len = 5, .past_key, .past_value",
             "One query attends to six keys, five of them cached: weights [2, 2, 1, 6], output [2, 1, 8]. It "
             "%s row 5 of the whole sequence computed in one call.",
             memcmp(one, last, sizeof one) == 0 ? "is bitwise identical to" : "differs from");
    tour_show_trace(t, "weights_of_one", MHA_STEP_WEIGHTS);
    tour_show(t, "output_of_one", one, TOUR_SHAPE(BATCH, 1, WIDTH));
    tour_count_given(t, again);
    tour_count_layer(t, "the sixth token alone");
}

/* Returns a view of row `token` of a step [B, H, L, D]. */
static mha_cview row_of(const mha_step_view *step, int64_t token)
{
    return (mha_cview){(const float *)step->data + token * step->stride[2],
                       {step->stride[0], step->stride[1], step->stride[2], step->stride[3]}};
}

/* For each token, appends its key and value to the cache and attends to all cached tokens. */
static mha_status attend_in_pages(tour *t, mha_cache *pages, float *context)
{
    mha_step_view q, k, v;
    mha_status status = MHA_OK;
    if (!mha_trace_step(t->trace, MHA_STEP_Q, &q) || !mha_trace_step(t->trace, MHA_STEP_K, &k) ||
        !mha_trace_step(t->trace, MHA_STEP_V, &v))
        return MHA_ERR_ARG;
    for (int64_t i = 0; i < TOKENS && status == MHA_OK; i++) {
        const mha_cache_tokens fresh = {.size = sizeof fresh, .count = 1, .k = row_of(&k, i), .v = row_of(&v, i)};
        mha_attn_desc desc = {.size = sizeof desc, .heads = HEADS, .q_len = 1, .causal = 1};
        mha_attn_args args = {
            .size = sizeof args, .q = row_of(&q, i), .out = {context + i * WIDTH, {TOKENS * WIDTH, D, WIDTH, 1}}};
        status = mha_cache_append(pages, MHA_CACHE_ALL, &fresh, &t->error);
        if (status == MHA_OK) status = mha_cache_bind(pages, MHA_CACHE_ALL, NULL, &desc, &args, &t->error);
        if (status == MHA_OK) status = mha_attention(t->ctx, &desc, &args, &t->error);
    }
    return status;
}

static void show_pages(tour *t, const float *x)
{
    float output[BATCH * TOKENS * WIDTH], context[BATCH * TOKENS * WIDTH];
    mha_cache *pages = NULL;
    mha_step_view whole;
    const mha_cache_desc desc = {.size = sizeof desc, .batch = BATCH, .kv_heads = HEADS, .head_dim = D};
    const mha_variant_input in = {.size = sizeof in, .batch = BATCH, .q_len = TOKENS, .query = x};
    TOUR_TRY(mha_variant_forward(t->layer, &in, output, t->trace, &t->error));
    TOUR_TRY(mha_cache_create(t->ctx, &desc, &pages, &t->error));
    const mha_status status = attend_in_pages(t, pages, context);
    const long long held = mha_cache_pages(pages);
    mha_cache_free(pages);
    TOUR_TRY(status);
    const bool same = mha_trace_step(t->trace, MHA_STEP_CONTEXT, &whole) && whole.stride[1] == WIDTH &&
                      whole.stride[0] == (int64_t)TOKENS * WIDTH && memcmp(context, whole.data, sizeof context) == 0;
    tour_say(t, "A paged cache, token by token", "mha_cache_create, mha_cache_append, mha_cache_bind, mha_attention",
             "A model stores keys and values in pages of 128 tokens, so that a sequence can grow without being "
             "copied. Here, the six tokens are appended one at a time, and each token attends to all cached tokens. "
             "The cache has %lld pages for the two sequences. The context %s the context computed in one call.",
             held, same ? "is bitwise identical to" : "differs from");
    tour_show(t, "context_in_pages", context, TOUR_SHAPE(BATCH, TOKENS, WIDTH));
}

/* Shows the layer with four query heads, two key/value heads and no rotation, compared with the plain layer. */
static void show_grouped(tour *t)
{
    enum { SHORT = 4, OTHER_SEED = 61 };
    float x[BATCH * SHORT * WIDTH], output[BATCH * SHORT * WIDTH];
    mha_rng rng;
    const mha_standard_mha_options plain = {.size = sizeof plain, .d_model = WIDTH, .num_heads = 4};
    const mha_llama_attention_options options = {
        .size = sizeof options, .hidden_size = WIDTH, .num_heads = 4, .num_kv_heads = 2};
    const mha_variant_input in = {.size = sizeof in, .batch = BATCH, .q_len = SHORT, .query = x, .want_weights = 1};
    mha_rng_manual_seed(&rng, OTHER_SEED);
    TOUR_TRY(mha_rng_randn(&rng, x, BATCH * SHORT * WIDTH, &t->error));
    TOUR_TRY(mha_standard_mha_create(t->ctx, &plain, tour_layer(t), &t->error));
    TOUR_TRY(mha_variant_init(t->layer, &rng, &t->error));
    TOUR_TRY(mha_variant_forward(t->layer, &in, output, t->trace, &t->error));
    const tour_count count = tour_counted(t, "plain");

    mha_rng_manual_seed(&rng, OTHER_SEED);
    TOUR_TRY(mha_llama_attention_create(t->ctx, &options, tour_layer(t), &t->error));
    TOUR_TRY(mha_variant_init(t->layer, &rng, &t->error));
    TOUR_TRY(mha_rng_randn(&rng, x, BATCH * SHORT * WIDTH, &t->error));
    TOUR_TRY(mha_variant_forward(t->layer, &in, output, t->trace, &t->error));
    tour_say(t, "Shared keys and values", "mha_llama_attention_create (.num_heads = 4, .num_kv_heads = 2)",
             "Larger models of the family share keys and values between query heads: two key/value heads for four "
             "query heads halve the cache. The layer shown here has no rotation and no mask, and is compared with the "
             "plain layer.");
    tour_show_trace(t, "grouped_weights", MHA_STEP_WEIGHTS);
    tour_show(t, "grouped_output", output, TOUR_SHAPE(BATCH, SHORT, WIDTH));
    tour_count_given(t, count);
    tour_count_layer(t, "two k/v heads for four");
}

void tour_llama_attention(tour *t)
{
    float x[BATCH * TOKENS * WIDTH], output[BATCH * TOKENS * WIDTH];
    show_plain(t, x);
    show_angles(t);
    TOUR_TRY(make(t, 1, x));
    show_whole(t, x, output);
    if (t->error.status == MHA_OK) show_cache(t, x, output, tour_counted(t, "all six tokens in one call"));
    if (t->error.status == MHA_OK) show_pages(t, x);
    show_grouped(t);
}
