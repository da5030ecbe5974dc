/* tour_head.c - computes one head step by step: samples words and three matrices, or reads them from a model, projects
 * the words, and runs the operator. */
#include "tour/tour_head.h"

#include "tour/tour_choice.h"
#include "tour/tour_model.h"

static const char default_text[] = "Once upon a time there";

/* Computes y = x w + b. A linear layer computes x W^T, so a matrix stored as [in, out] requires `transposed`. */
static mha_status multiply(tour *t, const tour_head *h, const float *w, const float *b, float *y)
{
    const mha_matrix matrix = {.weight = w, .bias = b, .transposed = 1, .out = h->width};
    return tour_multiply(t, &matrix, h->in, h->x, h->tokens, y);
}

static mha_status allocate(tour *t, tour_head *h)
{
    float **const matrices[] = {&h->w_q, &h->w_k, &h->w_v}, **const rows[] = {&h->q, &h->k, &h->v, &h->out};
    for (int n = 0; n < 3; n++)
        *matrices[n] = tour_floats(t, h->in * h->width);
    for (int n = 0; n < 4; n++)
        *rows[n] = tour_floats(t, h->tokens * h->width);
    h->x = tour_floats(t, h->tokens * h->in);
    h->scores = tour_floats(t, h->tokens * h->tokens);
    h->weights = tour_floats(t, h->tokens * h->tokens);
    return t->error.status;
}

static mha_status project(tour *t, tour_head *h)
{
    mha_status status = multiply(t, h, h->w_q, h->b_q, h->q);
    if (status == MHA_OK) status = multiply(t, h, h->w_k, h->b_k, h->k);
    if (status == MHA_OK) status = multiply(t, h, h->w_v, h->b_v, h->v);
    return status;
}

/* ---- sampled data ---- */

static mha_status load(tour *t, const tour_head *h)
{
    const mha_named_tensor list[] = {{"w_q", MHA_F32, 2, {h->in, h->width}, h->w_q},
                                     {"w_k", MHA_F32, 2, {h->in, h->width}, h->w_k},
                                     {"w_v", MHA_F32, 2, {h->in, h->width}, h->w_v}};
    return tour_load_tensors(t, list, 3);
}

static mha_status sample(tour *t, tour_head *h)
{
    tour_words words;
    mha_rng rng;
    if (tour_read_words(t, default_text, &words) != MHA_OK) return t->error.status;
    *h = (tour_head){.tokens = words.count, .distinct = words.distinct, .text = words.text, .words = words.word};
    h->in = h->width = tour_width(t, TOUR_HEAD_WIDTH);
    if (allocate(t, h) != MHA_OK) return t->error.status;
    mha_rng_manual_seed(&rng, tour_seed(t, TOUR_HEAD_SEED));
    mha_status status = tour_embed_words(t, &words, h->width, &rng, h->x);
    mha_rng_manual_seed(&rng, tour_seed(t, TOUR_HEAD_SEED));
    if (status == MHA_OK) status = mha_rng_rand(&rng, h->w_q, h->width * h->width, &t->error);
    if (status == MHA_OK) status = mha_rng_rand(&rng, h->w_k, h->width * h->width, &t->error);
    if (status == MHA_OK) status = mha_rng_rand(&rng, h->w_v, h->width * h->width, &t->error);
    return status == MHA_OK ? load(t, h) : status;
}

/* ---- a head of a model ---- */

static mha_status check(tour *t, const tour_model *m, bool causal)
{
    const char *name = tour_model_name(t);
    if (m->attention->rotary)
        tour_fail(t, MHA_ERR_UNSUPPORTED, "%s has rotary positions, which the tour llama-attention shows", name);
    else if (m->attention->qk_norm)
        tour_fail(t, MHA_ERR_UNSUPPORTED, "%s has norms of queries and keys, which this tour does not show", name);
    else if (m->info->causal != causal)
        tour_fail(t, MHA_ERR_UNSUPPORTED, "%s is %scausal; see the tour %s", name, causal ? "not " : "",
                  causal ? "self-attention" : "causal-attention");
    else if (t->choice.head >= m->heads)
        tour_fail(t, MHA_ERR_ARG, "the head must be 0 to %lld (got %lld)", (long long)m->heads - 1,
                  (long long)t->choice.head);
    return t->error.status;
}

