/* importance_gradmag.c - computes the mean absolute gradient of each head's rows of Wq, Wk and Wv. One group is one
 * unit. */
#include "heads/data/head_weights.h"
#include "heads/importance/importance_run.h"
#include "model/backward/model_grads.h"

static double mean_of(const mha__importance_job *s, int64_t layer, mha__projection which, int64_t head)
{
    const mha__head_part part = mha__head_part_of(s->model, layer, which, head);
    const float *data = mha__grads_slot(s->grads, part.role, layer).dweight;
    return mha__head_part_abs(&part, data) / (double)(part.rows * part.columns);
}

mha_status mha__group_gradmag(mha__importance_job *s, mha_error *err)
{
    const int64_t H = s->info->heads;
    mha_model_grads_zero(s->grads);
    const mha_status status = mha__importance_loss(s, err);
    for (int64_t n = 0; status == MHA_OK && n < s->total; n++) {
        s->part[n] = 0;
        for (int which = MHA__OF_Q; n % H < s->info->heads_per_layer[n / H] && which <= MHA__OF_V; which++)
            s->part[n] += mean_of(s, n / H, (mha__projection)which, n % H);
    }
    if (status == MHA_OK) mha__tally_add(&s->tally, s->group, s->part, 1);
    return status;
}
