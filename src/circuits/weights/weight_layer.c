/* weight_layer.c - reads the projections of one layer, and folds norms into them. */
#include "circuits/weights/weight_layer.h"

#include "base/error.h"

static mha_status take_norm(mha__circuit_layer *l, mha__role role, mha_norm *norm, mha_error *err)
{
    mha_matrix part = {0};
    MHA__TRY(mha__weights_part(&l->weights, role, l->layer, &part, err));
    *norm = mha__model_norm(&l->model->config, role, &part);
    return MHA_OK;
}

mha_status mha__circuit_layer_open(const mha_model *m, int64_t layer, bool folded, mha__circuit_layer *l,
                                   mha_error *err)
{
    *l = (mha__circuit_layer){.model = m, .layer = layer, .weights = m->outer};
    l->weights.converted = NULL;
    for (int which = MHA__OF_Q; which <= MHA__OF_O; which++) {
        const mha__role role = mha__head_part_of(m, layer, (mha__projection)which, 0).role;
        const bool again = which > 0 && mha__head_part_of(m, layer, (mha__projection)(which - 1), 0).role == role;
        if (again)
            l->data[which] = l->data[which - 1];
        else
            MHA__TRY(mha__weights_again(&l->weights, role, layer, &l->data[which], err));
    }
    if (!folded) return MHA_OK;
    MHA__TRY(take_norm(l, MHA__ATTN_NORM, &l->norm, err));
    MHA__TRY(take_norm(l, MHA__ATTN_OUT_NORM, &l->written, err));
    l->centred = l->norm.weight && l->norm.kind == MHA_NORM_LAYER;
    return MHA_OK;
}

void mha__circuit_layer_close(mha__circuit_layer *l)
{
    mha__weights_release(&l->weights);
}

void mha__circuit_fold(int64_t rows, int64_t width, const float *weight, bool centred, double *x)
{
    for (int64_t r = 0; r < rows; r++, x += width) {
        double sum = 0;
        for (int64_t i = 0; i < width; i++) {
            if (weight) x[i] *= (double)weight[i];
            sum += x[i];
        }
        for (int64_t i = 0; centred && i < width; i++)
            x[i] -= sum / (double)width;
    }
}

void mha__circuit_head(const mha__circuit_layer *l, mha__projection which, int64_t head, double *out)
{
    const int64_t D = l->model->config.head_dim, E = l->model->config.hidden;
    const mha__head_part p = mha__head_part_loaded(l->model, l->layer, which, head);
    const bool is_output = which == MHA__OF_O;
    const int64_t row = is_output ? p.column : p.row, column = is_output ? p.row : p.column;
    const float *data = l->data[which] + p.first;
    for (int64_t r = 0; r < D; r++)
        for (int64_t c = 0; c < E; c++)
            out[r * E + c] = (double)data[r * row + c * column];
    mha__circuit_fold(D, E, is_output ? l->written.weight : l->norm.weight, l->centred, out);
}
