/* tour_layer.c - shows a layer of a checkpoint: repeats the attention of the layer from its input and its weights, and
 * compares the result with that of the model. */
#include "tour/tour_layer.h"

#include "tour/tour_choice.h"
#include "tour/tour_model.h"
#include <math.h>

/* The layer, and the values computed from its input and weights. */
typedef struct shown {
    tour *t;
    tour_model m;
    int64_t n, H, G, D, E;   /* tokens, heads, key/value heads, widths of a head and of the model */
    const char *name;        /* "layer 3 of gpt2-tiny" */
    float *w[4], *b[4];      /* projections of q, k, v [heads D, E], and of the output, transposed [H D, E] */
    float *q, *k, *v;        /* [n, heads D] before norms and rotation */
    float *scores, *weights; /* [H, n, n] */
    float *context, *out;    /* [n, H D], [n, E] */
} shown;

/* ---- the attention that a tour requires ---- */

static void check(shown *s, tour_layer_kind kind)
{
    const mha_model_attention *a = s->m.attention;
    const bool grouped = s->m.kv_heads < s->m.heads, causal = s->m.info->causal;
    const char *other = a->rotary ? "llama-attention"
                        : grouped ? "grouped-query"
                        : causal  ? "weight-split"
                                  : "standard-mha";
    const bool fits = kind == TOUR_SHOWS_ROTARY   ? a->rotary
                      : kind == TOUR_SHOWS_GROUPS ? grouped
                                                  : !a->rotary && !grouped && causal == (kind == TOUR_SHOWS_SPLIT);
    if (!fits)
        tour_fail(s->t, MHA_ERR_UNSUPPORTED, "%s has %s%s%s attention, which the tour %s shows", s->name,
                  a->rotary ? "rotary " : "", grouped ? "grouped " : "", causal ? "causal" : "bidirectional", other);
}

/* ---- computation ---- */

static int64_t heads_of(const shown *s, int which)
{
    return which == MHA_HEAD_K || which == MHA_HEAD_V ? s->G : s->H;
}

static mha_status read_weights(shown *s)
{
    for (int which = MHA_HEAD_Q; which <= MHA_HEAD_O; which++) {
        s->w[which] = tour_floats(s->t, heads_of(s, which) * s->D * s->E);
        s->b[which] = tour_floats(s->t, which == MHA_HEAD_O ? s->E : heads_of(s, which) * s->D);
        if (s->t->error.status != MHA_OK) return s->t->error.status;
        const mha_status status = tour_model_weights(s->t, &s->m, (mha_head_projection)which, s->w[which], s->b[which]);
        if (status != MHA_OK) return status;
    }
    return MHA_OK;
}

/* Computes y = x w^T + b, or for the output projection, which is transposed, x w + b. */
static mha_status multiply(shown *s, int which, const float *x, float *y)
{
    const bool is_output = which == MHA_HEAD_O;
    const int64_t wide = heads_of(s, which) * s->D;
    const mha_matrix matrix = {
        .weight = s->w[which], .bias = s->b[which], .transposed = is_output, .out = is_output ? s->E : wide};
    return tour_multiply(s->t, &matrix, is_output ? wide : s->E, x, s->n, y);
}

/* Returns the strides of [n, heads, D] with the axes batch, head, token, element. */
static mha_cview by_head(const shown *s, const float *data, int64_t heads)
{
    return (mha_cview){data, {s->n * heads * s->D, s->D, heads * s->D, 1}};
}

/* Runs the operator on the queries, keys and values that the model used. */
static mha_status attend(shown *s)
{
    const mha_attn_desc desc = {.size = sizeof desc,
                                .batch = 1,
                                .heads = s->H,
                                .kv_heads = s->G,
                                .q_len = s->n,
                                .kv_len = s->n,
                                .head_dim = s->D,
                                .causal = s->m.info->causal,
                                .scale = s->m.attention->scale,
                                .scores = MHA_SCORES_BIASED,
                                .outputs = MHA_ATTN_SCORES | MHA_ATTN_PROBS};
    const mha_attn_args args = {.size = sizeof args,
                                .q = by_head(s, s->m.q, s->H),
                                .k = by_head(s, s->m.k, s->G),
                                .v = by_head(s, s->m.v, s->G),
                                .out = {s->context, {s->n * s->H * s->D, s->D, s->H * s->D, 1}},
                                .scores.data = s->scores,
                                .probs.data = s->weights};
    return mha_attention(s->t->ctx, &desc, &args, &s->t->error);
}

