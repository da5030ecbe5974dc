/* tour_of_llama.c - the tour of attention in the LLaMA family: rotary position embeddings, cached keys and values. */
#include <string.h>

#include "tour/tour_choice.h"
#include "tour/tour_layer.h"
#include "tour/tours.h"

enum { SEED = 82, BATCH = 2, TOKENS = 6, WIDTH = 8, HEADS = 2 };

/* Sizes, and the tokens x and outputs [BATCH, tokens, width]. */
typedef struct walk {
    tour *t;
    int64_t tokens, past, width, heads, D; /* past: tokens - 1; D: width of a head */
    tour_words words;                      /* the chosen text */
    float *x, *output;
} walk;

static mha_status begin(walk *w)
{
    tour *t = w->t;
    w->width = tour_width(t, WIDTH), w->heads = tour_heads(t, HEADS), w->tokens = TOKENS;
    if (tour_check_heads(t, w->width, w->heads) != MHA_OK) return t->error.status;
    w->D = w->width / w->heads;
    if (w->D % 2 != 0)
        tour_fail(t, MHA_ERR_ARG, "the width of a head must be even for rotary positions (got %lld)", (long long)w->D);
    if (t->error.status == MHA_OK && t->choice.text && tour_read_words(t, "", &w->words) == MHA_OK)
        w->tokens = w->words.count;
    w->past = w->tokens - 1;
    w->x = tour_floats(t, BATCH * w->tokens * w->width);
    w->output = tour_floats(t, BATCH * w->tokens * w->width);
    return t->error.status;
}

/* Samples tokens, or rows of an embedding for the words of the chosen text, which both sequences contain. */
static mha_status sample(walk *w, mha_rng *rng)
{
    const int64_t each = w->tokens * w->width;
    if (!w->t->choice.text) return mha_rng_randn(rng, w->x, BATCH * each, &w->t->error);
    const mha_status status = tour_embed_words(w->t, &w->words, w->width, rng, w->x);
    memcpy(w->x + each, w->x, (size_t)each * sizeof *w->x);
    return status;
}

/* Initializes a layer from the seed, with or without rotation, then samples the tokens. */
static mha_status make(walk *w, int rotary)
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

static void show_angles(walk *w)
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

static void show_tokens(walk *w)
{
    tour *t = w->t;
    const char *shape = TOUR_DIMS(t, BATCH, w->tokens, w->width);
    if (t->choice.text)
        tour_say(t, "Tokens", "mha_rng_embedding, mha_embedding_forward",
                 "The input is %s: two copies of the words \"%s\", with a row of an embedding for each word.", shape,
                 w->words.text);
    else
        tour_say(t, "Tokens", "mha_rng_randn", "The input is %s: two sequences of %s with %s each.", shape,
                 tour_many(t, w->tokens, "token"), tour_many(t, w->width, "feature"));
    tour_show(t, "x", w->x, TOUR_SHAPE(BATCH, w->tokens, w->width));
}

static void show_plain(walk *w)
{
    tour *t = w->t;
    TOUR_TRY(make(w, 0));
    const mha_variant_input in = {.size = sizeof in, .batch = BATCH, .q_len = w->tokens, .query = w->x};
    TOUR_TRY(mha_variant_forward(t->layer, &in, w->output, t->trace, &t->error));
    show_tokens(w);
    tour_say(t, "Queries, keys, values by head", "mha_llama_attention_create, mha_variant_init",
             "The layer has four matrices %s without biases. Each projection is viewed as %s and "
             "transposed to %s: batch, head, token, feature.",
             TOUR_DIMS(t, w->width, w->width), TOUR_DIMS(t, BATCH, w->tokens, w->heads, w->D),
             TOUR_DIMS(t, BATCH, w->heads, w->tokens, w->D));
    tour_show_qkv(t);
}

