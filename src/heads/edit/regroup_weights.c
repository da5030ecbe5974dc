/* regroup_weights.c - reads the projections of a layer from a checkpoint's tensors, as doubles, and writes them as new
 * tensors. The projections of q, k and v are three tensors or one, [out, in] or [in, out]. */
#include "base/ctx.h"
#include "base/error.h"
#include "heads/edit/regroup_model.h"
#include <string.h>

static bool is_fused(const mha_model *m)
{
    return m->config.family->parts[MHA__QKV].kind != MHA__PART_ABSENT;
}

static bool is_conv1d(const mha_model *m, mha__role role)
{
    return m->config.family->parts[role].kind == MHA__PART_CONV1D;
}

/* ---- memory ---- */

static int64_t rows_of(const mha__projections *p)
{
    return (p->heads + p->k_heads + p->v_heads) * p->head_dim;
}

static mha_status allocate(mha_ctx *ctx, mha__projections *p, mha_error *err)
{
    const int64_t row = p->width + 1, D = p->head_dim;
    const size_t count = (size_t)(rows_of(p) * row + p->width * p->heads * D);
    p->q = mha__calloc(ctx, count, sizeof *p->q);
    if (!p->q) return mha__no_memory(err, count * sizeof *p->q, "the projections of a layer");
    p->k = p->q + p->heads * D * row;
    p->v = p->k + p->k_heads * D * row;
    p->o = p->v + p->v_heads * D * row;
    return MHA_OK;
}

mha_status mha__projections_make(mha_ctx *ctx, const mha__projections *like, int64_t k_heads, int64_t v_heads,
                                 mha__projections *out, mha_error *err)
{
    *out = *like;
    out->k_heads = k_heads;
    out->v_heads = v_heads;
    return allocate(ctx, out, err);
}

void mha__projections_free(mha_ctx *ctx, mha__projections *p)
{
    mha__free(ctx, p->q);
    *p = (mha__projections){0};
}

/* ---- reading ---- */

/* Reads a tensor as doubles. A weight of either layout becomes [out, in], with row stride to_row. */
static mha_status read_tensor(const mha_model *m, const mha_tensor *t, bool transposed, double *to, int64_t to_row,
                              mha_error *err)
{
    const int64_t a = t->shape[0], b = t->rank == 2 ? t->shape[1] : 1;
    const size_t bytes = (size_t)t->elements * sizeof(float);
    float *all = mha__alloc(m->ctx, bytes);
    if (!all) return mha__no_memory(err, bytes, t->name);
    const mha_status status = mha_tensor_read(t, MHA_F32, all, err);
    for (int64_t i = 0; status == MHA_OK && i < a; i++)
        for (int64_t j = 0; j < b; j++)
            to[transposed ? j * to_row + i : i * to_row + j] = (double)all[i * b + j];
    mha__free(m->ctx, all);
    return status;
}

/* Reads the rows of a projection: E weights each, then the bias. */
static mha_status read_rows(const mha_model *m, mha__role role, int64_t layer, double *rows, mha_error *err)
{
    const int64_t E = m->config.hidden;
    const mha_tensor *weight = mha__weights_tensor(&m->outer, role, layer, false);
    const mha_tensor *bias = mha__weights_tensor(&m->outer, role, layer, true);
    MHA__TRY(read_tensor(m, weight, is_conv1d(m, role), rows, E + 1, err));
    return bias ? read_tensor(m, bias, false, rows + E, E + 1, err) : MHA_OK;
}

static mha_status read_all(const mha_model *m, int64_t layer, const mha__projections *p, mha_error *err)
{
    const mha_tensor *o = mha__weights_tensor(&m->outer, MHA__ATTN_OUT, layer, false);
    MHA__TRY(read_tensor(m, o, is_conv1d(m, MHA__ATTN_OUT), p->o, p->heads * p->head_dim, err));
    if (is_fused(m)) return read_rows(m, MHA__QKV, layer, p->q, err); /* q, k and v are contiguous */
    MHA__TRY(read_rows(m, MHA__QUERY, layer, p->q, err));
    MHA__TRY(read_rows(m, MHA__KEY, layer, p->k, err));
    return read_rows(m, MHA__VALUE, layer, p->v, err);
}

