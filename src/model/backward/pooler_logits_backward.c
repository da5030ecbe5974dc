/* pooler_logits_backward.c - backpropagates from logits and pooler to the last hidden states, and computes the loss.
 *
 * Rows pass through the output head in chunks, so that logits exist for one chunk only. Products continue the sums in
 * their output, and the shape alone determines the chunks. The losses of chunks are added in order. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "layer/activation.h"
#include "layer/elementwise.h"
#include "layer/linear/linear.h"
#include "layer/loss/binary_cross_entropy.h"
#include "layer/loss/distillation_kl.h"
#include "model/backward/model_grads.h"
#include "model/forward/pooler_logits.h"
#include <string.h>

enum { CHUNK_ELEMENTS = 1 << 24 }; /* logits in a chunk: 64 MiB */

/* Arrays of a chunk of rows. */
typedef struct chunk {
    const mha_model_grads *g;
    int64_t rows;
    float *x;       /* [rows, E] last hidden states */
    float *plain;   /* [rows, W] BERT: output of dense before its activation */
    float *dense;   /* [rows, W] BERT: output of dense after its activation; later [rows, E] the gradient of x */
    float *input;   /* [rows, W] input of the output matrix: x, or the norm of `dense`; W is the width of the
                     * embeddings, at most E */
    float *dinput;  /* [rows, W] gradient of `input` */
    float *logits;  /* [rows, V] logits of the model */
    float *dlogits; /* [rows, V] the same array as `logits` unless a cap or a teacher reads the logits again */
    float *teacher_x, *teacher_room; /* [rows, E of the teacher] selected states, and scratch */
    float *teacher;                  /* [rows, V] the teacher's logits */
    void *left;                      /* rounded input of BERT's dense layer, if the layer rounds its input */
    mha__grad_slot head, first;      /* slots of the output matrix and of BERT's dense layer */
} chunk;

/* Returns the rows per chunk, so that all chunks have about the same size. */
static int64_t chunk_rows(const mha_model *m, int64_t count)
{
    const int64_t max = mha__max64(16, CHUNK_ELEMENTS / m->config.logit_width);
    return mha__ceil_div(count, mha__ceil_div(count, max));
}

static void lay_out(mha__arena *arena, const mha_model *m, const mha__teaching *t, size_t rows, chunk *c)
{
    const size_t teacher_width = t ? (size_t)t->teacher->config.hidden * sizeof(float) : 0;
    const size_t width = (size_t)m->config.hidden * sizeof(float),
                 vocab = (size_t)m->config.logit_width * sizeof(float);
    c->x = mha__take(arena, rows, width);
    c->plain = m->lm_dense ? mha__take(arena, rows, width) : NULL;
    c->dense = m->lm_dense ? mha__take(arena, rows, width) : NULL;
    c->input = m->lm_norm.weight ? mha__take(arena, rows, width) : m->lm_dense ? c->dense : c->x;
    c->left = m->lm_dense ? mha__take(arena, 1, mha__linear_left(m->lm_dense, (int64_t)rows)) : NULL;
    c->dinput = mha__take(arena, rows, width);
    c->logits = mha__take(arena, rows, vocab);
    c->dlogits = m->config.logit_cap != 0 || t ? mha__take(arena, rows, vocab) : c->logits;
    if (!t) return;
    c->teacher_x = mha__take(arena, rows, teacher_width);
    c->teacher_room = mha__take(arena, rows, teacher_width);
    c->teacher = mha__take(arena, rows, vocab);
}

/* ---- processing of one chunk ---- */

/* Backpropagates through y = x W^T + b. */
static mha_status dense_back(const mha_model_grads *g, const mha__grad_slot *slot, int64_t rows, int64_t in,
                             int64_t out, const float *x, const float *dy, float *dx, mha_error *err)
{
    const mha__linear_grad grad = {.slot = *slot, .rows = rows, .in = in, .out = out, .x = x, .dy = dy, .dx = dx};
    return mha__linear_backward(g->ctx, &grad, err);
}

/* Gathers the last hidden states of the selected rows, and computes the input of the output matrix. */
static mha_status gather(const chunk *c, const int64_t *rows, mha_error *err)
{
    const mha_model *m = c->g->model;
    const int64_t width = m->config.hidden;
    const size_t bytes = (size_t)width * sizeof *c->x;
    for (int64_t r = 0; r < c->rows; r++)
        memcpy(c->x + r * width, c->g->saved.last + rows[r] * width, bytes);
    if (!m->lm_dense) return MHA_OK;
    mha__linear_run(m->lm_dense,
                    &(mha__linear_call){.x = c->x, .rows = c->rows, .y = c->plain, .linear = true, .left = c->left});
    const int64_t narrow = m->config.head_width;
    memcpy(c->dense, c->plain, (size_t)(c->rows * narrow) * sizeof *c->dense);
    mha__linear_activate(m->lm_dense, c->rows * narrow, c->dense);
    if (!m->lm_norm.weight) return MHA_OK;
    return mha_norm_forward(c->g->ctx, &m->lm_norm, c->rows, narrow, c->dense, NULL, c->input, err);
}