static void compute(shown *s)
{
    tour *t = s->t;
    s->q = tour_floats(t, s->n * s->H * s->D);
    s->k = tour_floats(t, s->n * s->G * s->D);
    s->v = tour_floats(t, s->n * s->G * s->D);
    s->scores = tour_floats(t, s->H * s->n * s->n);
    s->weights = tour_floats(t, s->H * s->n * s->n);
    s->context = tour_floats(t, s->n * s->H * s->D);
    s->out = tour_floats(t, s->n * s->E);
    TOUR_TRY(t->error.status);
    TOUR_TRY(read_weights(s));
    TOUR_TRY(multiply(s, MHA_HEAD_Q, s->m.input, s->q));
    TOUR_TRY(multiply(s, MHA_HEAD_K, s->m.input, s->k));
    TOUR_TRY(multiply(s, MHA_HEAD_V, s->m.input, s->v));
    TOUR_TRY(attend(s));
    TOUR_TRY(tour_model_compare(t, s->weights, s->m.maps, s->H * s->n * s->n));
    TOUR_TRY(multiply(s, MHA_HEAD_O, s->context, s->out));
}

/* ---- steps ---- */

/* Shows [n, heads, D] as [heads, n, D]. */
static void show_heads(shown *s, const char *name, const float *rows, int64_t heads)
{
    tour_tensor *tensor = tour_show(s->t, name, rows, TOUR_SHAPE(heads, s->n, s->D));
    for (int64_t i = 0; tensor->values && i < tensor->count; i++) {
        const int64_t head = i / (s->n * s->D), token = i / s->D % s->n;
        tensor->values[i] = rows[(token * heads + head) * s->D + i % s->D];
    }
}

static void show_input(shown *s)
{
    tour_say(s->t, "Input of the layer", "mha_model_forward, .on_activations",
             "The text \"%s\" has %s. The input of %s is %s: a row of hidden states for each token, after the norm "
             "before the attention, if the model has one.",
             s->m.text, tour_many(s->t, s->n, "token"), s->name, TOUR_DIMS(s->t, s->n, s->E));
    tour_show(s->t, "x", s->m.input, TOUR_SHAPE(s->n, s->E));
}

static void show_projections(shown *s)
{
    tour *t = s->t;
    tour_say(t, "One product for all heads", "mha_head_weights, mha_linear_forward",
             "One matrix %s contains the %s of %s: %s belong to head 0. q = x q_proj^T + bias is %s. %s",
             TOUR_DIMS(t, s->H * s->D, s->E), s->H == 1 ? "query head" : "query heads", s->name,
             tour_span(t, "row", 0, s->D), TOUR_DIMS(t, s->n, s->H * s->D),
             s->G == s->H ? "k and v are computed in the same way."
                          : tour_format(t, "k and v have %s of the same width, each for %s: their matrices are %s.",
                                        tour_many(t, s->G, "head"), tour_many(t, s->H / s->G, "query head"),
                                        TOUR_DIMS(t, s->G * s->D, s->E)));
    tour_show(t, "q_proj.weight", s->w[MHA_HEAD_Q], TOUR_SHAPE(s->H * s->D, s->E));
    tour_show(t, "q_proj.bias", s->b[MHA_HEAD_Q], TOUR_SHAPE(s->H * s->D));
    tour_show(t, "k_proj.weight", s->w[MHA_HEAD_K], TOUR_SHAPE(s->G * s->D, s->E));
    tour_show(t, "v_proj.weight", s->w[MHA_HEAD_V], TOUR_SHAPE(s->G * s->D, s->E));
    tour_show(t, "q", s->q, TOUR_SHAPE(s->n, s->H * s->D));

    tour_say(t, "View and transpose", "mha_cview, .stride",
             "The last axis is split into heads, and the head axis is moved to the front: q is %s, k and v are %s. No "
             "element moves; these are other views of the same memory.",
             TOUR_DIMS(t, s->H, s->n, s->D), TOUR_DIMS(t, s->G, s->n, s->D));
    show_heads(s, "q_heads", s->q, s->H);
    show_heads(s, "k_heads", s->k, s->G);
    show_heads(s, "v_heads", s->v, s->G);
}

