/* tour_of_many_heads.c - tours of several heads: first as a list of heads, then as one matrix that is split. */
#include "tour/tour_choice.h"
#include "tour/tour_layer.h"
#include "tour/tours.h"
#include <string.h>

enum { SEED = 123, BATCH = 2, D_IN = 3, D_OUT = 4, HEADS = 2, WORDS = 6, TOKENS = 5, WIDE_HEAD = 3 };
static const char default_text[] = "Your journey starts with one step";

/* Three features of each word of the default text. */
static const float default_features[WORDS * D_IN] = {0.43f, 0.15f, 0.89f, 0.55f, 0.87f, 0.66f, 0.57f, 0.85f, 0.64f,
                                                     0.22f, 0.58f, 0.33f, 0.77f, 0.25f, 0.10f, 0.05f, 0.80f, 0.55f};

/* Two copies of a sentence, and the sizes of the layer. */
typedef struct sentences {
    tour_words words;
    int64_t d_in, d_out, heads, head_dim;
    float *x, *q, *output; /* [BATCH, words, d_in], [BATCH, words, d_out] twice */
} sentences;

/* ---- inputs ---- */

/* Copies the default features, or samples an embedding for other words or another width. */
static mha_status sample(tour *t, const sentences *s)
{
    const int64_t count = s->words.count * s->d_in;
    mha_status status = MHA_OK;
    mha_rng rng;
    mha_rng_manual_seed(&rng, tour_seed(t, SEED));
    if (t->choice.text || t->choice.width)
        status = tour_embed_words(t, &s->words, s->d_in, &rng, s->x);
    else
        memcpy(s->x, default_features, sizeof default_features);
    memcpy(s->x + count, s->x, (size_t)count * sizeof *s->x);
    return status;
}

static mha_status begin(tour *t, sentences *s)
{
    *s = (sentences){.d_in = tour_width(t, D_IN), .d_out = tour_width(t, D_OUT), .heads = tour_heads(t, HEADS)};
    s->head_dim = s->d_out / s->heads;
    if (tour_read_words(t, default_text, &s->words) != MHA_OK) return t->error.status;
    if (tour_check_heads(t, s->d_out, s->heads) != MHA_OK) return t->error.status;
    const int64_t rows = BATCH * s->words.count;
    s->x = tour_floats(t, rows * s->d_in);
    s->q = tour_floats(t, rows * s->d_out);
    s->output = tour_floats(t, rows * s->d_out);
    return t->error.status == MHA_OK ? sample(t, s) : t->error.status;
}

static void show_sentences(tour *t, const sentences *s)
{
    const char *shape = TOUR_DIMS(t, BATCH, s->words.count, s->d_in);
    if (t->choice.text || t->choice.width)
        tour_say(t, "Two sentences", "mha_rng_embedding, mha_embedding_forward",
                 "The input is %s: a batch of two sentences of %s, with %s for each word of \"%s\", sampled "
                 "from seed %llu as in nn.Embedding(%lld, %lld). The two sentences are identical, and so are their "
                 "results.",
                 shape, tour_many(t, s->words.count, "word"), tour_many(t, s->d_in, "feature"), s->words.text,
                 (unsigned long long)tour_seed(t, SEED), (long long)s->words.distinct, (long long)s->d_in);
    else
        tour_say(t, "Two sentences", NULL,
                 "The input is [2, 6, 3]: a batch of two sentences of six words, with three features for each word of "
                 "\"Your journey starts with one step\". The two sentences are identical, and so are their results.");
    tour_show(t, "x", s->x, TOUR_SHAPE(BATCH, s->words.count, s->d_in));
}

/* Returns "columns 0 and 1 belong to head 0, columns 2 and 3 to head 1" for two heads of width 2. */
static const char *spans(tour *t, const sentences *s, const char *noun)
{
    const char *first = tour_span(t, noun, 0, s->head_dim);
    if (s->heads == 1) return tour_format(t, "%s belong to head 0", first);
    return tour_format(t, "%s belong to head 0, %s to head 1%s", first, tour_span(t, noun, s->head_dim, s->head_dim),
                       s->heads > 2 ? ", and so on" : "");
}