static void show_whole(walk *w)
{
    tour *t = w->t;
    const int64_t n = w->tokens;
    const mha_variant_input in = {
        .size = sizeof in, .batch = BATCH, .q_len = n, .query = w->x, .want_scores = 1, .want_weights = 1};
    TOUR_TRY(mha_variant_forward(t->layer, &in, w->output, t->trace, &t->error));
    tour_say(t, "Rotated queries and keys", "mha_rope_turn, or mha_llama_attention_create (.rotary = 1)",
             "Queries and keys are rotated, values are not. Token 0 is unchanged. The dot product of a "
             "rotated query and a rotated key depends only on their distance, not on their positions.");
    tour_show_trace(t, "q_turned", MHA_STEP_Q);
    tour_show_trace(t, "k_turned", MHA_STEP_K);

    tour_say(t, "Weights", "mha_llama_attention_create (.causal = 1), MHA_STEP_SCORES, MHA_STEP_WEIGHTS",
             "The scores q k^T / sqrt(%lld) are %s. The causal mask and softmax in float32 give the weights.",
             (long long)w->D, TOUR_DIMS(t, BATCH, w->heads, n, n));
    tour_show_trace(t, "scores", MHA_STEP_SCORES);
    tour_tensor *weights = tour_show_trace(t, "weights", MHA_STEP_WEIGHTS);
    if (t->choice.text) tour_name_words(t, weights, w->words.word);

    tour_say(t, "Concatenated heads and output", "MHA_STEP_CONTEXT, mha_variant_forward",
             "The product weights v is %s. It is transposed back and viewed as rows of %s, the context "
             "%s, which is then multiplied by o_proj.",
             TOUR_DIMS(t, BATCH, w->heads, n, w->D), tour_count_word(t, w->width), TOUR_DIMS(t, BATCH, n, w->width));
    tour_show_trace(t, "context", MHA_STEP_CONTEXT);
    tour_show(t, "output", w->output, TOUR_SHAPE(BATCH, n, w->width));
}

/* ---- KV cache ---- */

/* Keys and values cached by earlier calls. */
typedef struct cache {
    float *k, *v;
} cache;

static void keep(const walk *w, mha_step step, float *to)
{
    mha_step_view view;
    if (!mha_trace_step(w->t->trace, step, &view)) return;
    for (int64_t row = 0; row < view.shape[0] * view.shape[1] * view.shape[2]; row++, to += w->D) {
        const int64_t token = row % view.shape[2], head = row / view.shape[2] % view.shape[1],
                      b = row / view.shape[2] / view.shape[1];
        memcpy(to, (const float *)view.data + b * view.stride[0] + head * view.stride[1] + token * view.stride[2],
               (size_t)w->D * sizeof *to);
    }
}

/* Copies rows `first` to first + n - 1 of every sequence. */
static void take(const walk *w, float *to, const float *from, int64_t first, int64_t n)
{
    for (int64_t b = 0; b < BATCH; b++)
        memcpy(to + b * n * w->width, from + (b * w->tokens + first) * w->width, (size_t)(n * w->width) * sizeof *to);
}

/* Runs the layer on rows `past` to past + n - 1 and caches their keys and values. */
static mha_status advance(walk *w, cache *c, int64_t past, int64_t n, float *output)
{
    tour *t = w->t;
    float *rows = tour_floats(t, BATCH * n * w->width);
    if (!rows) return t->error.status;
    take(w, rows, w->x, past, n);
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
    keep(w, MHA_STEP_K, c->k);
    keep(w, MHA_STEP_V, c->v);
    return MHA_OK;
}

/* Returns "sixth" for the last of six tokens, and "last" for other counts. */
static const char *last_name(const walk *w)
{
    return w->tokens == TOKENS ? "sixth" : "last";
}

static void show_cached(walk *w, const cache *c)
{
    tour *t = w->t;
    const char *shape = TOUR_DIMS(t, BATCH, w->heads, w->past, w->D);
    tour_say(t, w->past == TOKENS - 1 ? "Five cached tokens" : "Cached tokens", "MHA_STEP_K, MHA_STEP_V of the trace",
             "A decoder that generates one token at a time would compute the keys and values of all earlier "
             "tokens at every step. These keys and values do not change, so they are cached, with the keys already "
             "rotated: %s each.",
             shape);
    tour_show(t, "key_cache", c->k, TOUR_SHAPE(BATCH, w->heads, w->past, w->D));
    tour_show(t, "value_cache", c->v, TOUR_SHAPE(BATCH, w->heads, w->past, w->D));
}

