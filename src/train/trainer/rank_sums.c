/* rank_sums.c - sums gradients over the ranks of a training run.
 *
 * Before each exchange, the ranks agree that all of them have reached it, so that no rank waits for a rank that has
 * failed. With MHA_REDUCE_FAST, exchanges begin before this agreement, and a rank whose workers have failed takes part
 * in them. */
#include "train/trainer/rank_sums.h"

#include "base/error.h"
#include "train/gates/trainer_gates.h"
#include "train/trainer_struct.h"

/* ---- checks at the beginning of a step ---- */

static int64_t frozen_elements(const mha_trainer *t)
{
    int64_t sum = 0;
    for (int64_t n = 0; n < t->count; n++)
        sum += t->parameter[n].frozen ? t->parameter[n].count : 0;
    return sum;
}

static mha_status compare_options(const mha_trainer *t, mha_error *err)
{
    const mha_train_options *o = &t->o;
    const mha_train_gates *g = &o->gates;
    const mha_model_distill *d = &o->distill;
    const double reals[] = {o->rate,     o->beta1,
                            o->beta2,    o->eps,
                            o->decay,    o->floor,
                            o->clip,     o->dropout.embedding,
                            g->strength, g->rate,
                            g->initial,  o->dropout.attention,
                            o->dtype,    o->dropout.residual,
                            d->labels,   d->logits,
                            d->hidden,   d->text,
                            d->pool,     d->temperature};
    const int64_t integers[] = {o->warmup,
                                o->steps,
                                (int64_t)o->seed,
                                o->workers,
                                o->decays,
                                o->reduce,
                                g->start,
                                g->ramp,
                                g->end,
                                g->heads,
                                g->only,
                                g->first,
                                g->penalty,
                                t->step,
                                t->elements,
                                o->teacher != NULL,
                                frozen_elements(t),
                                o->moments};
    MHA__TRY(o->ranks->same(o->ranks->user, "mha_train_options", reals, sizeof reals, err));
    return o->ranks->same(o->ranks->user, "mha_train_options and the step", integers, sizeof integers, err);
}

static mha_status compare_teachers(const mha_trainer *t, mha_error *err)
{
    char mark[17] = "";
    mha_error why = {0};
    if (!t->o.teacher) return MHA_OK;
    mha_status status = mha_model_fingerprint(t->o.teacher, mark, &why);
    status = t->o.ranks->agree(t->o.ranks->user, status, 1, &why);
    if (status == MHA_OK) status = t->o.ranks->same(t->o.ranks->user, "the teacher", mark, sizeof mark, &why);
    if (status != MHA_OK) *err = why;
    return status;
}

static mha_status compare(mha_trainer *t, mha_error *err)
{
    char mark[17] = "";
    MHA__TRY(compare_options(t, err));
    mha__train_mark_weights(t, mark);
    MHA__TRY(t->o.ranks->same(t->o.ranks->user, "the weights", mark, sizeof mark, err));
    MHA__TRY(compare_teachers(t, err));
    t->compared = true;
    return MHA_OK;
}

mha_status mha_trainer_compare_ranks(mha_trainer *trainer, mha_error *err)
{
    mha_error why = {0};
    if (!trainer) return mha__fail(err, MHA_ERR_ARG, "mha_trainer_compare_ranks: trainer must not be NULL");
    if (!trainer->o.ranks || trainer->compared) return MHA_OK;
    const mha_status status = compare(trainer, &why);
    if (status != MHA_OK && err) *err = why;
    return status;
}

mha_status mha__ranks_begin(mha_trainer *t, mha_error *err)
{
    const mha_train_ranks *r = t->o.ranks;
    t->unsummed = t->elements;
    t->overlap_status = MHA_OK;
    if (!r) return MHA_OK;
    MHA__TRY(r->agree(r->user, MHA_OK, 1, err));
    return t->compared ? MHA_OK : compare(t, err);
}