/* Initializes the current layer and runs it on the sentences. */
static mha_status run(tour *t, const sentences *s, bool load)
{
    mha_rng rng;
    const mha_variant_input in = {
        .size = sizeof in, .batch = BATCH, .q_len = s->words.count, .query = s->x, .want_weights = 1};
    mha_rng_manual_seed(&rng, tour_seed(t, SEED));
    mha_status status = mha_variant_init(t->layer, &rng, &t->error);
    if (status == MHA_OK && load) status = tour_load_layer(t);
    if (status == MHA_OK) status = mha_variant_forward(t->layer, &in, s->output, t->trace, &t->error);
    return status;
}

/* ---- second walk-through: wider heads, random tokens sampled before the layer ---- */

typedef struct wide {
    int64_t tokens, width, heads;
    float *output;
} wide;

static wide wide_sizes(tour *t, const sentences *s)
{
    wide w = {.tokens = t->choice.text ? s->words.count : TOKENS, .heads = s->heads};
    w.width = tour_width(t, WIDE_HEAD * s->heads);
    w.output = tour_floats(t, BATCH * w.tokens * w.width);
    return w;
}

static mha_status run_wide(tour *t, const wide *w)
{
    const int64_t count = BATCH * w->tokens * w->width;
    float *x = tour_floats(t, count);
    mha_rng rng;
    const mha_variant_input in = {.size = sizeof in, .batch = BATCH, .q_len = w->tokens, .query = x};
    mha_rng_manual_seed(&rng, tour_seed(t, SEED));
    if (!x) return t->error.status;
    mha_status status = mha_rng_randn(&rng, x, count, &t->error);
    if (status == MHA_OK) status = mha_variant_init(t->layer, &rng, &t->error);
    if (status == MHA_OK) status = mha_variant_forward(t->layer, &in, w->output, t->trace, &t->error);
    return status;
}

static void show_wide(tour *t, const wide *w)
{
    tour_show(t, "wide_output", w->output, TOUR_SHAPE(BATCH, w->tokens, w->width));
}

static mha_status stacked(tour *t, int64_t d_in, int64_t d_out, int64_t heads, int plain_matrices, mha_scale_rule rule)
{
    const mha_stacked_heads_options options = {.size = sizeof options,
                                               .d_in = d_in,
                                               .d_out = d_out,
                                               .num_heads = heads,
                                               .plain_matrices = plain_matrices,
                                               .scale_rule = rule};
    return mha_stacked_heads_create(t->ctx, &options, tour_layer(t), &t->error);
}

/* ---- list of heads ---- */

static void show_matrices(tour *t, const sentences *s)
{
    tour_say(t, "Matrices of each head", "mha_stacked_heads_create (.plain_matrices = 1), mha_variant_init",
             "The layer has %s, each with its own three matrices %s for query, key and value, %s. With its own "
             "matrices, each head can attend to different features.%s",
             tour_many(t, s->heads, "head"), TOUR_DIMS(t, s->d_in, s->head_dim),
             t->choice.weights ? "which are read from the given file"
                               : "initialized head by head with values from [0, 1)",
             s->heads > 2 ? " The matrices of the first two heads are shown." : "");
    tour_show_parameter(t, "heads.0.w_q");
    tour_show_parameter(t, "heads.0.w_k");
    tour_show_parameter(t, "heads.0.w_v");
    if (s->heads == 1) return;
    tour_show_parameter(t, "heads.1.w_q");
    tour_show_parameter(t, "heads.1.w_k");
    tour_show_parameter(t, "heads.1.w_v");
}

