/* worker_sums.c - sums the gradients of virtual workers. */
#include "train/trainer/worker_sums.h"

#include "base/ctx.h"
#include "base/error.h"
#include "layer/adamw.h"
#include "layer/elementwise.h"
#include "train/gates/trainer_gates.h"
#include "train/trainer_struct.h"
#include <string.h>

int64_t mha__own_workers(const mha_trainer *t)
{
    return t->o.reduce == MHA_REDUCE_FAST ? 1 : t->o.workers / mha__train_ranks(t);
}

static size_t gate_bytes(const mha_trainer *t)
{
    return t->gates ? (size_t)(t->gates->layers * t->gates->heads) * sizeof(double) : 0;
}

static mha_status create_sum(mha_trainer *t, mha__worker_sum *sum, mha_error *err)
{
    const size_t bytes = t->grads->bytes;
    if (t->grads->gradients) sum->gradients = mha__alloc(t->ctx, bytes);
    if (t->gates) sum->gates = mha__alloc(t->ctx, gate_bytes(t));
    const bool failed = (t->grads->gradients && !sum->gradients) || (t->gates && !sum->gates);
    return failed ? mha__no_memory(err, bytes, "the gradients of a virtual worker") : MHA_OK;
}

mha_status mha__worker_sums_create(mha_trainer *t, mha_error *err)
{
    int levels = 0;
    while (INT64_C(1) << levels < mha__own_workers(t))
        levels++;
    if (levels == 0) return MHA_OK;
    t->sum = mha__calloc(t->ctx, (size_t)levels, sizeof *t->sum);
    if (!t->sum) return mha__no_memory(err, (size_t)levels * sizeof *t->sum, "the sums of virtual workers");
    for (t->levels = 0; t->levels < levels;)
        MHA__TRY(create_sum(t, &t->sum[t->levels++], err));
    return MHA_OK;
}

void mha__worker_sums_free(mha_trainer *t)
{
    for (int n = 0; n < t->levels; n++) {
        mha__free(t->ctx, t->sum[n].gradients);
        mha__free(t->ctx, t->sum[n].gates);
    }
    mha__free(t->ctx, t->sum);
}

static void add_waiting(mha_trainer *t, const mha__worker_sum *sum, double *loss)
{
    if (mha__grads_parameters(t->grads)) mha__join(t->ctx, MHA__ADD, t->elements, sum->gradients, t->grads->gradients);
    for (size_t n = 0; n < gate_bytes(t) / sizeof *sum->gates; n++)
        t->gates->gradient[n] = sum->gates[n] + t->gates->gradient[n];
    *loss = sum->loss + *loss;
}

static void let_wait(mha_trainer *t, mha__worker_sum *sum, double *loss)
{
    if (mha__grads_parameters(t->grads)) mha__gradients_move(t->ctx, t->elements, t->grads->gradients, sum->gradients);
    if (t->gates) {
        memcpy(sum->gates, t->gates->gradient, gate_bytes(t));
        memset(t->gates->gradient, 0, gate_bytes(t));
    }
    sum->loss = *loss;
    *loss = 0;
}

void mha__worker_end(mha_trainer *t, int64_t worker, double *loss)
{
    int level = 0;
    for (; worker >> level & 1; level++)
        add_waiting(t, &t->sum[level], loss);
    if (worker + 1 < mha__own_workers(t)) let_wait(t, &t->sum[level], loss);
}