mha_status mha__projections_read(const mha_model *m, int64_t layer, mha__projections *out, mha_error *err)
{
    const mha__config *c = &m->config;
    *out = (mha__projections){.width = c->hidden,
                              .head_dim = c->head_dim,
                              .heads = c->layer_heads[layer],
                              .k_heads = c->layer_k_heads[layer],
                              .v_heads = c->layer_v_heads[layer]};
    MHA__TRY(allocate(m->ctx, out, err));
    const mha_status status = read_all(m, layer, out, err);
    if (status != MHA_OK) mha__projections_free(m->ctx, out);
    return status;
}

/* ---- writing ---- */

/* The rows of `heads` heads, repeated to give `copies` heads. */
typedef struct repeated_heads {
    const double *rows;
    int64_t heads, copies;
} repeated_heads;

/* Adds a weight or a bias to the edit: the concatenation of `count` parts. */
static mha_status list_rows(mha_model_edit *edit, int64_t layer, mha__role role, bool bias,
                            const mha__projections *from, const repeated_heads *parts, int count, mha_error *err)
{
    const mha_tensor *t = mha__weights_tensor(&edit->model->outer, role, layer, bias);
    const int64_t E = from->width, D = from->head_dim;
    const bool transposed = !bias && is_conv1d(edit->model, role);
    int64_t rows = 0;
    float *data;
    if (!t) return MHA_OK;
    for (int n = 0; n < count; n++)
        rows += parts[n].copies * D;
    const int64_t shape[2] = {transposed ? E : rows, transposed ? rows : E};
    MHA__TRY(mha__edit_new_tensor(edit, t->name, t->rank, shape, &data, err));
    for (int64_t n = 0, r = 0; n < count; n++)
        for (int64_t i = 0; i < parts[n].copies * D; i++, r++) {
            const int64_t each = parts[n].copies / parts[n].heads * D;
            const double *row = parts[n].rows + (i / each * D + i % D) * (E + 1);
            for (int64_t e = 0; !bias && e < E; e++)
                data[transposed ? e * rows + r : r * E + e] = (float)row[e];
            if (bias) data[r] = (float)row[E];
        }
    return MHA_OK;
}

static mha_status list_both(mha_model_edit *edit, int64_t layer, mha__role role, const mha__projections *from,
                            const repeated_heads *parts, int count, mha_error *err)
{
    MHA__TRY(list_rows(edit, layer, role, false, from, parts, count, err));
    return list_rows(edit, layer, role, true, from, parts, count, err);
}

/* Adds the output projection to the edit, with the fields that a refit requires. */
static mha_status list_out(mha_model_edit *edit, int64_t layer, const mha__projections *from, mha_error *err)
{
    const mha_tensor *t = mha__weights_tensor(&edit->model->outer, MHA__ATTN_OUT, layer, false);
    const mha_tensor *bias = mha__weights_tensor(&edit->model->outer, MHA__ATTN_OUT, layer, true);
    const int64_t E = from->width, wide = from->heads * from->head_dim;
    mha__out_part *out = &edit->out[layer];
    out->transposed = is_conv1d(edit->model, MHA__ATTN_OUT);
    out->columns = out->used_count = wide;
    out->used = mha__calloc(edit->ctx, (size_t)wide, sizeof *out->used);
    if (!out->used) return mha__no_memory(err, (size_t)wide * sizeof *out->used, "a list of columns");
    MHA__TRY(mha__edit_new_tensor(edit, t->name, 2, t->shape, &out->weight, err));
    for (int64_t n = 0; n < wide; n++) {
        out->used[n] = n;
        for (int64_t e = 0; e < E; e++)
            out->weight[out->transposed ? n * E + e : e * wide + n] = (float)from->o[e * wide + n];
    }
    if (!bias) return MHA_OK;
    MHA__TRY(mha__edit_new_tensor(edit, bias->name, 1, bias->shape, &out->bias, err));
    return mha_tensor_read(bias, MHA_F32, out->bias, err);
}

mha_status mha__projections_list(mha_model_edit *edit, int64_t layer, const mha__projections *from, int64_t copies,
                                 mha_error *err)
{
    const repeated_heads parts[] = {{from->q, from->heads, from->heads},
                                    {from->k, from->k_heads, copies ? copies : from->k_heads},
                                    {from->v, from->v_heads, copies ? copies : from->v_heads}};
    static const mha__role roles[] = {MHA__QUERY, MHA__KEY, MHA__VALUE};
    if (is_fused(edit->model)) MHA__TRY(list_both(edit, layer, MHA__QKV, from, parts, 3, err));
    for (int n = 0; n < 3 && !is_fused(edit->model); n++)
        MHA__TRY(list_both(edit, layer, roles[n], from, &parts[n], 1, err));
    return list_out(edit, layer, from, err);
}
