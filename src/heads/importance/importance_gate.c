/* importance_gate.c - computes scores from the gradients of gates, one gate per text and head. The gradients of texts
 * are multiplied by the number of units, so that the mean over units is the sum over texts of the gradient of the mean
 * loss. */
#include "heads/importance/importance_run.h"
#include <math.h>

void mha__take_gate(mha__importance_job *s, const mha__packed *batch)
{
    for (int64_t b = 0; b < batch->input.batch; b++)
        for (int64_t n = 0; n < s->total; n++)
            mha__importance_part(s, batch, b)[n] = (double)s->group_units * fabs(mha__importance_gate(s, batch, b, n));
}

void mha__take_gate_batch(mha__importance_job *s, const mha__packed *batch)
{
    for (int64_t b = 0; b < batch->input.batch; b++)
        for (int64_t n = 0; n < s->total; n++)
            mha__importance_part(s, batch, b)[n] = (double)s->group_units * mha__importance_gate(s, batch, b, n);
}
