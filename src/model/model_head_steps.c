/* model_head_steps.c - the query, keys, values and output of one head for one token. */
#include "base/error.h"
#include "model/model_struct.h"
#include <math.h>

mha_status mha_model_head_steps(const mha_model *model, const mha_model_activations *a, int64_t head, int64_t row,
                                mha_head_steps *steps, mha_error *err)
{
    static const char *const where = "mha_model_head_steps";
    if (!model || !a || !steps)
        return mha__fail(err, MHA_ERR_ARG, "%s: %s must not be NULL", where, !model ? "model" : !a ? "a" : "steps");
    const mha_model_info *info = mha_model_describe(model);
    const int64_t D = a->head_dim;
    if (head < 0 || head >= a->heads)
        return mha__fail(err, MHA_ERR_ARG, "%s: head must be from 0 to %lld (got %lld)", where, (long long)a->heads - 1,
                         (long long)head);
    if (row < 0 || row >= a->rows)
        return mha__fail(err, MHA_ERR_ARG, "%s: row must be from 0 to %lld (got %lld)", where, (long long)a->rows - 1,
                         (long long)row);
    const int64_t kv = head / (a->heads / a->kv_heads);
    const double scale = info->attention_per_layer[a->layer].scale;
    *steps = (mha_head_steps){.rows = a->rows,
                              .head_dim = D,
                              .stride = a->stride,
                              .q = a->q + row * a->stride + head * D,
                              .k = a->k + kv * D,
                              .v = a->v + kv * D,
                              .context = a->context + (row * a->heads + head) * D,
                              .scale = scale != 0 ? scale : 1 / sqrt((double)D)};
    return MHA_OK;
}

double mha_head_steps_score(const mha_head_steps *s, int64_t key)
{
    if (!s || key < 0 || key >= s->rows) return (double)NAN;
    double sum = 0;
    for (int64_t d = 0; d < s->head_dim; d++)
        sum += (double)s->q[d] * (double)s->k[key * s->stride + d];
    return sum * s->scale;
}
