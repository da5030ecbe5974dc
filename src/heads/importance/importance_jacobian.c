/* importance_jacobian.c - computes 1/2 |de/dxi|^2 for each text and head, where e is the output vector of the text and
 * xi the gate of the head. It runs one backward pass per element of e, or per random sign vector u, since the
 * expectation of (u . de/dxi)^2 is |de/dxi|^2. */
#include "base/error.h"
#include "heads/importance/importance_run.h"
#include "layer/loss/sentence_vector.h"
#include "math/rng_draws.h"
#include <math.h>
#include <string.h>

#define SEEDS \
    UINT64_C(0xD1342543DE82EF95) /* odd, so that seeds have different streams; seed 0 hashes the index itself */

/* Computes direction k, u [width], of text `text` of the whole data: unit vector k, or random signs. Signs are hashed
 * from the flat index of [k, text, element], so that they do not depend on batches or groups. */
static void direction(const mha__importance_job *s, int64_t k, int64_t text, int64_t width, double *u)
{
    memset(u, 0, (size_t)width * sizeof *u);
    if (s->options.by == MHA_IMPORTANCE_JACOBIAN) {
        u[k] = 1;
        return;
    }
    uint64_t state = (uint64_t)((k * mha_head_data_count(s->data) + text) * width) * MHA__SPLITMIX;
    state += s->options.seed * SEEDS;
    for (int64_t i = 0; i < width; i++)
        u[i] = mha__splitmix(&state) & 1 ? 1 : -1;
}

/* ---- output vector of encoders: the mean of the last hidden states, L2-normalized ---- */

static mha_status see_hidden(mha__importance_job *s, const mha__packed *batch, mha_error *err)
{
    mha_model_output output = {.size = sizeof output, .last_hidden = s->hidden};
    mha__importance_rows(s, batch, &output);
    MHA__TRY(mha_model_grads_forward(s->grads, &batch->input, &output, err));
    mha__importance_units(s, batch);
    return MHA_OK;
}

static mha_status back_hidden(mha__importance_job *s, const mha__packed *batch, int64_t k, mha_error *err)
{
    const int64_t width = s->info->hidden, *starts = batch->input.starts;
    const mha_model_gradient gradient = {.size = sizeof gradient,
                                         .last_hidden = s->hidden,
                                         .gates = mha__importance_gates(s, batch, MHA_HEADS_OWN),
                                         .cross_gates = mha__importance_gates(s, batch, MHA_HEADS_CROSS),
                                         .encoder_gates = mha__importance_gates(s, batch, MHA_HEADS_ENCODER)};
    for (int64_t b = 0; b < batch->input.batch; b++) {
        const int64_t n = batch->place[b];
        direction(s, k, s->text[n], width, s->direction);
        mha__unit_back(s->unit + n * width, s->length[n], s->direction, starts[b + 1] - starts[b], width,
                       s->hidden + starts[b] * width);
    }
    return mha_model_grads_backward(s->grads, &gradient, err);
}

/* ---- output vector of decoders: the log-probabilities of the token after the text ---- */

static void softmax(float *x, int64_t count)
{
    double sum = 0;
    float max = x[0];
    for (int64_t i = 1; i < count; i++)
        if (x[i] > max) max = x[i];
    for (int64_t i = 0; i < count; i++)
        sum += exp((double)x[i] - (double)max);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)(exp((double)x[i] - (double)max) / sum);
}

static mha_status see_logits(mha__importance_job *s, const mha__packed *batch, mha_error *err)
{
    mha_model_output output = {.size = sizeof output, .last_logits = s->logits};
    mha__importance_rows(s, batch, &output);
    MHA__TRY(mha_model_grads_forward(s->grads, &batch->input, &output, err));
    for (int64_t b = 0; b < batch->input.batch; b++)
        softmax(s->logits + b * s->info->vocab, s->info->vocab);
    return MHA_OK;
}

/* Backpropagates u . log p, whose gradient with respect to the logits is u - p sum(u). */
static mha_status back_logits(mha__importance_job *s, const mha__packed *batch, int64_t k, mha_error *err)
{
    const int64_t vocab = s->info->vocab;
    const mha_model_gradient gradient = {.size = sizeof gradient, .last_logits = s->dlogits, .gates = s->gates};
    for (int64_t b = 0; b < batch->input.batch; b++) {
        double sum = 0;
        direction(s, k, s->text[batch->place[b]], vocab, s->direction);
        for (int64_t i = 0; i < vocab; i++)
            sum += s->direction[i];
        for (int64_t i = b * vocab; i < (b + 1) * vocab; i++)
            s->dlogits[i] = (float)(s->direction[i - b * vocab] - (double)s->logits[i] * sum);
    }
    return mha_model_grads_backward(s->grads, &gradient, err);
}

/* ---- Jacobian of a group of texts ---- */

static void add_squares(mha__importance_job *s, const mha__packed *batch, double factor)
{
    for (int64_t b = 0; b < batch->input.batch; b++)
        for (int64_t n = 0; n < s->total; n++) {
            const double gate = mha__importance_gate(s, batch, b, n);
            mha__importance_part(s, batch, b)[n] += factor * gate * gate;
        }
}

static mha_status run_batch(mha__importance_job *s, const mha__packed *batch, mha_error *err)
{
    const bool exact = s->options.by == MHA_IMPORTANCE_JACOBIAN, logits = mha__jacobian_of_logits(s);
    const int64_t width = logits ? s->info->vocab : s->info->hidden, count = exact ? width : s->options.probes;
    MHA__TRY((logits ? see_logits : see_hidden)(s, batch, err));
    for (int64_t k = 0; k < count; k++) {
        MHA__TRY((logits ? back_logits : back_hidden)(s, batch, k, err));
        add_squares(s, batch, exact ? 0.5 : 0.5 / (double)count);
    }
    return mha__importance_step(s, batch, err);
}

mha_status mha__group_jacobian(mha__importance_job *s, mha_error *err)
{
    mha__packed batch;
    mha__packer_begin(&s->packer, s->text, s->texts);
    while (mha__packer_next(&s->packer, &batch))
        MHA__TRY(run_batch(s, &batch, err));
    return MHA_OK;
}
