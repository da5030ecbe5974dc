/* importance_gradmag.c - computes the mean absolute gradient of each head's rows of Wq, Wk and Wv. One group is one
 * unit. */
#include "heads/importance/importance_run.h"
#include "heads/weights/head_weights.h"
#include "model/backward/model_grads.h"

static double mean_of(const mha__importance_job *s, const mha__head_set *set, int64_t n, mha__projection which)
{
    const int64_t layer = n / set->heads;
    const mha__head_part part = mha__head_set_part(set, layer, which, n % set->heads);
    const float *data = mha__grads_slot(mha__importance_grads(s, set), part.role, layer).dweight;
    return mha__head_part_abs(&part, data) / (double)(part.rows * part.columns);
}

mha_status mha__group_gradmag(mha__importance_job *s, mha_error *err)
{
    mha_model_grads_zero(s->grads);
    const mha_status status = mha__importance_loss(s, err);
    for (int64_t n = 0; status == MHA_OK && n < s->total; n++) {
        const mha__head_set *set = mha__head_set_at(&s->sets, n);
        s->part[n] = 0;
        for (int which = MHA__OF_Q; mha__head_set_has(set, n) && which <= MHA__OF_V; which++)
            s->part[n] += mean_of(s, set, n - set->first, (mha__projection)which);
    }
    return status == MHA_OK ? mha__importance_add_group(s, err) : status;
}