/* Computes dlogits of the cross entropy, and adds the loss; without labels, sets dlogits to zeros. */
static mha_status learn_labels(const chunk *c, const mha__head_job *job, int64_t first, double *loss, mha_error *err)
{
    const int64_t vocab = c->g->model->config.logit_width;
    double part = 0;
    if (c->g->model->config.discriminator && job->labels) {
        *loss += mha__binary_cross_entropy(c->rows, c->logits, job->labels + first, job->scale,
                                           job->loss_only ? NULL : c->dlogits);
        return MHA_OK;
    }
    const mha_cross_entropy_args args = {.size = sizeof args,
                                         .rows = c->rows,
                                         .classes = vocab,
                                         .logits = c->logits,
                                         .labels = job->labels ? job->labels + first : NULL,
                                         .scale = job->scale,
                                         .dlogits = job->loss_only ? NULL : c->dlogits};
    if (job->labels)
        MHA__TRY(mha_cross_entropy(c->g->ctx, &args, &part, NULL, err));
    else if (!job->loss_only)
        memset(c->dlogits, 0, (size_t)(c->rows * vocab) * sizeof *c->dlogits);
    *loss += part;
    return MHA_OK;
}

/* Adds the teacher's term to dlogits and to the loss. */
static mha_status learn_teacher(const chunk *c, const mha__head_job *job, int64_t first, double *loss, mha_error *err)
{
    const mha__teaching *t = job->teaching;
    double part = 0;
    const mha__divergence d = {.rows = c->rows,
                               .classes = c->g->model->config.logit_width,
                               .logits = c->logits,
                               .teacher = c->teacher,
                               .temperature = t->temperature,
                               .scale = t->of_logits,
                               .dlogits = job->loss_only ? NULL : c->dlogits};
    MHA__TRY(mha__teacher_logits(t, job->rows + first, c->rows, c->teacher_x, c->teacher_room, c->teacher, err));
    MHA__TRY(mha__divergence_run(c->g->ctx, &d, &part, err));
    *loss += part;
    return MHA_OK;
}

/* Computes dlogits from labels and teacher, or copies the caller's dlogits. */
static mha_status find_dlogits(const chunk *c, const mha__head_job *job, int64_t first, double *loss, mha_error *err)
{
    const mha_model *m = c->g->model;
    const int64_t vocab = m->config.logit_width;
    if (!job->dlogits || m->config.logit_cap != 0) MHA__TRY(mha__head_logits(m, c->rows, c->input, c->logits, err));
    if (!job->dlogits) MHA__TRY(learn_labels(c, job, first, loss, err));
    if (job->teaching) MHA__TRY(learn_teacher(c, job, first, loss, err));
    for (int64_t r = 0; job->dlogits && r < c->rows; r++) {
        const int64_t from = job->chosen ? first + r : job->rows[first + r];
        memcpy(c->dlogits + r * vocab, job->dlogits + from * vocab, (size_t)vocab * sizeof *c->dlogits);
    }
    if (m->config.logit_cap != 0 && !job->loss_only)
        mha__softcap_backward(c->g->ctx, m->config.logit_cap, c->rows * vocab, c->logits, c->dlogits);
    if (m->config.logit_scale != 1 && !job->loss_only)
        mha__scale(c->g->ctx, m->config.logit_scale, c->rows * vocab, c->dlogits);
    return MHA_OK;
}

/* Backpropagates dinput through BERT's norm and dense layer. The gradient of x overwrites `dense`. */
static mha_status transform_back(const chunk *c, mha_error *err)
{
    const mha_model *m = c->g->model;
    const int64_t width = m->config.head_width;
    const mha__grad_slot norm = mha__grads_slot(c->g, MHA__LM_NORM, -1);
    const mha_norm_gradient gradient = {.size = sizeof gradient,
                                        .rows = c->rows,
                                        .width = width,
                                        .x = c->dense,
                                        .dy = c->dinput,
                                        .dx = c->dinput,
                                        .dweight = norm.dweight,
                                        .dbias = norm.dbias};
    if (m->lm_norm.weight) MHA__TRY(mha_norm_backward(c->g->ctx, &m->lm_norm, &gradient, err));
    MHA__TRY(mha_activation_backward(c->g->ctx, m->config.head_activation, c->rows, width, c->plain, c->dinput,
                                     c->dinput, err));
    return dense_back(c->g, &c->first, c->rows, m->config.hidden, width, c->x, c->dinput, c->dense, err);
}