void tour_stacked_heads(tour *t)
{
    sentences s;
    TOUR_TRY(begin(t, &s));
    show_sentences(t, &s);
    TOUR_TRY(stacked(t, s.d_in, s.d_out, s.heads, 1, MHA_SCALE_HEAD_DIM));
    TOUR_TRY(run(t, &s, true));
    show_matrices(t, &s);

    tour_say(t, "Weights of each head", "mha_variant_forward (.want_weights = 1), MHA_STEP_WEIGHTS",
             "The axes are [batch, head, query, key]. Each head computes causal attention over the %s, with "
             "scores divided by sqrt(%lld), the square root of its width.",
             tour_many(t, s.words.count, "word"), (long long)s.head_dim);
    tour_name_words(t, tour_show_trace(t, "weights", MHA_STEP_WEIGHTS), s.words.word);

    tour_say(t, "Concatenated outputs", "mha_variant_forward",
             "The output of each head is %s; concatenated, it is %s. C%s. The heads are not mixed yet.",
             TOUR_DIMS(t, BATCH, s.words.count, s.head_dim), TOUR_DIMS(t, BATCH, s.words.count, s.d_out),
             spans(t, &s, "column") + 1);
    tour_color_heads(tour_show(t, "output", s.output, TOUR_SHAPE(BATCH, s.words.count, s.d_out)), s.heads, s.head_dim);
    tour_count_layer(t, tour_format(t, "a list of %s", tour_many(t, s.heads, "head")));

    const wide w = wide_sizes(t, &s);
    TOUR_TRY(t->error.status);
    TOUR_TRY(stacked(t, w.width, w.width, w.heads, 0, MHA_SCALE_D_OUT));
    TOUR_TRY(run_wide(t, &w));
    tour_say(t, "Wider heads, a different scale", "mha_stacked_heads_create (.scale_rule = MHA_SCALE_D_OUT)",
             "This layer has %s of width %lld, on random tokens %s, with matrices initialized as in "
             "nn.Linear. One published walk-through divides the scores by sqrt(%lld), the width of all heads together, "
             "instead of sqrt(%lld); the layer has an option for this rule, to reproduce the published digits.",
             tour_many(t, w.heads, "head"), (long long)(w.width / w.heads), TOUR_DIMS(t, BATCH, w.tokens, w.width),
             (long long)w.width, (long long)(w.width / w.heads));
    show_wide(t, &w);
}

/* ---- one matrix, split into heads ---- */

static mha_status split(tour *t, int64_t d_in, int64_t d_out, int64_t heads, mha_scale_rule rule)
{
    const mha_weight_split_options options = {
        .size = sizeof options, .d_in = d_in, .d_out = d_out, .num_heads = heads, .scale_rule = rule};
    return mha_weight_split_create(t->ctx, &options, tour_layer(t), &t->error);
}

/* Computes q of all heads in one product with the parameter q_proj of the layer. */
static mha_status project(tour *t, const sentences *s)
{
    int64_t count;
    const mha_named_tensor *list = mha_variant_parameters(t->layer, &count); /* the first parameter is q_proj.weight */
    const mha_matrix matrix = {.weight = list[0].data, .out = s->d_out};
    return tour_multiply(t, &matrix, s->d_in, s->x, BATCH * s->words.count, s->q);
}

static void show_split(tour *t, const sentences *s)
{
    const int64_t n = s->words.count, H = s->heads, D = s->head_dim;
    const char *together = TOUR_DIMS(t, BATCH, n, s->d_out);
    tour_say(t, "One product for all heads", "mha_linear_create, mha_linear_forward",
             "One matrix %s replaces %s %s: %s. q "
             "= x q_proj^T is %s, the queries of %s heads together. k and v are computed in the same way.",
             TOUR_DIMS(t, s->d_out, s->d_in),
             H == 1 ? "one matrix" : tour_format(t, "%s matrices", tour_count_word(t, H)), TOUR_DIMS(t, D, s->d_in),
             spans(t, s, "row"), together, H == 2 ? "both" : "all");
    tour_show_parameter(t, "q_proj.weight");
    tour_color_heads(tour_show(t, "q", s->q, TOUR_SHAPE(BATCH, n, s->d_out)), H, D);

    tour_say(t, "View",
             tour_format(t, "mha_cview, .stride = {%lld, %lld, %lld, 1}", (long long)(n * s->d_out), (long long)D,
                         (long long)s->d_out),
             "The last axis is split into heads: %s becomes %s. No element moves; this is "
             "another view of the same memory.",
             together, TOUR_DIMS(t, BATCH, n, H, D));
    tour_color_heads(tour_show(t, "q_view", s->q, TOUR_SHAPE(BATCH, n, H, D)), H, D);

    tour_say(t, "Transpose", "MHA_STEP_Q of the trace",
             "The head axis is moved before the word axis, %s, so that each head is a matrix. For the operator "
             "this is also only a change of strides, without a copy; the tour reshape shows it element by element.",
             TOUR_DIMS(t, BATCH, H, n, D));
    tour_color_heads(tour_show_trace(t, "q_heads", MHA_STEP_Q), H, n * D);
}