/* ---- sums during the backward pass (MHA_REDUCE_FAST) ---- */

bool mha__ranks_overlap(const mha_trainer *t)
{
    return t->o.ranks && t->o.reduce == MHA_REDUCE_FAST && mha__grads_parameters(t->grads);
}

/* Begins the sum of the gradients from element `first` up to the elements whose sums have already begun. */
static mha_status start(mha_trainer *t, int64_t first, mha_error *err)
{
    const int64_t count = t->unsummed - first;
    t->unsummed = first;
    return t->o.ranks->start(t->o.ranks->user, t->grads->gradients + first, count, err);
}

/* Returns the first element of the parameters of a layer. Parameters outside the layers precede the layers. */
static int64_t first_of_layer(const mha_trainer *t, int64_t layer)
{
    int64_t n = 0;
    while (n < t->count && t->parameter[n].layer < layer)
        n++;
    return n < t->count ? t->parameter[n].first : t->elements;
}

/* Begins the sum of the gradients of this layer and of later layers, unless these gradients are smaller than a
 * bucket. */
static mha_status start_layer(mha_trainer *t, int64_t layer, mha_error *err)
{
    const int64_t first = first_of_layer(t, layer);
    return (t->unsummed - first) * (int64_t)sizeof(float) < t->bucket ? MHA_OK : start(t, first, err);
}

int mha__ranks_on_context(void *user, const mha_model_context_gradient *layer)
{
    mha_trainer *t = user;
    t->overlap_status = start_layer(t, layer->layer, &t->overlap_error);
    return t->overlap_status != MHA_OK;
}

/* Begins the remaining sums. All ranks must begin the same sums, so a rank whose backward pass has failed begins the
 * sums of the layers that it did not reach. On the other ranks, the loop begins no sum. */
static mha_status start_rest(mha_trainer *t, mha_error *err)
{
    for (int64_t layer = t->parameter[t->count - 1].layer; layer >= 0; layer--)
        MHA__TRY(start_layer(t, layer, err));
    return start(t, 0, err);
}

static mha_status finish(mha_trainer *t, mha_error *err)
{
    if (t->overlap_status != MHA_OK) {
        *err = t->overlap_error;
        return t->overlap_status;
    }
    MHA__TRY(start_rest(t, err));
    return t->o.ranks->finish(t->o.ranks->user, err);
}

/* ---- sums after the backward pass ---- */

mha_status mha__ranks_add(mha_trainer *t, mha_status status, double *loss, int64_t *labels, mha_error *err)
{
    const mha_train_ranks *r = t->o.ranks;
    if (!r) return status;
    if (mha__ranks_overlap(t)) MHA__TRY(finish(t, err));
    MHA__TRY(r->agree(r->user, status, 0, err));
    MHA__TRY(r->add_integers(r->user, labels, 1, err));
    MHA__TRY(r->add_doubles(r->user, loss, 1, err));
    if (t->gates) MHA__TRY(r->add_doubles(r->user, t->gates->gradient, t->gates->layers * t->gates->heads, err));
    if (!mha__grads_parameters(t->grads) || mha__ranks_overlap(t)) return MHA_OK;
    return r->add_floats(r->user, t->grads->gradients, t->starts, err);
}

mha_status mha__ranks_gather_squares(mha_trainer *t, mha_error *err)
{
    const mha_train_ranks *r = t->o.ranks;
    return r ? r->gather(r->user, t->partial, sizeof *t->partial, t->own_blocks, err) : MHA_OK;
}

mha_status mha__ranks_gather_weights(mha_trainer *t, mha_error *err)
{
    const mha_train_ranks *r = t->o.ranks;
    if (!r || !mha__grads_parameters(t->grads)) return MHA_OK;
    mha_model_grads_zero(t->grads); /* the update zeroes only the gradients of this rank's range */
    return r->gather(r->user, t->weights, sizeof *t->weights, t->starts, err);
}
