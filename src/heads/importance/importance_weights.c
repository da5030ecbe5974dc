/* importance_weights.c - computes scores from the weights only. With D x D Gram matrices, |A B|^2 = <A^T A, B B^T>, so
 * no E x E matrix is computed: |Wo Wv|^2 = <Wo^T Wo, Wv Wv^T>, and |Wq^T Wk|^2 = <Wq Wq^T, Wk Wk^T>. */
#include "base/ctx.h"
#include "base/error.h"
#include "heads/importance/importance_run.h"
#include "heads/weights/head_weights.h"
#include "math/linalg.h"
#include <math.h>

/* Adds to gram [D, D] the products of the D vectors of a part: its columns for the output projection, else its rows. */
static mha_status add_gram(const mha_model *m, mha__weights *weights, const mha__head_part *p, int64_t layer,
                           double *gram, mha_error *err)
{
    const float *data = NULL;
    const bool is_output = p->role == MHA__ATTN_OUT || p->role == MHA__CROSS_OUT;
    MHA__TRY(mha__weights_again(weights, p->role, layer, &data, err));
    const mha__columns vectors = {.data = data + p->first,
                                  .row = is_output ? p->row : p->column,
                                  .column = is_output ? p->column : p->row,
                                  .count = m->config.head_dim};
    return mha__gram(m->ctx, m->config.hidden, &vectors, gram, err);
}

static mha_status norm_of(const mha__head_set *set, int64_t layer, int64_t head, mha__projection a, mha__projection b,
                          double *norm, mha_error *err)
{
    const mha_model *m = set->model;
    const mha__head_part parts[2] = {mha__head_set_loaded(set, layer, a, head),
                                     mha__head_set_loaded(set, layer, b, head)};
    const int64_t count = m->config.head_dim * m->config.head_dim;
    double *gram = mha__calloc(m->ctx, (size_t)count, 2 * sizeof *gram), sum = 0;
    mha__weights weights = m->outer; /* a copy with its own list of converted tensors */
    weights.converted = NULL;
    if (!gram) return mha__no_memory(err, 2 * (size_t)count * sizeof *gram, "the Gram matrices of a head");
    mha_status status = add_gram(m, &weights, &parts[0], layer, gram, err);
    if (status == MHA_OK) status = add_gram(m, &weights, &parts[1], layer, gram + count, err);
    for (int64_t i = 0; status == MHA_OK && i < count; i++)
        sum += gram[i] * gram[count + i];
    *norm = sqrt(sum);
    mha__weights_release(&weights);
    mha__free(m->ctx, gram);
    return status;
}

mha_status mha__ov_norm(const mha__head_set *set, int64_t layer, int64_t head, double *value, mha_error *err)
{
    return norm_of(set, layer, head, MHA__OF_O, MHA__OF_V, value, err);
}

mha_status mha__qk_norm(const mha__head_set *set, int64_t layer, int64_t head, double *value, mha_error *err)
{
    MHA__TRY(norm_of(set, layer, head, MHA__OF_Q, MHA__OF_K, value, err));
    *value /= sqrt((double)set->width);
    return MHA_OK;
}
