/* gates_batch.c - passes the gates of a step to its batches, and collects their gradients from the backward passes. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "train/gates/trainer_gates.h"
#include "train/trainer_struct.h"

mha_status mha__gates_take(mha_trainer *t, const mha_train_batch *batch, bool learn, mha__gates_batch *own,
                           mha_error *err)
{
    const mha__gates *g = t->gates;
    *own = (mha__gates_batch){.batch = *batch};
    if (!g) return MHA_OK;
    MHA__TRY(mha__options_need(&own->input, sizeof own->input, batch->input, "mha_model_input", err));
    if (own->input.gates)
        return mha__fail(err, MHA_ERR_ARG, "gates of a batch must be NULL if the trainer trains gates");
    if (!learn || own->input.batch < 1) return MHA_OK; /* the forward pass rejects a batch without sequences */
    size_t bytes = 0;
    const int64_t dims[] = {3, g->layers, own->input.batch, g->heads};
    const bool fits = mha__bytes(dims, 4, sizeof(float), &bytes);
    own->gates = fits ? mha__calloc(t->ctx, 1, bytes) : NULL;
    if (!own->gates) return mha__no_memory(err, fits ? bytes : SIZE_MAX, "the gates of a batch");
    const int64_t cells = g->layers * own->input.batch * g->heads;
    own->slopes = own->gates + cells;
    own->dgates = own->slopes + cells;
    mha__gates_draw(t, own->input.batch, own->gates, own->slopes);
    own->input.gates = own->gates;
    own->batch.input = &own->input;
    return MHA_OK;
}

void mha__gates_give(mha_trainer *t, mha__gates_batch *own)
{
    mha__gates *g = t->gates;
    const int64_t batch = own->input.batch, heads = g ? g->heads : 0;
    for (int64_t l = 0; own->dgates && l < g->layers; l++)
        for (int64_t n = 0; n < batch * heads; n++)
            g->gradient[l * heads + n % heads] +=
                (double)own->dgates[l * batch * heads + n] * (double)own->slopes[l * batch * heads + n];
    mha__free(t->ctx, own->gates);
}
