/* importance_loss.c - computes the loss of the texts of a step and its gradient, batch by batch. */
#include "base/error.h"
#include "heads/importance/importance_run.h"
#include "layer/loss/contrastive_loss.h"
#include "layer/loss/sentence_vector.h"
#include "mha/layer.h"

void mha__importance_rows(const mha__importance_job *s, const mha__packed *batch, mha_model_output *output)
{
    if (!s->statistics) return;
    for (int64_t b = 0; b < batch->input.batch; b++)
        mha__heads_pass_text(s->statistics->pass, b, batch->input.starts[b], s->text[batch->place[b]]);
    output->on_rows = mha__heads_pass_rows;
    output->user = s->statistics->pass;
}

static mha_status take(mha__importance_job *s, const mha__packed *batch, mha_error *err)
{
    if (s->rule->take) s->rule->take(s, batch);
    mha__identity_gates(s);
    return mha__importance_step(s, batch, err);
}

/* ---- cross entropy of tokens ---- */

static mha_model_loss_args loss_args(mha__importance_job *s, const mha__packed *batch, const mha_model_output *output)
{
    return (mha_model_loss_args){.size = sizeof(mha_model_loss_args),
                                 .output = output,
                                 .labels = batch->labels,
                                 .scale = 1 / (double)s->terms,
                                 .dgates = mha__importance_gates(s, batch, MHA_HEADS_OWN),
                                 .dcross_gates = mha__importance_gates(s, batch, MHA_HEADS_CROSS),
                                 .dencoder_gates = mha__importance_gates(s, batch, MHA_HEADS_ENCODER),
                                 .on_context = mha__importance_context,
                                 .user = s,
                                 .taylor = s->rule->taylor};
}

static mha_status tokens_loss(mha__importance_job *s, double *loss, mha_error *err)
{
    mha__packed batch;
    mha__packer_begin(&s->packer, s->text, s->texts);
    while (mha__packer_next(&s->packer, &batch)) {
        double part = 0;
        mha_model_output output = {.size = sizeof output};
        mha__importance_rows(s, &batch, &output);
        const mha_model_loss_args args = loss_args(s, &batch, &output);
        s->batch = &batch;
        MHA__TRY(mha_model_grads_loss(s->grads, &batch.input, &args, &part, NULL, err));
        *loss += part;
        MHA__TRY(take(s, &batch, err));
    }
    return MHA_OK;
}

/* ---- loss of pairs ---- */

void mha__importance_units(mha__importance_job *s, const mha__packed *batch)
{
    const int64_t width = s->info->hidden, *starts = batch->input.starts;
    for (int64_t b = 0; b < batch->input.batch; b++) {
        const int64_t n = batch->place[b];
        s->length[n] = mha__unit(s->hidden + starts[b] * width, starts[b + 1] - starts[b], width, s->unit + n * width);
    }
}

static mha_status pairs_back(mha__importance_job *s, const mha__packed *batch, mha_error *err)
{
    const int64_t width = s->info->hidden, *starts = batch->input.starts;
    for (int64_t b = 0; b < batch->input.batch; b++) {
        const int64_t n = batch->place[b];
        mha__unit_back(s->unit + n * width, s->length[n], s->dunit + n * width, starts[b + 1] - starts[b], width,
                       s->hidden + starts[b] * width);
    }
    const mha_model_gradient gradient = {.size = sizeof gradient,
                                         .last_hidden = s->hidden,
                                         .gates = s->gates,
                                         .on_context = mha__importance_context,
                                         .user = s,
                                         .taylor = s->rule->taylor};
    s->batch = batch;
    MHA__TRY(mha_model_grads_backward(s->grads, &gradient, err));
    return take(s, batch, err);
}

/* Computes the loss of pairs and its gradient. If the group is one batch, it runs once. In a larger group, every
 * embedding is needed before the first backward pass, so the forward pass runs twice instead of storing all
 * activations. */
static mha_status pairs_loss(mha__importance_job *s, double *loss, mha_error *err)
{
    mha_model_output output = {.size = sizeof output, .last_hidden = s->hidden};
    mha__packed batch;
    mha__packer_begin(&s->packer, s->text, s->texts);
    const bool once = mha__packer_is_whole(&s->packer);
    while (mha__packer_next(&s->packer, &batch)) {
        mha__importance_rows(s, &batch, &output);
        MHA__TRY(once ? mha_model_grads_forward(s->grads, &batch.input, &output, err)
                      : mha_model_forward(s->model, &batch.input, &output, err));
        mha__importance_units(s, &batch);
    }
    MHA__TRY(mha__pairs_loss(s->ctx, s->unit, s->count, s->info->hidden, s->options.loss_scale, loss, s->dunit, err));
    if (once) return pairs_back(s, &batch, err);
    mha__packer_begin(&s->packer, s->text, s->texts);
    while (mha__packer_next(&s->packer, &batch)) {
        MHA__TRY(mha_model_grads_forward(s->grads, &batch.input, NULL, err));
        MHA__TRY(pairs_back(s, &batch, err));
    }
    return MHA_OK;
}

mha_status mha__importance_loss(mha__importance_job *s, mha_error *err)
{
    double loss = 0;
    mha__identity_begin(s);
    MHA__TRY((s->options.loss == MHA_LOSS_PAIRS ? pairs_loss : tokens_loss)(s, &loss, err));
    const bool weights = s->rule->parameters && !mha__identity_shared(s);
    if (weights) MHA__TRY(mha__identity_weights(s, err));
    mha__identity_end(s, weights ? MHA__FORMS : MHA__FORM_OUT);
    mha__fixed_add(s->loss, loss);
    return MHA_OK;
}
