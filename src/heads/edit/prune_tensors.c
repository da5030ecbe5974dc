/* prune_tensors.c - builds the attention tensors of layers whose removed heads are cut out or zeroed.
 *
 * Every tensor is gathered from the source tensor by a list of rows (or columns). An entry of -1 produces zeros; it
 * represents a removed head if the shape of the tensor must be kept. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "heads/edit/prune_model.h"
#include <string.h>

/* A layer from which heads are being removed. */
typedef struct cutting {
    const mha__prune_job *p;
    const mha__keep *keep; /* the part of the model */
    int64_t layer;
    int64_t *heads; /* [count] index in the source of each head of the edited layer; -1 = zeros */
    int64_t count;
    int64_t *rows; /* scratch for one list of rows or columns */
    bool changed;  /* true if the layer differs from the source */
} cutting;

/* ---- lists of heads and rows ---- */

/* Lists the heads of the edited layer by their position in the source. */
static void list_heads(cutting *c)
{
    const mha__keep *k = c->keep;
    const int64_t whole = k->model->config.original_heads, had = mha__keep_heads(k, c->layer);
    c->count = 0;
    for (int64_t n = 0; c->p->compatible && n < whole; n++)
        c->heads[c->count++] = -1;
    for (int64_t h = 0; h < had; h++) {
        if (!mha__keep_has(k, c->layer, h)) continue;
        if (c->p->compatible)
            c->heads[mha__keep_number(k, c->layer, h)] = h;
        else
            c->heads[c->count++] = h;
    }
    c->changed = c->count != had;
    for (int64_t n = 0; n < c->count; n++)
        c->changed |= c->heads[n] != n;
}

/* Appends the D rows of every `step`-th head, starting at row `base` of the source; returns the new length of the
 * list. */
static int64_t append_rows(const cutting *c, int64_t D, int64_t step, int64_t base, int64_t rows)
{
    for (int64_t n = 0; n < c->count; n += step)
        for (int64_t d = 0; d < D; d++)
            c->rows[rows++] = c->heads[n] < 0 ? -1 : base + c->heads[n] / step * D + d;
    return rows;
}

/* Lists the rows of the kept heads if q, k and v of each head are adjacent. */
static int64_t append_groups(const cutting *c)
{
    const int64_t rows = 3 * c->keep->model->config.head_dim;
    for (int64_t n = 0; n < c->count; n++)
        for (int64_t d = 0; d < rows; d++)
            c->rows[n * rows + d] = c->heads[n] < 0 ? -1 : c->heads[n] * rows + d;
    return c->count * rows;
}

/* Returns the rows of a head in the tensor of a role, or its columns in the output projection. */
static int64_t width_of(const mha__config *c, mha__role role)
{
    if (!c->family->latent) return c->head_dim;
    return role == MHA__ATTN_OUT ? c->value_width
                                 : c->nope_width + (role == MHA__QUERY ? c->rope_width : c->value_width);
}

static int64_t rows_of(const cutting *c, mha__role role)
{
    const mha__config *config = &c->keep->model->config;
    const int64_t D = config->head_dim, had = config->layer_heads[c->layer], keys = config->layer_k_heads[c->layer];
    const int64_t per_key = had / keys, per_value = had / config->layer_v_heads[c->layer];
    if (c->keep->cross) return append_rows(c, D, 1, 0, 0);
    if (mha__weights_per_head(config, role)) return append_groups(c);
    if (role != MHA__QKV)
        return append_rows(c, width_of(config, role),
                           role == MHA__KEY     ? per_key
                           : role == MHA__VALUE ? per_value
                                                : 1,
                           0, 0);
    int64_t rows = append_rows(c, D, 1, 0, 0);
    rows = append_rows(c, D, per_key, had * D, rows);
    return append_rows(c, D, per_value, (had + keys) * D, rows);
}

/* ---- tensors ---- */

/* Computes to[.., n] = from[.., list[n]] along `axis` of a matrix [dims[0], dims[1]]. */
static void gather(const float *from, const int64_t dims[2], int axis, const int64_t *list, int64_t count, float *to)
{
    const int64_t outer = axis == 0 ? count : dims[0], width = axis == 0 ? dims[1] : count;
    for (int64_t i = 0; i < outer; i++) {
        if (axis == 0 && list[i] >= 0) memcpy(to + i * width, from + list[i] * width, (size_t)width * sizeof *to);
        for (int64_t j = 0; axis == 1 && j < count; j++)
            if (list[j] >= 0) to[i * width + j] = from[i * dims[1] + list[j]];
    }
}