/* Reads a projection [width, in] of the head and stores it as [in, width]. */
static mha_status read_matrix(tour *t, const tour_model *m, const tour_head *h, mha_head_projection which, float *w,
                              float **bias)
{
    float *rows = tour_floats(t, h->in * h->width);
    *bias = tour_floats(t, h->width);
    if (!*bias) return t->error.status;
    const mha_status status = mha_head_weights(m->model, m->layer, h->head, which, rows, *bias, &t->error);
    for (int64_t n = 0; n < h->in * h->width; n++)
        w[n % h->in * h->width + n / h->in] = rows[n];
    return status;
}

static mha_status copy_head(tour *t, const tour_model *m, tour_head *h)
{
    *h = (tour_head){.tokens = m->tokens, .in = m->hidden, .width = m->head_dim, .text = m->text, .words = m->words};
    h->model_name = tour_model_name(t);
    h->head = t->choice.head;
    float *context = tour_floats(t, h->tokens * h->width);
    if (allocate(t, h) != MHA_OK) return t->error.status;
    for (int64_t n = 0; n < h->tokens * h->in; n++)
        h->x[n] = m->input[n];
    for (int64_t n = 0; n < h->tokens * h->width; n++)
        context[n] = m->context[(n / h->width * m->heads + h->head) * h->width + n % h->width];
    h->model_context = context;
    mha_status status = read_matrix(t, m, h, MHA_HEAD_Q, h->w_q, &h->b_q);
    if (status == MHA_OK) status = read_matrix(t, m, h, MHA_HEAD_K, h->w_k, &h->b_k);
    if (status == MHA_OK) status = read_matrix(t, m, h, MHA_HEAD_V, h->w_v, &h->b_v);
    return status;
}

static mha_status read_head(tour *t, tour_head *h, bool causal)
{
    tour_model m;
    mha_status status = tour_model_open(t, default_text, &m);
    if (status == MHA_OK) status = check(t, &m, causal);
    if (status == MHA_OK) status = copy_head(t, &m, h);
    tour_model_free(&m);
    return status;
}

mha_status tour_head_begin(tour *t, tour_head *h, bool causal)
{
    const mha_status status = t->choice.model_chosen ? read_head(t, h, causal) : sample(t, h);
    return status == MHA_OK ? project(t, h) : status;
}

/* ---- attention ---- */

mha_attn_desc tour_head_desc(const tour_head *h)
{
    return (mha_attn_desc){.size = sizeof(mha_attn_desc),
                           .batch = 1,
                           .heads = 1,
                           .q_len = h->tokens,
                           .kv_len = h->tokens,
                           .head_dim = h->width,
                           .outputs = MHA_ATTN_SCORES | MHA_ATTN_PROBS};
}

mha_status tour_head_attend(tour *t, tour_head *h, const mha_attn_desc *desc)
{
    const mha_attn_args args = {.size = sizeof args,
                                .q.data = h->q,
                                .k.data = h->k,
                                .v.data = h->v,
                                .out.data = h->out,
                                .scores.data = h->scores,
                                .probs.data = h->weights};
    return mha_attention(t->ctx, desc, &args, &t->error);
}

const char *tour_head_compare(tour *t, const tour_head *h)
{
    const int64_t count = h->tokens * h->width;
    if (!h->model_context) return "";
    tour_model_compare(t, h->out, h->model_context, count);
    return tour_format(t, " The result %s the output of head %lld in the model.",
                       tour_compare(t, h->out, h->model_context, count), (long long)h->head);
}
