/* tour_of_llama_cache.c - the part of the tour of LLaMA that caches keys and values, in arrays and in pages. */
#include "tour/walks/tour_of_llama.h"
#include <string.h>

/* ---- cache of arrays ---- */

/* Keys and values cached by earlier calls. */
typedef struct cache {
    float *k, *v;
} cache;

static void keep(const llama_walk *w, mha_step step, float *to)
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
static void take(const llama_walk *w, float *to, const float *from, int64_t first, int64_t n)
{
    for (int64_t b = 0; b < LLAMA_BATCH; b++)
        memcpy(to + b * n * w->width, from + (b * w->tokens + first) * w->width, (size_t)(n * w->width) * sizeof *to);
}

/* Runs the layer on rows `past` to past + n - 1 and caches their keys and values. */
static mha_status advance(llama_walk *w, cache *c, int64_t past, int64_t n, float *output)
{
    tour *t = w->t;
    float *rows = tour_floats(t, LLAMA_BATCH * n * w->width);
    if (!rows) return t->error.status;
    take(w, rows, w->x, past, n);
    const mha_variant_input in = {.size = sizeof in,
                                  .batch = LLAMA_BATCH,
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
static const char *last_name(const llama_walk *w)
{
    return w->tokens == LLAMA_TOKENS ? "sixth" : "last";
}

static void show_cached(llama_walk *w, const cache *c)
{
    tour *t = w->t;
    const char *shape = TOUR_DIMS(t, LLAMA_BATCH, w->heads, w->past, w->D);
    tour_say(t, w->past == LLAMA_TOKENS - 1 ? "Five cached tokens" : "Cached tokens",
             "MHA_STEP_K, MHA_STEP_V of the trace",
             "A decoder that generates one token at a time would compute the keys and values of all earlier "
             "tokens at every step. These keys and values do not change, so they are cached, with the keys already "
             "rotated: %s each.",
             shape);
    tour_show(t, "key_cache", c->k, TOUR_SHAPE(LLAMA_BATCH, w->heads, w->past, w->D));
    tour_show(t, "value_cache", c->v, TOUR_SHAPE(LLAMA_BATCH, w->heads, w->past, w->D));
}

static void show_one(llama_walk *w, const float *one, tour_count again)
{
    tour *t = w->t;
    float *last = tour_floats(t, LLAMA_BATCH * w->width);
    TOUR_TRY(t->error.status);
    take(w, last, w->output, w->past, 1);
    const bool same = memcmp(one, last, (size_t)(LLAMA_BATCH * w->width) * sizeof *one) == 0;
    tour_say(t, tour_format(t, "The %s token alone", last_name(w)),
             tour_format(t, "mha_variant_input, .past_len = %lld, .past_key, .past_value", (long long)w->past),
             "One query attends to %s, %s of them cached: weights %s, output %s. It "
             "%s row %lld of the whole sequence computed in one call.",
             tour_many(t, w->tokens, "key"), tour_count_word(t, w->past),
             TOUR_DIMS(t, LLAMA_BATCH, w->heads, 1, w->tokens), TOUR_DIMS(t, LLAMA_BATCH, 1, w->width),
             same ? "is bitwise identical to" : "differs from", (long long)w->past);
    tour_show_trace(t, "weights_of_one", MHA_STEP_WEIGHTS);
    tour_show(t, "output_of_one", one, TOUR_SHAPE(LLAMA_BATCH, 1, w->width));
    tour_count_given(t, again);
    tour_count_layer(t, tour_format(t, "the %s token alone", last_name(w)));
}

void llama_show_cache(llama_walk *w)
{
    tour *t = w->t;
    const int64_t elements = LLAMA_BATCH * w->tokens * w->width;
    const tour_count again = tour_counted(t, tour_format(t, "all %s in one call", tour_many(t, w->tokens, "token")));
    cache c = {tour_floats(t, elements), tour_floats(t, elements)};
    float *first = tour_floats(t, elements), *one = tour_floats(t, LLAMA_BATCH * w->width);
    TOUR_TRY(t->error.status);
    TOUR_TRY(advance(w, &c, 0, w->past, first));
    show_cached(w, &c);
    TOUR_TRY(advance(w, &c, w->past, 1, one));
    show_one(w, one, again);
}

/* ---- cache of pages ---- */

/* Returns a view of row `token` of a step [B, H, L, D]. */
static mha_cview row_of(const mha_step_view *step, int64_t token)
{
    return (mha_cview){(const float *)step->data + token * step->stride[2],
                       {step->stride[0], step->stride[1], step->stride[2], step->stride[3]}};
}

/* For each token, appends its key and value to the cache and attends to all cached tokens. */
static mha_status attend_in_pages(const llama_walk *w, mha_cache *pages, float *context)
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

void llama_show_pages(llama_walk *w)
{
    tour *t = w->t;
    const int64_t elements = LLAMA_BATCH * w->tokens * w->width;
    float *context = tour_floats(t, elements);
    mha_cache *pages = NULL;
    mha_step_view whole;
    const mha_cache_desc desc = {.size = sizeof desc, .batch = LLAMA_BATCH, .kv_heads = w->heads, .head_dim = w->D};
    const mha_variant_input in = {.size = sizeof in, .batch = LLAMA_BATCH, .q_len = w->tokens, .query = w->x};
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
    tour_show(t, "context_in_pages", context, TOUR_SHAPE(LLAMA_BATCH, w->tokens, w->width));
}