static void show_one(walk *w, const float *one, tour_count again)
{
    tour *t = w->t;
    float *last = tour_floats(t, BATCH * w->width);
    TOUR_TRY(t->error.status);
    take(w, last, w->output, w->past, 1);
    const bool same = memcmp(one, last, (size_t)(BATCH * w->width) * sizeof *one) == 0;
    tour_say(t, tour_format(t, "The %s token alone", last_name(w)),
             tour_format(t, "mha_variant_input, .past_len = %lld, .past_key, .past_value", (long long)w->past),
             "One query attends to %s, %s of them cached: weights %s, output %s. It "
             "%s row %lld of the whole sequence computed in one call.",
             tour_many(t, w->tokens, "key"), tour_count_word(t, w->past), TOUR_DIMS(t, BATCH, w->heads, 1, w->tokens),
             TOUR_DIMS(t, BATCH, 1, w->width), same ? "is bitwise identical to" : "differs from", (long long)w->past);
    tour_show_trace(t, "weights_of_one", MHA_STEP_WEIGHTS);
    tour_show(t, "output_of_one", one, TOUR_SHAPE(BATCH, 1, w->width));
    tour_count_given(t, again);
    tour_count_layer(t, tour_format(t, "the %s token alone", last_name(w)));
}

static void show_cache(walk *w)
{
    tour *t = w->t;
    const int64_t elements = BATCH * w->tokens * w->width;
    const tour_count again = tour_counted(t, tour_format(t, "all %s in one call", tour_many(t, w->tokens, "token")));
    cache c = {tour_floats(t, elements), tour_floats(t, elements)};
    float *first = tour_floats(t, elements), *one = tour_floats(t, BATCH * w->width);
    TOUR_TRY(t->error.status);
    TOUR_TRY(advance(w, &c, 0, w->past, first));
    show_cached(w, &c);
    TOUR_TRY(advance(w, &c, w->past, 1, one));
    show_one(w, one, again);
}

/* Returns a view of row `token` of a step [B, H, L, D]. */
static mha_cview row_of(const mha_step_view *step, int64_t token)
{
    return (mha_cview){(const float *)step->data + token * step->stride[2],
                       {step->stride[0], step->stride[1], step->stride[2], step->stride[3]}};
}

/* For each token, appends its key and value to the cache and attends to all cached tokens. */
static mha_status attend_in_pages(const walk *w, mha_cache *pages, float *context)
{
    tour *t = w->t;
    mha_step_view q, k, v;
    mha_status status = MHA_OK;
    if (!mha_trace_step(t->trace, MHA_STEP_Q, &q) || !mha_trace_step(t->trace, MHA_STEP_K, &k) ||
        !mha_trace_step(t->trace, MHA_STEP_V, &v))
        return MHA_ERR_ARG;
    for (int64_t i = 0; i < w->tokens && status == MHA_OK; i++) {
        const mha_cache_tokens fresh = {.size = sizeof fresh, .count = 1, .k = row_of(&k, i), .v = row_of(&v, i)};
        mha_attn_desc desc = {.size = sizeof desc, .heads = w->heads, .q_len = 1, .causal = 1};
        mha_attn_args args = {.size = sizeof args,
                              .q = row_of(&q, i),
                              .out = {context + i * w->width, {w->tokens * w->width, w->D, w->width, 1}}};
        status = mha_cache_append(pages, MHA_CACHE_ALL, &fresh, &t->error);
        if (status == MHA_OK) status = mha_cache_bind(pages, MHA_CACHE_ALL, NULL, &desc, &args, &t->error);
        if (status == MHA_OK) status = mha_attention(t->ctx, &desc, &args, &t->error);
    }
    return status;
}

