/* train_step.c - runs one training step: computes the gradients of all batches and their norm, and updates every
 * tensor.
 *
 * Gradients are accumulated as sums over labels. The update multiplies them by the product of two factors: one converts
 * sums to means, the other clips their norm. The number of labels therefore need not be known in advance. Only the
 * terms of a teacher are means over different units (labels, tokens, texts), which are counted before the backward
 * passes. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "layer/adamw.h"
#include "math/rng_draws.h"
#include "train/gates/trainer_gates.h"
#include "train/trainer/rank_sums.h"
#include "train/trainer/worker_sums.h"
#include "train/trainer_struct.h"
#include <math.h>
#include <string.h>

/* Totals over the batches of a step. */
typedef struct gathered {
    double loss; /* sum over labels */
    int64_t labels;
    double mean;               /* factor that converts sums of losses and gradients to means: 1 / labels; 1 with a
                                * teacher */
    mha_model_distill distill; /* with a teacher: weights per label, per token and per text */
    int64_t overlaps;          /* index of the batch in whose backward pass the ranks sum gradients; -1 = none */
} gathered;

static mha_status check_batches(const mha_trainer *t, const mha_train_batch *batches, int64_t count, const char *call,
                                mha_error *err)
{
    if (!t || !batches) return mha__fail(err, MHA_ERR_ARG, "%s: %s must not be NULL", call, t ? "batches" : "trainer");
    if (count < 1)
        return mha__fail(err, MHA_ERR_ARG, "%s: count must be at least 1 (got %lld)", call, (long long)count);
    return MHA_OK;
}

/* Returns the dropout options and seed of batch `number` in the next step. */
static mha_model_dropout dropout_of(const mha_trainer *t, int64_t number)
{
    const mha_train_dropout *d = &t->o.dropout;
    const uint64_t step = mha__splitmix_at(t->o.seed, (uint64_t)t->step + 1);
    return (mha_model_dropout){d->embedding, d->attention, d->residual, mha__splitmix_at(step, (uint64_t)number + 1)};
}

static mha_status run_batch(mha_trainer *t, const mha_train_batch *batch, int64_t number, bool learn, float *dgates,
                            gathered *g, mha_error *err)
{
    double loss = 0;
    int64_t labels = 0;
    const mha_model_loss_args args = {.size = sizeof args,
                                      .labels = batch->labels,
                                      .scale = 1,
                                      .dgates = dgates,
                                      .on_context = learn && number == g->overlaps ? mha__ranks_on_context : NULL,
                                      .user = t,
                                      .loss_only = learn ? 0 : 1,
                                      .teacher = t->o.teacher,
                                      .distill = g->distill};
    const mha_model_dropout dropout = dropout_of(t, number);
    MHA__TRY(mha_model_grads_dropout(t->grads, learn ? &dropout : NULL, err));
    MHA__TRY(mha_model_grads_loss(t->grads, batch->input, &args, &loss, &labels, err));
    if (!isfinite(loss)) return mha__train_bad_loss(t, batch, number, loss, err);
    g->loss += loss;
    g->labels += labels;
    return MHA_OK;
}

static mha_status add_batch(mha_trainer *t, const mha_train_batch *batch, int64_t number, bool learn, gathered *g,
                            mha_error *err)
{
    mha__gates_batch own;
    MHA__TRY(mha__gates_take(t, batch, learn, &own, err));
    const mha_status status = run_batch(t, &own.batch, number, learn, own.dgates, g, err);
    mha__gates_give(t, &own);
    return status;
}

static mha_status share_weight(double *weight, int64_t units, const char *what, int64_t batches, mha_error *err)
{
    if (*weight == 0) return MHA_OK;
    if (!units)
        return mha__fail(err, MHA_ERR_ARG, "batches must contain at least one %s for the loss (got none in %lld)", what,
                         (long long)batches);
    *weight /= (double)units;
    return MHA_OK;
}

/* Sets *d to the weights of the teacher's terms, divided by the number of labels, tokens or texts of all batches. */
static mha_status share_terms(mha_trainer *t, const mha_train_batch *batches, int64_t count, mha_model_distill *d,
                              mha_error *err)
{
    mha__units all = {0}, u = {0};
    *d = t->o.distill;
    for (int64_t n = 0; n < count; n++) {
        MHA__TRY(mha__grads_units(t->grads, batches[n].input, batches[n].labels, &u, err));
        all = (mha__units){all.labels + u.labels, all.tokens + u.tokens, all.texts + u.texts};
    }
    MHA__TRY(share_weight(&d->labels, all.labels, "label", count, err));
    MHA__TRY(share_weight(&d->logits, all.labels, "label", count, err));
    MHA__TRY(share_weight(&d->hidden, all.tokens, "token", count, err));
    return share_weight(&d->text, all.texts, "text", count, err);
}