/* Shows the queries and keys of the model if they differ from the projections. */
static void show_turned(shown *s)
{
    const mha_model_attention *a = s->m.attention;
    if (!a->rotary && !a->qk_norm) return;
    tour_say(s->t, a->rotary ? "Rotated queries and keys" : "Normalized queries and keys",
             "mha_model_activations, .q, .k; mha_rope_turn", "Queries and keys are %s, values are not.%s",
             !a->rotary   ? "normalized"
             : a->qk_norm ? "normalized and then rotated"
                          : "rotated",
             a->rotary ? " The rotation of token 0 is 0. The dot product of a rotated query and a rotated key depends "
                         "only on their distance, not on their positions."
                       : "");
    show_heads(s, "q_turned", s->m.q, s->H);
    show_heads(s, "k_turned", s->m.k, s->G);
}

static void show_attention(shown *s)
{
    tour *t = s->t;
    const char *shape = TOUR_DIMS(t, s->H, s->n, s->n);
    const bool usual = s->m.attention->scale == 0 || fabs(s->m.attention->scale * sqrt((double)s->D) - 1) < 1e-6;
    tour_say(
        t, "Scores", "mha_attention, .scores = MHA_SCORES_BIASED", "The scores q k^T %s are %s: head, query, key.%s%s",
        usual ? tour_format(t, "/ sqrt(%lld)", (long long)s->D) : tour_format(t, "times %.4g", s->m.attention->scale),
        shape, s->m.info->causal ? " The causal mask sets the scores of later tokens to -inf." : "",
        s->G < s->H ? tour_format(t, " Query head h reads key/value head h / %lld.", (long long)(s->H / s->G)) : "");
    tour_name_words(t, tour_show(t, "scores", s->scores, TOUR_SHAPE(s->H, s->n, s->n)), s->m.words);

    tour_say(t, "Weights", "mha_attention, .outputs = MHA_ATTN_PROBS",
             "Softmax of each row gives the weights, %s. The result %s the attention maps of the model.", shape,
             tour_compare(t, s->weights, s->m.maps, s->H * s->n * s->n));
    tour_name_words(t, tour_show_weights(t, "weights", s->weights, TOUR_SHAPE(s->H, s->n, s->n)), s->m.words);
}

static void show_output(shown *s)
{
    tour *t = s->t;
    const int64_t wide = s->H * s->D, narrow = s->G * s->D;
    tour_say(t, "Concatenated heads", "mha_attention, .out",
             "The product weights v is %s. The heads of each token are concatenated: %s.",
             TOUR_DIMS(t, s->H, s->n, s->D), TOUR_DIMS(t, s->n, wide));
    tour_show(t, "context", s->context, TOUR_SHAPE(s->n, wide));

    tour_say(
        t, "Output projection", "mha_head_weights (MHA_HEAD_O), mha_linear_forward",
        "The output is context o_proj^T + bias, %s. It %s the output of the attention in the model, which the model "
        "adds to the hidden states. The parameters exclude biases.",
        TOUR_DIMS(t, s->n, s->E), tour_compare(t, s->out, s->m.out, s->n * s->E));
    tour_show(t, "output", s->out, TOUR_SHAPE(s->n, s->E));
    if (s->G < s->H)
        tour_count_given(
            t, (tour_count){"a k/v head for each", 4 * wide * s->E, 8 * s->n * wide * s->E + 4 * s->n * s->n * wide});
    tour_count_given(t, (tour_count){s->name, 2 * (wide + narrow) * s->E,
                                     4 * s->n * (wide + narrow) * s->E + 4 * s->n * s->n * wide});
}

static void show(shown *s, tour_layer_kind kind)
{
    check(s, kind);
    TOUR_TRY(s->t->error.status);
    compute(s);
    TOUR_TRY(s->t->error.status);
    show_input(s);
    show_projections(s);
    show_turned(s);
    show_attention(s);
    show_output(s);
}

void tour_show_layer(tour *t, const char *usual, tour_layer_kind kind)
{
    shown s = {.t = t};
    if (tour_model_open(t, usual, &s.m) == MHA_OK) {
        s.n = s.m.tokens, s.H = s.m.heads, s.G = s.m.kv_heads, s.D = s.m.head_dim, s.E = s.m.hidden;
        s.name = tour_model_name(t);
        show(&s, kind);
    }
    tour_model_free(&s.m);
}