/* Adds to the edit the tensor gathered from t by the `count` entries of the list along `axis`. */
static mha_status add_part(mha_model_edit *p, const mha_tensor *t, int axis, const int64_t *list, int64_t count,
                           float **data, mha_error *err)
{
    int64_t dims[2] = {t->shape[0], t->rank == 2 ? t->shape[1] : 1}, shape[2] = {dims[0], dims[1]};
    const size_t bytes = (size_t)t->elements * sizeof(float);
    shape[axis] = count;
    MHA__TRY(mha__edit_new_tensor(p, t->name, t->rank, shape, data, err));
    float *whole = mha__alloc(p->ctx, bytes);
    if (!whole) return mha__no_memory(err, bytes, t->name);
    const mha_status status = mha_tensor_read(t, MHA_F32, whole, err);
    if (status == MHA_OK) gather(whole, dims, axis, list, count, *data);
    mha__free(p->ctx, whole);
    return status;
}

static const mha_tensor *tensor_of(const cutting *c, mha__role role, bool bias)
{
    return mha__weights_tensor(&c->keep->model->outer, role, c->layer, bias);
}

static bool is_conv1d(const cutting *c, mha__role role)
{
    return c->keep->model->config.family->parts[role].kind == MHA__PART_CONV1D;
}

/* Adds a bias of zeros that the source lacks, named like its weight. */
static mha_status add_bias(const cutting *c, mha__role role, int64_t count, float **data, mha_error *err)
{
    static const char weight[] = "weight", bias[] = "bias";
    mha_model_edit *edit = c->p->edit;
    const char *name = tensor_of(c, role, false)->name;
    const size_t stem = strlen(name) - (sizeof weight - 1);
    char *own = edit->own_names[edit->count] = mha__alloc(edit->ctx, stem + sizeof bias);
    if (!own) return mha__no_memory(err, stem + sizeof bias, "a name");
    memcpy(own, name, stem);
    memcpy(own + stem, bias, sizeof bias);
    return mha__edit_new_tensor(edit, own, 1, &count, data, err);
}

static mha_status cut_projection(const cutting *c, mha__role role, mha_error *err)
{
    const mha_tensor *weight = tensor_of(c, role, false), *bias = tensor_of(c, role, true);
    const int64_t rows = rows_of(c, role);
    float *data;
    if (c->changed) MHA__TRY(add_part(c->p->edit, weight, is_conv1d(c, role) ? 1 : 0, c->rows, rows, &data, err));
    if (c->changed && bias) MHA__TRY(add_part(c->p->edit, bias, 0, c->rows, rows, &data, err));
    return c->p->add_bias ? add_bias(c, role, rows, &data, err) : MHA_OK;
}

/* Cuts the sinks of the heads, if the model has them. */
static mha_status cut_sinks(const cutting *c, mha_error *err)
{
    const mha_tensor *sinks = tensor_of(c, MHA__SINKS, false);
    float *data;
    return sinks && c->changed ? add_part(c->p->edit, sinks, 0, c->heads, c->count, &data, err) : MHA_OK;
}

/* Lists the columns of the output projection that belong to remaining heads. */
static mha_status list_used(const cutting *c, mha__out_part *out, mha_error *err)
{
    const size_t bytes = (size_t)out->columns * sizeof *out->used;
    out->used = mha__alloc(c->p->edit->ctx, bytes);
    if (!out->used) return mha__no_memory(err, bytes, "a list of columns");
    for (int64_t n = 0; n < out->columns; n++)
        if (c->rows[n] >= 0) out->used[out->used_count++] = n;
    return MHA_OK;
}

/* Adds the output projection `role` to the edit, and describes it in *out. */
static mha_status cut_out(const cutting *c, mha__role role, mha__out_part *out, mha_error *err)
{
    const int64_t hidden = c->keep->model->config.hidden;
    const mha_tensor *bias = tensor_of(c, role, true);
    out->transposed = is_conv1d(c, role);
    out->columns = rows_of(c, role);
    MHA__TRY(list_used(c, out, err));
    MHA__TRY(add_part(c->p->edit, tensor_of(c, role, false), out->transposed ? 0 : 1, c->rows, out->columns,
                      &out->weight, err));
    if (c->p->add_bias) return add_bias(c, role, hidden, &out->bias, err);
    if (!bias) return MHA_OK;
    for (int64_t e = 0; e < hidden; e++)
        c->rows[e] = e;
    return add_part(c->p->edit, bias, 0, c->rows, hidden, &out->bias, err);
}

/* Cuts a layer of the model that is pruned. */
static mha_status cut_layer(cutting *c, bool all_out, mha_error *err)
{
    static const mha__role separate[] = {MHA__QUERY,   MHA__KEY,       MHA__VALUE,
                                         MHA__POS_KEY, MHA__POS_QUERY, MHA__KV_EXPAND};
    const mha_model *m = c->keep->model;
    if (c->changed) MHA__TRY(mha__edit_check_norms(m, err));
    if (c->changed) MHA__TRY(mha__edit_check_selection(m, c->layer, err));
    if (c->changed || c->p->add_bias) {
        if (m->config.family->parts[MHA__QKV].kind != MHA__PART_ABSENT)
            MHA__TRY(cut_projection(c, MHA__QKV, err));
        else
            for (int n = 0; n < 6; n++)
                if (tensor_of(c, separate[n], false)) MHA__TRY(cut_projection(c, separate[n], err));
    }
    MHA__TRY(cut_sinks(c, err));
    if (!c->changed && !all_out && !c->p->add_bias) return MHA_OK;
    return cut_out(c, MHA__ATTN_OUT, &c->p->edit->out[c->layer], err);
}