static void show_attention(tour *t, const sentences *s, tour_count list)
{
    const char *together = TOUR_DIMS(t, BATCH, s->words.count, s->d_out);
    tour_say(t, "Weights", "mha_variant_forward (.want_weights = 1), MHA_STEP_WEIGHTS",
             "The axes are [batch, head, query, key]. One call computes causal attention of %s heads, with scores "
             "divided by sqrt(%lld).",
             s->heads == 2 ? "both" : "all", (long long)s->head_dim);
    tour_name_words(t, tour_show_trace(t, "weights", MHA_STEP_WEIGHTS), s->words.word);

    tour_say(t, "Concatenated heads", "MHA_STEP_CONTEXT of the trace",
             "The product weights v is %s. It is transposed back, and the last two axes are merged: %s.",
             TOUR_DIMS(t, BATCH, s->heads, s->words.count, s->head_dim), together);
    tour_show_trace(t, "context", MHA_STEP_CONTEXT);

    tour_say(t, "Output projection", "mha_weight_split_create, mha_variant_forward",
             "The output is context o_proj^T + bias, %s. The projection is the only step that mixes the heads. "
             "It is optional and adds the parameters below; q, k and v have as many parameters as in the list of "
             "heads.",
             together);
    tour_show(t, "output", s->output, TOUR_SHAPE(BATCH, s->words.count, s->d_out));
    tour_count_given(t, list);
    tour_count_layer(t, "one matrix, split");
}

void tour_weight_split(tour *t)
{
    sentences s;
    if (t->choice.model_chosen) {
        tour_show_layer(t, default_text, TOUR_SHOWS_SPLIT);
        return;
    }
    TOUR_TRY(begin(t, &s));
    show_sentences(t, &s);
    TOUR_TRY(stacked(t, s.d_in, s.d_out, s.heads, 1, MHA_SCALE_HEAD_DIM));
    TOUR_TRY(run(t, &s, false));
    const tour_count list = tour_counted(t, tour_format(t, "a list of %s", tour_many(t, s.heads, "head")));

    TOUR_TRY(split(t, s.d_in, s.d_out, s.heads, MHA_SCALE_HEAD_DIM));
    TOUR_TRY(run(t, &s, true));
    TOUR_TRY(project(t, &s));
    show_split(t, &s);
    show_attention(t, &s, list);

    const wide w = wide_sizes(t, &s);
    TOUR_TRY(t->error.status);
    TOUR_TRY(split(t, w.width, w.width, w.heads, MHA_SCALE_D_OUT));
    TOUR_TRY(run_wide(t, &w));
    tour_say(t, "Wider heads, a different scale", "mha_weight_split_create (.scale_rule = MHA_SCALE_D_OUT)",
             "This layer has %s of width %lld, on random tokens %s, with scores divided by sqrt(%lld) as in one "
             "published walk-through.",
             tour_many(t, w.heads, "head"), (long long)(w.width / w.heads), TOUR_DIMS(t, BATCH, w.tokens, w.width),
             (long long)w.width);
    show_wide(t, &w);
}
