/* head_projection.c - reads the projections of one head as the checkpoint stores them (mha_head_weights). */
#include "base/ctx.h"
#include "base/error.h"
#include "heads/weights/head_weights.h"
#include "mha/weight_circuits.h"
#include <string.h>

static mha_status check(const mha_model *m, int64_t layer, int64_t head, mha_error *err)
{
    static const char what[] = "mha_head_weights: model";
    if (!m || !m->packed) return mha__fail(err, MHA_ERR_ARG, "%s must have been opened with its weights", what);
    MHA__TRY(mha__model_not_seq2seq(m, what, err));
    if (m->ranks.ranks) return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s must not be divided among processes", what);
    if (m->config.family->latent)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s must not have latent attention (got %s)", what, m->info.family);
    if (layer < 0 || layer >= m->config.layers)
        return mha__fail(err, MHA_ERR_ARG, "mha_head_weights: layer must be from 0 to %lld (got %lld)",
                         (long long)m->config.layers - 1, (long long)layer);
    if (head < 0 || head >= m->config.layer_heads[layer])
        return mha__fail(err, MHA_ERR_ARG, "mha_head_weights: head must be from 0 to %lld in layer %lld (got %lld)",
                         (long long)m->config.layer_heads[layer] - 1, (long long)layer, (long long)head);
    return MHA_OK;
}

/* Copies a head [D, E], or for o its transpose, from the tensor of its projection. */
static mha_status read_weight(const mha_model *m, int64_t layer, const mha__head_part *p, bool is_output, float *weight,
                              mha_error *err)
{
    const int64_t E = m->config.hidden, D = m->config.head_dim, row = is_output ? p->column : p->row,
                  column = is_output ? p->row : p->column;
    const float *data = NULL;
    mha__weights weights = m->outer; /* a copy with its own list of converted tensors */
    weights.converted = NULL;
    const mha_status status = mha__weights_again(&weights, p->role, layer, &data, err);
    for (int64_t n = 0; status == MHA_OK && n < D * E; n++)
        weight[n] = data[p->first + n / E * row + n % E * column];
    mha__weights_release(&weights);
    return status;
}

/* Reads elements [first, first + count) of the bias of a role; zeros if it has none. Its length was checked when the
 * model was opened. */
static mha_status read_bias(const mha_model *m, int64_t layer, mha__role role, int64_t first, int64_t count,
                            float *bias, mha_error *err)
{
    const mha_tensor *tensor = mha__weights_tensor(&m->outer, role, layer, true);
    memset(bias, 0, (size_t)count * sizeof *bias);
    if (!tensor) return MHA_OK;
    const size_t bytes = (size_t)tensor->elements * sizeof *bias;
    float *all = mha__alloc(m->ctx, bytes);
    if (!all) return mha__no_memory(err, bytes, "a bias");
    const mha_status status = mha_tensor_read(tensor, MHA_F32, all, err);
    if (status == MHA_OK) memcpy(bias, all + first, (size_t)count * sizeof *bias);
    mha__free(m->ctx, all);
    return status;
}

mha_status mha_head_weights(const mha_model *m, int64_t layer, int64_t head, mha_head_projection which, float *weight,
                            float *bias, mha_error *err)
{
    MHA__TRY(check(m, layer, head, err));
    if ((unsigned)which > MHA_HEAD_O)
        return mha__fail(err, MHA_ERR_ARG, "mha_head_weights: which must be from %d to %d (got %d)", MHA_HEAD_Q,
                         MHA_HEAD_O, (int)which);
    if (!weight) return mha__fail(err, MHA_ERR_ARG, "mha_head_weights: weight must not be NULL");
    const mha__head_part p = mha__head_part_loaded(m, layer, (mha__projection)which, head);
    const bool is_output = which == MHA_HEAD_O;
    MHA__TRY(read_weight(m, layer, &p, is_output, weight, err));
    if (!bias) return MHA_OK;
    if (is_output) return read_bias(m, layer, p.role, 0, m->config.hidden, bias, err);
    const int64_t first = mha__head_part_of(m, layer, (mha__projection)which, head).first; /* biases are as stored */
    return read_bias(m, layer, p.role, p.column == 1 ? first / p.row : first, m->config.head_dim, bias, err);
}
