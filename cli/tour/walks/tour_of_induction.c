/* tour_of_induction.c - the tour of copying in the built-in model: a previous-token head, induction heads that attend
 * to the token after an earlier copy, and the effect of removing the induction heads. */
#include "tour/tour_choice.h"
#include "tour/tour_model.h"
#include "tour/tours.h"
#include <math.h>

static const char default_text[] = "drum cat kite red drum cat";
enum { HEADS_MAX = 4096 };

/* ---- model and heads ---- */

typedef struct walk {
    tour *t;
    mha_model *model;
    mha_heads *heads;
    const char *text;
    int64_t tokens, vocab, layers, heads_each;
    float *logits;            /* [tokens, vocab] logits of the text */
    const char *const *words; /* [tokens] */
} walk;

/* Returns the token after the previous occurrence of the last token; -1 if it did not occur before. */
static int32_t after_earlier_copy(const walk *w)
{
    const int32_t *ids = mha_heads_tokens(w->heads)->ids;
    const int64_t last = w->tokens - 1;
    for (int64_t i = last - 1; i >= 0; i--)
        if (ids[i] == ids[last]) return ids[i + 1];
    return -1;
}

static mha_status open_walk(walk *w)
{
    tour *t = w->t;
    w->text = t->choice.text ? t->choice.text : default_text;
    const mha_heads_options how = {.size = sizeof how, .keep_maps = 1};
    mha_status status = mha_model_open(t->ctx, t->model, NULL, &w->model, &t->error);
    if (status == MHA_OK) status = mha_heads_measure(w->model, &w->text, 1, &how, &w->heads, &t->error);
    if (status != MHA_OK) return status;
    const mha_model_info *info = mha_model_describe(w->model);
    w->tokens = mha_heads_tokens(w->heads)->count, w->vocab = info->vocab;
    w->layers = info->layers, w->heads_each = info->heads;
    if (!info->logits || !info->causal)
        tour_fail(t, MHA_ERR_UNSUPPORTED, "the model must be a decoder with logits (got %s)", info->family);
    else if (w->tokens < TOUR_WORDS_MIN || w->tokens > TOUR_TOKENS_MAX)
        tour_fail(t, MHA_ERR_ARG, "the text must have %d to %d tokens (got %lld)", TOUR_WORDS_MIN, TOUR_TOKENS_MAX,
                  (long long)w->tokens);
    else if (w->layers * w->heads_each > HEADS_MAX)
        tour_fail(t, MHA_ERR_UNSUPPORTED, "the model must have at most %d heads (got %lld)", HEADS_MAX,
                  (long long)(w->layers * w->heads_each));
    if (t->error.status != MHA_OK) return t->error.status;
    w->logits = mha_alloc(t->ctx, (size_t)(w->tokens * w->vocab) * sizeof *w->logits);
    if (!w->logits) return t->error.status = MHA_ERR_MEMORY;
    if (after_earlier_copy(w) < 0) {
        tour_fail(t, MHA_ERR_ARG, "the last token of the text must have occurred before (got \"%s\")", w->text);
        return t->error.status;
    }
    w->words = tour_model_words(t, w->model, mha_heads_tokens(w->heads)->ids, w->tokens);
    return t->error.status;
}

static void close_walk(walk *w)
{
    mha_free(w->t->ctx, w->logits);
    mha_heads_free(w->heads);
    mha_model_free(w->model);
}

/* Finds the head with this label and the largest value of the metric; returns the value. */
static double best(const walk *w, mha_head_label label, mha_head_metric metric, int64_t *layer, int64_t *head)
{
    double max = 0;
    for (int64_t l = 0; l < w->layers; l++)
        for (int64_t h = 0; h < mha_model_describe(w->model)->heads_per_layer[l]; h++) {
            const double value = mha_heads_value(w->heads, l, h, metric);
            if (mha_heads_label(w->heads, l, h) != label || value <= max) continue;
            max = value;
            *layer = l, *head = h;
        }
    return max;
}

/* Computes the probability that `id` follows the text. `gates` [layers, heads]. */
static mha_status chance(walk *w, const float *gates, int32_t id, double *p)
{
    const mha_encoding *tokens = mha_heads_tokens(w->heads);
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = w->tokens, .ids = tokens->ids, .gates = gates};
    const mha_model_output out = {.size = sizeof out, .logits = w->logits};
    const mha_status status = mha_model_forward(w->model, &in, &out, &w->t->error);
    const float *last = w->logits + (w->tokens - 1) * w->vocab;
    double sum = 0;
    for (int64_t v = 0; status == MHA_OK && v < w->vocab; v++)
        sum += exp((double)last[v] - (double)last[id]);
    *p = 1 / sum;
    return status;
}

