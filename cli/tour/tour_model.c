/* tour_model.c - runs a model on a text and copies the activations of one layer. */
#include "tour/tour_model.h"

#include "tour/tour_choice.h"
#include <string.h>

/* ---- name ---- */

const char *tour_model_name(tour *t)
{
    const int bytes = (int)strcspn(t->model_name, "/"); /* without slashes at the end */
    return tour_format(t, "layer %lld of %.*s", (long long)t->choice.layer, bytes, t->model_name);
}

/* ---- what the tours can show ---- */

static mha_status refuse(tour *t, const char *what)
{
    tour_fail(t, MHA_ERR_UNSUPPORTED, "%s cannot be shown: %s", tour_model_name(t), what);
    return t->error.status;
}

static mha_status check_layer(tour *t, const tour_model *m)
{
    const mha_model_attention *a = m->attention;
    if (a->alibi) return refuse(t, "its scores have ALiBi slopes");
    if (a->softcap != 0) return refuse(t, "its scores have a softcap");
    if (a->window > 0 && a->window < m->tokens) return refuse(t, "its window is smaller than the text");
    if (a->choice != MHA_CHOICE_NONE) return refuse(t, "it selects heads for each text");
    if (m->info->key_heads_per_layer[m->layer] != m->info->value_heads_per_layer[m->layer])
        return refuse(t, "it has different numbers of key heads and value heads");
    return MHA_OK;
}

static mha_status check_model(tour *t, const tour_model *m)
{
    if (m->layer >= m->info->layers)
        tour_fail(t, MHA_ERR_ARG, "the layer must be 0 to %lld (got %lld)", (long long)m->info->layers - 1,
                  (long long)m->layer);
    if (t->error.status != MHA_OK) return t->error.status;
    if (m->info->encoder_decoder) return refuse(t, "the model is an encoder-decoder");
    if (m->info->image_channels > 0 || m->info->feature_bins > 0) return refuse(t, "the model does not read texts");
    return mha_model_tokenizer(m->model) ? MHA_OK : refuse(t, "the model has no tokenizer");
}

/* ---- tokens ---- */

const char *const *tour_model_words(tour *t, const mha_model *model, const int32_t *ids, int64_t count)
{
    const char **words = tour_memory(t, (size_t)count * sizeof *words);
    for (int64_t i = 0; t->error.status == MHA_OK && i < count; i++) {
        char *word = NULL;
        const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
        if (mha_tokenizer_decode(tokenizer, ids + i, 1, 0, &word, NULL, &t->error) != MHA_OK) break;
        words[i] = tour_format(t, "%s", word + strspn(word, " "));
        mha_tokenizer_text_free(tokenizer, word);
    }
    return t->error.status == MHA_OK ? words : NULL;
}

/* ---- activations ---- */

typedef struct capture {
    tour *t;
    tour_model *m;
} capture;

static float *copy_rows(tour *t, const float *from, int64_t rows, int64_t width, int64_t stride)
{
    float *to = tour_floats(t, rows * width);
    for (int64_t row = 0; to && row < rows; row++)
        memcpy(to + row * width, from + row * stride, (size_t)width * sizeof *to);
    return to;
}

static int take_activations(void *user, const mha_model_activations *a)
{
    tour *t = ((capture *)user)->t;
    tour_model *m = ((capture *)user)->m;
    if (a->layer != m->layer) return 0;
    const int64_t wide = a->heads * a->head_dim, narrow = a->kv_heads * a->head_dim;
    m->heads = a->heads, m->kv_heads = a->kv_heads, m->head_dim = a->head_dim;
    m->input = copy_rows(t, a->input, a->rows, m->hidden, m->hidden);
    m->q = copy_rows(t, a->q, a->rows, wide, a->stride);
    m->k = copy_rows(t, a->k, a->rows, narrow, a->stride);
    m->v = copy_rows(t, a->v, a->rows, narrow, a->stride);
    m->context = copy_rows(t, a->context, a->rows, wide, wide);
    m->out = copy_rows(t, a->out, a->rows, m->hidden, m->hidden);
    return t->error.status != MHA_OK;
}

static int take_maps(void *user, int64_t layer, int64_t heads, const float *probs)
{
    const capture *to = user;
    if (layer == to->m->layer)
        to->m->maps = copy_rows(to->t, probs, heads, to->m->tokens * to->m->tokens, to->m->tokens * to->m->tokens);
    return to->t->error.status != MHA_OK;
}

static mha_status run(tour *t, tour_model *m, const mha_encoding *e)
{
    capture to = {t, m};
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = e->count, .ids = e->ids};
    const mha_model_output out = {
        .size = sizeof out, .on_attention = take_maps, .on_activations = take_activations, .user = &to};
    m->tokens = e->count;
    if (e->count < TOUR_WORDS_MIN || e->count > TOUR_TOKENS_MAX)
        tour_fail(t, MHA_ERR_ARG, "the text must have %d to %d tokens (got %lld)", TOUR_WORDS_MIN, TOUR_TOKENS_MAX,
                  (long long)e->count);
    if (t->error.status == MHA_OK) m->words = tour_model_words(t, m->model, e->ids, m->tokens);
    return t->error.status == MHA_OK ? mha_model_forward(m->model, &in, &out, &t->error) : t->error.status;
}

mha_status tour_model_open(tour *t, const char *usual, tour_model *m)
{
    mha_encoding *e = NULL;
    *m = (tour_model){.layer = t->choice.layer, .text = t->choice.text ? t->choice.text : usual};
    mha_status status = mha_model_open(t->ctx, t->model, NULL, &m->model, &t->error);
    if (status != MHA_OK) return status;
    m->info = mha_model_describe(m->model);
    m->hidden = m->info->hidden;
    status = check_model(t, m);
    if (status != MHA_OK) return status;
    m->attention = &m->info->attention_per_layer[m->layer];
    status =
        mha_tokenizer_encode(mha_model_tokenizer(m->model), m->text, strlen(m->text), NULL, 0, NULL, &e, &t->error);
    if (status == MHA_OK) status = run(t, m, e);
    mha_encoding_free(e);
    return status == MHA_OK ? check_layer(t, m) : status;
}

void tour_model_free(tour_model *m)
{
    mha_model_free(m->model);
}

mha_status tour_model_weights(tour *t, const tour_model *m, mha_head_projection which, float *weight, float *bias)
{
    const bool is_output = which == MHA_HEAD_O, own = is_output || which == MHA_HEAD_Q;
    const int64_t count = own ? m->heads : m->kv_heads, group = own ? 1 : m->heads / m->kv_heads;
    mha_status status = MHA_OK;
    for (int64_t n = 0; status == MHA_OK && n < count; n++)
        status = mha_head_weights(m->model, m->layer, n * group, which, weight + n * m->head_dim * m->hidden,
                                  is_output ? bias : bias + n * m->head_dim, &t->error);
    return status;
}

mha_status tour_model_compare(tour *t, const float *computed, const float *of_model, int64_t count)
{
    const double limit = 2e-3, max = tour_difference(computed, of_model, count);
    if (!(max <= limit))
        tour_fail(t, MHA_ERR_UNSUPPORTED,
                  "%s cannot be shown: its weights depend on more than queries, keys and a mask, such as positions "
                  "(difference %.2g)",
                  tour_model_name(t), max);
    return t->error.status;
}
