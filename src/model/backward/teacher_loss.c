/* teacher_loss.c - runs the teacher, and computes the loss terms that compare hidden states and texts of model and
 * teacher. Sums are computed in double, in row order. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "layer/loss/distillation_kl.h"
#include "model/backward/model_grads.h"
#include "model/forward/pooler_logits.h"
#include <math.h>
#include <string.h>

/* ---- options ---- */

static mha_status check_weights(const mha_model_distill *d, mha_error *err)
{
    const double value[] = {d->labels, d->logits, d->hidden, d->text};
    static const char *const name[] = {"labels", "logits", "hidden", "text"};
    for (int n = 0; n < 4; n++)
        if (!(value[n] >= 0 && isfinite(value[n])))
            return mha__fail(err, MHA_ERR_ARG, "mha_model_distill: %s must be at least 0 (got %g)", name[n], value[n]);
    if (!(d->temperature >= MHA__COOLEST && d->temperature <= MHA__HOTTEST))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_distill: temperature must be from %g to %g (got %g)",
                         MHA__COOLEST, MHA__HOTTEST, d->temperature);
    if (d->pool != MHA_POOL_MEAN && d->pool != MHA_POOL_CLS)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_distill: pool must be a value of mha_pool (got %d)",
                         (int)d->pool);
    return MHA_OK;
}

/* Checks that the outputs of the two models can be compared. */
static mha_status check_pair(const mha_model *m, const mha_model *teacher, const mha_model_distill *d, mha_error *err)
{
    const mha__config *own = &m->config, *other = &teacher->config;
    if (!teacher->packed)
        return mha__fail(err, MHA_ERR_ARG, "teacher must have weights (got a model opened with no_weights)");
    if (other->vocab != own->vocab)
        return mha__fail(err, MHA_ERR_ARG, "vocabulary of the teacher must have %lld tokens (got %lld)",
                         (long long)own->vocab, (long long)other->vocab);
    if ((d->hidden != 0 || d->text != 0) && other->hidden != own->hidden)
        return mha__fail(err, MHA_ERR_ARG,
                         "hidden_size of the teacher must be %lld, that of the model, to compare states (got %lld)",
                         (long long)own->hidden, (long long)other->hidden);
    if (d->logits == 0) return MHA_OK;
    if (!teacher->lm_head)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "teacher must have logits unless the weight of logits is 0");
    MHA__TRY(mha__head_check_tokens(m->config.discriminator ? m : teacher, err));
    if (teacher->info.causal == m->info.causal) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "teacher must be %s like the model (got %s)",
                     m->info.causal ? "a decoder" : "an encoder", teacher->info.causal ? "a decoder" : "an encoder");
}

mha_status mha__distill_read(const mha_model *m, const mha_model *teacher, mha_model_distill *d, mha_error *err)
{
    const bool given = d->labels != 0 || d->logits != 0 || d->hidden != 0 || d->text != 0;
    if (!teacher && (given || d->temperature != 0))
        return mha__fail(
            err, MHA_ERR_ARG,
            "mha_model_distill: teacher must not be NULL with labels, logits, hidden, text or temperature");
    if (!teacher)
        *d = (mha_model_distill){.labels = 1};
    else if (!given && m->info.logits && teacher->info.logits)
        d->labels = d->logits = 0.5;
    else if (!given)
        d->hidden = 1;
    if (d->temperature == 0) d->temperature = 2;
    MHA__TRY(check_weights(d, err));
    if (teacher) MHA__TRY(mha__model_not_seq2seq(m, "mha_model_distill: model", err));
    if (teacher) MHA__TRY(mha__model_not_seq2seq(teacher, "mha_model_distill: teacher", err));
    if (teacher) MHA__TRY(check_pair(m, teacher, d, err));
    return mha__head_check(m, false, mha__distill_logits(d), err);
}

/* ---- outputs of the teacher ---- */

mha_status mha__teacher_run(const mha_model *teacher, const mha_model_input *input, float *hidden, mha_error *err)
{
    mha_model_input in;
    const mha_model_output output = {.size = sizeof output, .last_hidden = hidden};
    MHA__TRY(mha__options_read(&in, sizeof in, input, "mha_model_input", err));
    in.gates = NULL; /* gates refer to heads of the model, not of the teacher */
    return mha_model_forward(teacher, &in, &output, err);
}

mha_status mha__teacher_logits(const mha__teaching *t, const int64_t *rows, int64_t count, float *x, float *room,
                               float *logits, mha_error *err)
{
    const int64_t width = t->teacher->config.hidden;
    const float *input = x;
    for (int64_t r = 0; r < count; r++)
        memcpy(x + r * width, t->hidden + rows[r] * width, (size_t)width * sizeof *x);
    MHA__TRY(mha__head_input(t->teacher, count, x, room, &input, err));
    return mha__head_logits(t->teacher, count, input, logits, err);
}

/* ---- hidden states ---- */