/* Returns the number of sequences of a batch; 0 if its input is invalid, which the process that runs it reports. */
static int64_t sequences_of(const mha_train_batch *batch)
{
    mha_model_input in;
    return mha__options_need(&in, sizeof in, batch->input, "mha_model_input", NULL) == MHA_OK ? in.batch : 0;
}

/* Runs the workers of this process one after another, each on its batches. */
static mha_status run_workers(mha_trainer *t, const mha_train_batch *batches, int64_t count, gathered *g,
                              mha_error *err)
{
    const int64_t workers = mha__own_workers(t), each = count / (workers * mha__train_ranks(t));
    int64_t n = mha__train_rank(t) * workers * each;
    const bool overlaps = mha__ranks_overlap(t) && mha__config_choosing(&t->model->config) < 0;
    g->overlaps = overlaps ? n + workers * each - 1 : -1;
    for (int64_t other = 0; t->gates && other < n; other++)
        t->gates->sampled += sequences_of(&batches[other]);
    for (int64_t worker = 0; worker < workers; worker++) {
        for (const int64_t end = n + each; n < end; n++)
            MHA__TRY(add_batch(t, &batches[n], n, true, g, err));
        mha__worker_end(t, worker, &g->loss);
    }
    return MHA_OK;
}

static mha_status prepare(mha_trainer *t, const mha_train_batch *batches, int64_t count, gathered *g, mha_error *err)
{
    if (t->stale) MHA__TRY(mha_trainer_refresh(t, err));
    return t->o.teacher ? share_terms(t, batches, count, &g->distill, err) : MHA_OK;
}

static mha_status find_mean(const mha_trainer *t, int64_t count, gathered *g, mha_error *err)
{
    if (!g->labels) return mha__fail(err, MHA_ERR_ARG, "labels of %lld batches must not all be -100", (long long)count);
    g->mean = t->o.teacher ? 1 : 1 / (double)g->labels;
    return MHA_OK;
}

/* Runs the forward and backward passes of this process. */
static mha_status run_own(mha_trainer *t, const mha_train_batch *batches, int64_t count, gathered *g, mha_error *err)
{
    if (t->gates) MHA__TRY(mha__gates_begin(t, err));
    MHA__TRY(prepare(t, batches, count, g, err));
    return run_workers(t, batches, count, g, err);
}

/* Sums the gradients of all batches over all ranks. */
static mha_status gather(mha_trainer *t, const mha_train_batch *batches, int64_t count, gathered *g, mha_error *err)
{
    mha_error why = {0};
    MHA__TRY(mha__ranks_begin(t, err));
    mha__grads_rest(t->grads, !mha__train_own_step(&t->o, t->step + 1));
    mha_status status = run_own(t, batches, count, g, &why);
    status = mha__ranks_add(t, status, &g->loss, &g->labels, &why);
    if (status != MHA_OK && err) *err = why;
    return status == MHA_OK ? find_mean(t, count, g, err) : status;
}

/* Computes the sums of squares of the blocks that this process updates. */
static void square_blocks(const mha_trainer *t)
{
    int64_t block = t->own_blocks[mha__train_rank(t)];
    for (int64_t n = 0; n < t->count; n++) {
        const mha__parameter *p = &t->parameter[n];
        if (!p->frozen)
            mha__squares_partial(t->ctx, p->own_count, (float *)t->gradients[n].data + p->own_first,
                                 t->partial + block);
        block += mha__squares_blocks(p->own_count);
    }
}

/* Computes the norm of all trained gradients, which are still sums over labels. */
static mha_status find_length(mha_trainer *t, double *length, mha_error *err)
{
    double squares = 0;
    const double *partial = t->partial;
    square_blocks(t);
    MHA__TRY(mha__ranks_gather_squares(t, err));
    for (int64_t n = 0; n < t->count; n++) {
        const mha__parameter *p = &t->parameter[n];
        const int64_t blocks = mha__squares_blocks(p->count);
        const double own = p->frozen ? 0 : mha__squares_sum(partial, blocks);
        partial += blocks;
        if (!isfinite(own)) return mha__train_bad_gradient(t, n, err);
        squares += own;
    }
    *length = sqrt(squares);
    return t->gates ? mha__gates_check(t, err) : MHA_OK;
}