mha_head_kind mha__prune_kind(const mha__prune_job *job, const mha__keep *part)
{
    if (part == job->part) return MHA_HEADS_OWN;
    if (!job->model->encoder) return MHA_HEAD_KINDS;
    return part->cross ? MHA_HEADS_CROSS : MHA_HEADS_ENCODER;
}

/* Cuts a layer of the other side of an encoder-decoder, or of its cross-attention. */
static mha_status cut_other(cutting *c, bool all_out, mha_error *err)
{
    static const mha__role roles[2][4] = {{MHA__QUERY, MHA__KEY, MHA__VALUE, MHA__ATTN_OUT},
                                          {MHA__CROSS_QUERY, MHA__CROSS_KEY, MHA__CROSS_VALUE, MHA__CROSS_OUT}};
    const mha__role *role = roles[c->keep->cross];
    const mha_head_kind kind = mha__prune_kind(c->p, c->keep);
    if (kind == MHA_HEAD_KINDS) return MHA_OK;
    for (int n = 0; n < 3; n++)
        MHA__TRY(cut_projection(c, role[n], err));
    return c->changed || all_out ? cut_out(c, role[3], mha__edit_out(c->p->edit, kind) + c->layer, err) : MHA_OK;
}

static mha_status cut_part(cutting *c, bool all_out, mha_error *err)
{
    for (c->layer = 0; c->layer < c->keep->model->config.layers; c->layer++) {
        list_heads(c);
        MHA__TRY(c->keep == c->p->part ? cut_layer(c, all_out, err) : cut_other(c, all_out, err));
    }
    return MHA_OK;
}

/* ---- relative positions of encoder-decoders ---- */

/* Lists the columns of the edited table, one for each head that a layer keeps, by their place in the source: c->heads
 * [count]. c->rows receives the column of each head number in the source, or -1. */
static void list_columns(cutting *c)
{
    const mha__keep *k = c->keep;
    const mha_model *m = k->model;
    int64_t *column = c->rows, *kept = c->heads;
    for (int64_t n = 0; n < m->config.original_heads; n++) {
        column[n] = m->relative_columns ? -1 : n;
        kept[n] = c->p->compatible;
    }
    for (int64_t l = 0; l < m->config.layers; l++)
        for (int64_t h = 0; h < mha__keep_heads(k, l); h++) {
            const int32_t number = mha__keep_number(k, l, h);
            if (m->relative_columns) column[number] = m->relative_columns[l * m->config.heads + h];
            kept[number] |= mha__keep_has(k, l, h);
        }
    c->count = 0;
    for (int64_t n = 0; n < m->config.original_heads; n++)
        if (kept[n]) c->heads[c->count++] = column[n];
    c->changed = c->count != m->config.relative_heads;
}

/* Cuts the table of relative positions of one side of an encoder-decoder. The tables of other families keep the columns
 * of removed heads. */
static mha_status cut_relative(cutting *c, mha_error *err)
{
    const mha_model *m = c->keep->model;
    const mha_tensor *table = mha__weights_tensor(&m->outer, MHA__RELATIVE, -1, false);
    float *data;
    if (!m->config.family->one_side || c->keep->cross || !table) return MHA_OK;
    list_columns(c);
    return c->changed ? add_part(c->p->edit, table, 1, c->heads, c->count, &data, err) : MHA_OK;
}

mha_status mha__prune_tensors(const mha__prune_job *job, bool all_out, mha_error *err)
{
    size_t heads = 0, max = 0;
    for (int n = 0; n < job->parts; n++) {
        const mha__config *config = &job->part[n].model->config;
        const size_t own = (size_t)config->original_heads;
        const size_t rows = 3 * own * (size_t)config->head_dim + (size_t)config->hidden;
        if (own > heads) heads = own;
        if (rows > max) max = rows;
    }
    cutting c = {.p = job,
                 .heads = mha__calloc(job->edit->ctx, heads, sizeof *c.heads),
                 .rows = mha__calloc(job->edit->ctx, max, sizeof *c.rows)};
    mha_status status =
        c.heads && c.rows ? MHA_OK : mha__no_memory(err, max * sizeof *c.rows, "the kept rows of a layer");
    for (int n = 0; n < job->parts && status == MHA_OK; n++) {
        c.keep = &job->part[n];
        status = cut_part(&c, all_out, err);
        if (status == MHA_OK) status = cut_relative(&c, err);
    }
    mha__free(job->edit->ctx, c.heads);
    mha__free(job->edit->ctx, c.rows);
    return status;
}