/* Returns the weighted sum of squared differences of the states of all real tokens. With `learn`, adds the gradient to
 * saved.dx. */
static double compare_states(mha_model_grads *g, const mha__teaching *t, bool learn)
{
    const int64_t rows = g->batch.in.batch * g->batch.in.length, width = g->model->config.hidden;
    const double scale = t->of_hidden / (double)width;
    double sum = 0;
    for (int64_t r = 0; r < rows; r++) {
        const float *own = g->saved.last + r * width, *other = t->hidden + r * width;
        float *dx = g->saved.dx + r * width;
        if (!mha__grads_real(g, r)) continue;
        for (int64_t i = 0; i < width; i++) {
            const double apart = (double)own[i] - (double)other[i];
            sum += apart * apart;
            if (learn) dx[i] += (float)(2 * scale * apart);
        }
    }
    return scale * sum;
}

/* The rows of a text whose mean is the embedding of the text. */
typedef struct text_rows {
    int64_t begin, end;
    int64_t count; /* number of real tokens before `end` */
} text_rows;

static text_rows rows_of(const mha_model_grads *g, int64_t text, mha_pool pool)
{
    const int64_t all = g->batch.in.batch * g->batch.in.length;
    text_rows t = {.begin = mha__batch_first(&g->batch, text)};
    const int64_t end = text + 1 < g->batch.sequences ? mha__batch_first(&g->batch, text + 1) : all;
    for (int64_t r = t.begin; r < end; r++) {
        if (!mha__grads_real(g, r)) continue;
        t.end = r + 1;
        t.count++;
        if (pool == MHA_POOL_CLS) break;
    }
    return t;
}

/* Computes the embedding of a text, pooled and normalized as in text_embedding.c. Returns the L2 norm before
 * normalization. */
static double vector_of(const mha_model_grads *g, const text_rows *t, const float *hidden, double *v)
{
    const int64_t width = g->model->config.hidden;
    double square = 0;
    memset(v, 0, (size_t)width * sizeof *v);
    for (int64_t r = t->begin; r < t->end; r++)
        for (int64_t i = 0; i < width && mha__grads_real(g, r); i++)
            v[i] += (double)hidden[r * width + i];
    for (int64_t i = 0; i < width; i++) {
        v[i] /= (double)t->count;
        square += v[i] * v[i];
    }
    const double length = fmax(sqrt(square), 1e-12);
    for (int64_t i = 0; i < width; i++)
        v[i] /= length;
    return length;
}

/* Returns 1 - cos(u, v) of two unit-norm vectors, computed as |u - v|^2 / 2, which is exactly 0 for equal vectors. Sets
 * v to u - v, and *along to the dot product of u and u - v. */
static double apart(int64_t width, const double *u, double *v, double *along)
{
    double square = 0;
    *along = 0;
    for (int64_t i = 0; i < width; i++) {
        v[i] = u[i] - v[i];
        square += v[i] * v[i];
        *along += u[i] * v[i];
    }
    return square / 2;
}

/* Returns the loss term of one text; with `learn`, adds its gradient to saved.dx. `room` is scratch [2, E]. */
static double compare_text(mha_model_grads *g, const mha__teaching *t, int64_t text, bool learn, double *room)
{
    const int64_t width = g->model->config.hidden;
    const text_rows rows = rows_of(g, text, t->pool);
    double *u = room, *v = room + width, along;
    if (!rows.count) return 0;
    const double length = vector_of(g, &rows, g->saved.last, u);
    vector_of(g, &rows, t->hidden, v);
    const double sum = apart(width, u, v, &along), scale = t->of_text / (length * (double)rows.count);
    for (int64_t r = rows.begin; learn && r < rows.end; r++)
        for (int64_t i = 0; i < width && mha__grads_real(g, r); i++)
            g->saved.dx[r * width + i] += (float)(scale * (v[i] - along * u[i]));
    return t->of_text * sum;
}

mha_status mha__teach_states(mha_model_grads *g, const mha__teaching *t, bool learn, double *loss, mha_error *err)
{
    const size_t bytes = 2 * (size_t)g->model->config.hidden * sizeof(double);
    double *room = NULL;
    if (t->of_hidden != 0) *loss += compare_states(g, t, learn);
    if (t->of_text == 0) return MHA_OK;
    if (!(room = mha__alloc(g->ctx, bytes))) return mha__no_memory(err, bytes, "the embeddings of texts");
    for (int64_t b = 0; b < g->batch.sequences; b++)
        *loss += compare_text(g, t, b, learn, room);
    mha__free(g->ctx, room);
    return MHA_OK;
}

void mha__count_states(const mha_model_grads *g, mha__units *units)
{
    units->tokens = units->texts = 0;
    for (int64_t b = 0; b < g->batch.sequences; b++) {
        const text_rows rows = rows_of(g, b, MHA_POOL_MEAN);
        units->tokens += rows.count;
        units->texts += rows.count > 0;
    }
}