/* ---- steps ---- */

static void show_tokens(walk *w)
{
    const mha_encoding *tokens = mha_heads_tokens(w->heads);
    float ids[TOUR_TOKENS_MAX];
    for (int64_t i = 0; i < w->tokens; i++)
        ids[i] = (float)tokens->ids[i];
    tour_say(w->t, "A repeated text", "mha_model_open, mha_tokenizer_encode",
             "The %s has %lld layers of %lld heads. It reads \"%s\": %lld "
             "tokens, the last of which occurred before.",
             w->t->choice.model_chosen ? "given model" : "trained built-in model", (long long)w->layers,
             (long long)w->heads_each, w->text, (long long)w->tokens);
    tour_show(w->t, "ids", ids, TOUR_SHAPE(w->tokens))->look = TOUR_WHOLE;
}

static void show_map(walk *w, mha_head_label label, const char *name)
{
    int64_t l = 0, h = 0;
    const bool induction = label == MHA_LABEL_INDUCTION;
    const double max = best(w, label, induction ? MHA_HEAD_INDUCTION_PROBE : MHA_HEAD_PREV, &l, &h);
    if (max == 0)
        tour_fail(w->t, MHA_ERR_UNSUPPORTED, "the model must have heads with the labels prev and induction (got no %s)",
                  mha_head_label_key(label));
    TOUR_TRY(w->t->error.status);
    if (induction)
        tour_say(w->t, "Induction heads", "mha_heads_measure, mha_heads_map",
                 "Head %lld.%lld attends from a token to the token after its earlier copy, which the previous-token "
                 "head has marked as the successor of this token. On repeated random tokens, %.3f of the weight of "
                 "the head is on the successor. This is induction (Olsson et al. 2022).",
                 (long long)l, (long long)h, max);
    else
        tour_say(w->t, "A previous-token head", "mha_heads_measure, mha_heads_map",
                 "Head %lld.%lld has %.3f of its weight on the previous token, so the state of each token also "
                 "contains the previous token. A row is a query token; the map is causal, 0 above the "
                 "diagonal, and rounded to three decimals.",
                 (long long)l, (long long)h, max);
    const float *map = mha_heads_map(w->heads, l, h);
    float rounded[TOUR_TOKENS_MAX * TOUR_TOKENS_MAX]; /* without exponents, a row fits on a line */
    for (int64_t i = 0; i < w->tokens * w->tokens; i++)
        rounded[i] = roundf(map[i] * 1000) / 1000;
    tour_name_words(w->t, tour_show_weights(w->t, name, rounded, 2, (int64_t[]){w->tokens, w->tokens}), w->words);
}

static void show_next(walk *w)
{
    tour *t = w->t;
    const int32_t next = after_earlier_copy(w);
    char *word = NULL;
    float *gates = tour_floats(t, w->layers * w->heads_each);
    float *without = tour_floats(t, w->layers * w->heads_each), chances[2];
    double p;
    TOUR_TRY(t->error.status);
    for (int64_t at = 0; at < w->layers * w->heads_each; at++) {
        gates[at] = 1;
        without[at] = mha_heads_label(w->heads, at / w->heads_each, at % w->heads_each) != MHA_LABEL_INDUCTION;
    }
    TOUR_TRY(chance(w, gates, next, &p));
    chances[0] = (float)p;
    TOUR_TRY(chance(w, without, next, &p));
    chances[1] = (float)p;
    TOUR_TRY(mha_tokenizer_decode(mha_model_tokenizer(w->model), &next, 1, 1, &word, NULL, &t->error));
    tour_say(t, "The effect on the next token", "mha_model_forward (.gates)",
             "The token after the earlier copy was \"%s\". The model predicts this token with probability %.3f, and "
             "with probability %.3f if the gates of the induction heads are 0.",
             word, (double)chances[0], (double)chances[1]);
    mha_tokenizer_text_free(mha_model_tokenizer(w->model), word);
    tour_show(t, "chances", chances, TOUR_SHAPE(2));
}

void tour_induction(tour *t)
{
    walk w = {.t = t};
    if (open_walk(&w) == MHA_OK) {
        show_tokens(&w);
        show_map(&w, MHA_LABEL_PREV, "one_back");
        show_map(&w, MHA_LABEL_INDUCTION, "behind_the_copy");
        show_next(&w);
    }
    close_walk(&w);
}