/* Updates the weights and sets the gradients to 0. Does nothing while only gates are trained, because there are no
 * weight gradients. */
static void update(mha_trainer *t, double rate, double scale)
{
    const mha_train_options *o = &t->o;
    const int64_t own = mha__train_own_step(o, t->step);
    if (o->gates.only || !own) return;
    mha__train_moments(t);
    const uint64_t seed = ~mha__splitmix_at(o->seed, (uint64_t)t->step); /* not a seed of dropout or gates */
    for (int64_t n = 0; n < t->count; n++) {
        const mha__parameter *p = &t->parameter[n];
        const mha__adamw job = {.count = p->own_count,
                                .weight = (float *)t->list[n].data + p->own_first,
                                .gradient = (float *)t->gradients[n].data + p->own_first,
                                .mean = p->mean,
                                .square = p->square,
                                .moments = o->moments,
                                .seed = seed,
                                .first = p->first + p->own_first,
                                .scale = scale,
                                .rate = rate,
                                .beta1 = o->beta1,
                                .beta2 = o->beta2,
                                .eps = o->eps,
                                .decay = p->decays ? o->decay : 0,
                                .step = own};
        if (p->frozen)
            memset(job.gradient, 0, (size_t)job.count * sizeof *job.gradient);
        else
            mha__adamw_run(t->ctx, &job);
    }
}

/* Runs one training step. Everything that can fail precedes the update, except repacking. */
static mha_status take_step(mha_trainer *t, const mha_train_batch *batches, int64_t count, mha_train_report *report,
                            mha_error *err)
{
    static const double safety = 1e-6; /* as in torch.nn.utils.clip_grad_norm_ */
    gathered g = {0};
    double length = 0;
    MHA__TRY(gather(t, batches, count, &g, err));
    MHA__TRY(find_length(t, &length, err));
    const double norm = length * g.mean;
    const double cut = t->o.clip != 0 ? fmin(1, t->o.clip / (norm + safety)) : 1;
    report->step = t->step + 1;
    report->labels = g.labels;
    report->loss = g.loss * g.mean;
    report->norm = norm;
    report->rate = mha_train_rate(&t->o, report->step);
    report->open = (double)mha_trainer_gates(t, NULL, NULL);
    t->step = report->step;
    update(t, report->rate, g.mean * cut);
    MHA__TRY(mha__ranks_gather_weights(t, err));
    if (t->gates) mha__gates_update(t, g.mean, report);
    if (t->gates) mha__gates_end(t);
    return mha_trainer_refresh(t, err);
}

/* Discards the gradients of the batches of a failed step. */
static void undo(mha_trainer *t)
{
    mha_model_grads_zero(t->grads);
    if (!t->gates) return;
    mha__gates_end(t);
    mha_trainer_refresh(t, NULL); /* if this fails, the next step repacks */
}

mha_status mha_trainer_step(mha_trainer *t, const mha_train_batch *batches, int64_t count, mha_train_report *report,
                            mha_error *err)
{
    mha_train_report own = {0};
    mha_error unread;
    if (!err) err = &unread; /* the callbacks of the ranks may write to *err */
    MHA__TRY(check_batches(t, batches, count, "mha_trainer_step", err));
    if (count % t->o.workers != 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_trainer_step: count must be a multiple of the %lld workers (got %lld)",
                         (long long)t->o.workers, (long long)count);
    const int64_t before = t->step;
    const mha_status status = take_step(t, batches, count, &own, err);
    if (t->step == before) undo(t);
    if (report) *report = own;
    return status;
}

mha_status mha_trainer_loss(mha_trainer *t, const mha_train_batch *batches, int64_t count, double *loss,
                            int64_t *labels, mha_error *err)
{
    gathered g = {.overlaps = -1};
    MHA__TRY(check_batches(t, batches, count, "mha_trainer_loss", err));
    MHA__TRY(prepare(t, batches, count, &g, err));
    for (int64_t n = 0; n < count; n++)
        MHA__TRY(add_batch(t, &batches[n], n, false, &g, err));
    MHA__TRY(find_mean(t, count, &g, err));
    if (loss) *loss = g.loss * g.mean;
    if (labels) *labels = g.labels;
    return MHA_OK;
}