static void show_pages(walk *w)
{
    tour *t = w->t;
    const int64_t elements = BATCH * w->tokens * w->width;
    float *context = tour_floats(t, elements);
    mha_cache *pages = NULL;
    mha_step_view whole;
    const mha_cache_desc desc = {.size = sizeof desc, .batch = BATCH, .kv_heads = w->heads, .head_dim = w->D};
    const mha_variant_input in = {.size = sizeof in, .batch = BATCH, .q_len = w->tokens, .query = w->x};
    TOUR_TRY(t->error.status);
    TOUR_TRY(mha_variant_forward(t->layer, &in, w->output, t->trace, &t->error));
    TOUR_TRY(mha_cache_create(t->ctx, &desc, &pages, &t->error));
    const mha_status status = attend_in_pages(w, pages, context);
    const long long held = mha_cache_pages(pages);
    mha_cache_free(pages);
    TOUR_TRY(status);
    const bool same = mha_trace_step(t->trace, MHA_STEP_CONTEXT, &whole) && whole.stride[1] == w->width &&
                      whole.stride[0] == w->tokens * w->width &&
                      memcmp(context, whole.data, (size_t)elements * sizeof *context) == 0;
    tour_say(t, "A paged cache, token by token", "mha_cache_create, mha_cache_append, mha_cache_bind, mha_attention",
             "A model stores keys and values in pages of 128 tokens, so that a sequence can grow without being "
             "copied. Here, the %s are appended one at a time, and each token attends to all cached tokens. "
             "The cache has %lld pages for the two sequences. The context %s the context computed in one call.",
             tour_many(t, w->tokens, "token"), held, same ? "is bitwise identical to" : "differs from");
    tour_show(t, "context_in_pages", context, TOUR_SHAPE(BATCH, w->tokens, w->width));
}

/* Runs the layer with twice as many query heads, key/value heads for two query heads each, and no rotation. */
static mha_status run_grouped(walk *w, int64_t tokens, uint64_t seed, float *x, float *output)
{
    tour *t = w->t;
    mha_rng rng;
    const mha_llama_attention_options options = {
        .size = sizeof options, .hidden_size = w->width, .num_heads = 2 * w->heads, .num_kv_heads = w->heads};
    const mha_variant_input in = {.size = sizeof in, .batch = BATCH, .q_len = tokens, .query = x, .want_weights = 1};
    mha_rng_manual_seed(&rng, seed);
    mha_status status = mha_llama_attention_create(t->ctx, &options, tour_layer(t), &t->error);
    if (status == MHA_OK) status = mha_variant_init(t->layer, &rng, &t->error);
    if (status == MHA_OK) status = mha_rng_randn(&rng, x, BATCH * tokens * w->width, &t->error);
    if (status == MHA_OK) status = mha_variant_forward(t->layer, &in, output, t->trace, &t->error);
    return status;
}

/* Counts the plain layer with twice as many heads. */
static mha_status count_plain(walk *w, int64_t tokens, uint64_t seed, float *x, float *output)
{
    tour *t = w->t;
    mha_rng rng;
    const mha_standard_mha_options plain = {.size = sizeof plain, .d_model = w->width, .num_heads = 2 * w->heads};
    const mha_variant_input in = {.size = sizeof in, .batch = BATCH, .q_len = tokens, .query = x};
    mha_rng_manual_seed(&rng, seed);
    mha_status status = mha_rng_randn(&rng, x, BATCH * tokens * w->width, &t->error);
    if (status == MHA_OK) status = mha_standard_mha_create(t->ctx, &plain, tour_layer(t), &t->error);
    if (status == MHA_OK) status = mha_variant_init(t->layer, &rng, &t->error);
    if (status == MHA_OK) status = mha_variant_forward(t->layer, &in, output, t->trace, &t->error);
    return status;
}

/* Shows a layer with shared keys and values, compared with the plain layer. */
static void show_grouped(walk *w)
{
    enum { SHORT = 4, OTHER_SEED = 61 };
    tour *t = w->t;
    const int64_t elements = BATCH * SHORT * w->width;
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
    tour_show(t, "grouped_output", output, TOUR_SHAPE(BATCH, SHORT, w->width));
    tour_count_given(t, count);
    tour_count_layer(t,
                     tour_format(t, "%s for %s", tour_many(t, w->heads, "k/v head"), tour_count_word(t, 2 * w->heads)));
}

void tour_llama_attention(tour *t)
{
    walk w = {.t = t};
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
    if (t->error.status == MHA_OK) show_cache(&w);
    if (t->error.status == MHA_OK) show_pages(&w);
    if (t->error.status == MHA_OK) show_grouped(&w);
}