static void scatter(const mha_model_grads *g, const int64_t *rows, int64_t count, const float *dx)
{
    const int64_t width = g->model->config.hidden;
    for (int64_t r = 0; r < count; r++)
        for (int64_t i = 0; i < width; i++)
            g->saved.dx[rows[r] * width + i] += dx[r * width + i];
}

static mha_status run_chunk(const chunk *c, const mha__head_job *job, int64_t first, double *loss, mha_error *err)
{
    MHA__TRY(gather(c, job->rows + first, err));
    MHA__TRY(find_dlogits(c, job, first, loss, err));
    if (job->loss_only) return MHA_OK;
    const mha__config *of = &c->g->model->config;
    MHA__TRY(
        dense_back(c->g, &c->head, c->rows, of->head_width, of->logit_width, c->input, c->dlogits, c->dinput, err));
    if (c->plain) MHA__TRY(transform_back(c, err));
    scatter(c->g, job->rows + first, c->rows, c->plain ? c->dense : c->dinput);
    return MHA_OK;
}

/* ---- processing of all chunks ---- */

/* Finds the weights and gradients of both matrices. A tied output matrix is the word embeddings. */
static mha_status find_slots(const mha_model_grads *g, mha__weights *weights, chunk *c, mha_error *err)
{
    const mha__role role = g->model->config.tied ? MHA__WORDS : MHA__LM_HEAD;
    c->head = mha__grads_slot(g, role, -1);
    c->head.dbias = mha__grads_slot(g, g->model->lm_bias, -1).dweight;
    c->first = mha__grads_slot(g, MHA__LM_DENSE, -1);
    MHA__TRY(mha__grads_weight(weights, role, -1, &c->head, err));
    return mha__grads_weight(weights, MHA__LM_DENSE, -1, &c->first, err);
}

static mha_status run_chunks(const mha_model_grads *g, chunk *c, const mha__head_job *job, double *loss, mha_error *err)
{
    const int64_t max = chunk_rows(g->model, job->count);
    for (int64_t first = 0; first < job->count; first += max) {
        c->rows = mha__min64(max, job->count - first);
        MHA__TRY(run_chunk(c, job, first, loss, err));
    }
    return MHA_OK;
}

mha_status mha__grads_head(mha_model_grads *g, const mha__head_job *job, double *loss, mha_error *err)
{
    chunk c = {.g = g};
    mha__arena arena = {0};
    mha__weights weights = g->model->outer;
    weights.converted = NULL;
    if (!job->count) return MHA_OK;
    lay_out(&arena, g->model, job->teaching, (size_t)chunk_rows(g->model, job->count), &c);
    if (arena.overflow) return mha__no_memory(err, SIZE_MAX, "a chunk of logits");
    MHA__TRY(mha__grads_room(g, &g->head, arena.used, "a chunk of logits", err));
    arena = (mha__arena){.base = g->head.memory};
    lay_out(&arena, g->model, job->teaching, (size_t)chunk_rows(g->model, job->count), &c);
    mha_status status = find_slots(g, &weights, &c, err);
    if (status == MHA_OK) status = run_chunks(g, &c, job, loss, err);
    mha__weights_release(&weights);
    return status;
}

/* ---- pooler ---- */

/* Backpropagates through pooled = tanh(W x + b), where x is the first row of each sequence. */
static mha_status pooler_back(mha_model_grads *g, const mha__grad_slot *slot, const float *dpooled, float *room,
                              mha_error *err)
{
    const int64_t batch = g->batch.sequences, width = g->model->config.hidden;
    float *first = room, *dplain = room + batch * width, *dfirst = dplain + batch * width;
    MHA__TRY(mha__head_pool(g->model, &g->batch, g->saved.last, first, dplain, err));
    for (int64_t i = 0; i < batch * width; i++)
        dplain[i] = dpooled[i] * (1 - dplain[i] * dplain[i]);
    MHA__TRY(dense_back(g, slot, batch, width, width, first, dplain, dfirst, err));
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < width; i++)
            g->saved.dx[mha__batch_first(&g->batch, b) * width + i] += dfirst[b * width + i];
    return MHA_OK;
}

mha_status mha__grads_pooler(mha_model_grads *g, const float *dpooled, mha_error *err)
{
    mha__grad_slot slot = mha__grads_slot(g, MHA__POOLER, -1);
    mha__weights weights = g->model->outer;
    weights.converted = NULL;
    if (!g->model->pooler) return mha__grads_pooled(g, dpooled, NULL, err);
    const size_t bytes = 3 * (size_t)(g->batch.sequences * g->model->config.hidden) * sizeof(float);
    float *room = mha__alloc(g->ctx, bytes);
    if (!room) return mha__no_memory(err, bytes, "the gradient of a pooler");
    mha_status status = mha__grads_weight(&weights, MHA__POOLER, -1, &slot, err);
    if (status == MHA_OK) status = pooler_back(g, &slot, dpooled, room, err);
    mha__weights_release(&weights);
    mha__free(g->ctx, room);
    return status;
}
