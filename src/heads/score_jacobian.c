/* score_jacobian.c - 1/2 |de/dxi|^2 of each text and head: one way back for each number of e, or for each of a few
 * random vectors of signs u, whose (u . de/dxi)^2 has that mean. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/rng.h"
#include "heads/scoring.h"
#include "layer/unit.h"

#define SEEDS \
    UINT64_C(0xD1342543DE82EF95) /* any odd number: seeds are far from one another, and 0 is the plain index */

/* Vector k of text b of the whole data, of `width` numbers: a number of e, or signs from the flat index of [k, b, i].
 * So neither batches nor groups change what is drawn. */
static void direction(const mha__scoring *s, int64_t k, int64_t text, int64_t width, double *u)
{
    memset(u, 0, (size_t)width * sizeof *u);
    if (s->options.by == MHA_SCORE_JACOBIAN) {
        u[k] = 1;
        return;
    }
    uint64_t state = (uint64_t)((k * mha_head_data_count(s->data) + text) * width) * MHA__SPLITMIX;
    state += s->options.seed * SEEDS;
    for (int64_t i = 0; i < width; i++)
        u[i] = mha__splitmix(&state) & 1 ? 1 : -1;
}

/* The gradient of u . e in s->hidden. */
static void aim(mha__scoring *s, const mha__packed *batch, int64_t k)
{
    const int64_t width = s->info->hidden, *starts = batch->input.starts;
    for (int64_t b = 0; b < batch->input.batch; b++) {
        const int64_t n = batch->place[b];
        double *u = s->dunit + n * width;
        direction(s, k, s->text[n], width, u);
        mha__unit_back(s->unit + n * width, s->length[n], u, starts[b + 1] - starts[b], width,
                       s->hidden + starts[b] * width);
    }
}

static void add_squares(mha__scoring *s, const mha__packed *batch, double factor)
{
    for (int64_t b = 0; b < batch->input.batch; b++)
        for (int64_t n = 0; n < s->total; n++) {
            const double gate = mha__scoring_gate(s, batch, b, n);
            mha__scoring_part(s, batch, b)[n] += factor * gate * gate;
        }
}

static mha_status run_batch(mha__scoring *s, const mha__packed *batch, mha_error *err)
{
    const bool exact = s->options.by == MHA_SCORE_JACOBIAN;
    const int64_t count = exact ? s->info->hidden : s->options.probes;
    const mha_model_output output = {.size = sizeof output, .last_hidden = s->hidden};
    const mha_model_gradient gradient = {.size = sizeof gradient, .last_hidden = s->hidden, .gates = s->gates};
    MHA__TRY(mha_model_grads_forward(s->grads, &batch->input, &output, err));
    mha__scoring_units(s, batch);
    for (int64_t k = 0; k < count; k++) {
        aim(s, batch, k);
        MHA__TRY(mha_model_grads_backward(s->grads, &gradient, err));
        add_squares(s, batch, exact ? 0.5 : 0.5 / (double)count);
    }
    return mha__scoring_step(s, batch, err);
}

mha_status mha__group_jacobian(mha__scoring *s, mha_error *err)
{
    mha__packed batch;
    mha__packer_begin(&s->packer, s->text, s->texts);
    while (mha__packer_next(&s->packer, &batch))
        MHA__TRY(run_batch(s, &batch, err));
    return MHA_OK;
}
