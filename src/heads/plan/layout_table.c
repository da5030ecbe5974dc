/* layout_table.c - computes the parameters, operations and cache size of a head layout, and the tables of all
 * layouts. */
#include "heads/plan/layout_table.h"

#include "base/error.h"
#include "base/size.h"
#include "mha/attn.h"
#include <math.h>
#include <stdbool.h>

#define MHA__X(name, key, text) key,
static const char *const keys[] = {MHA_HEAD_LAYOUT_VARIANT_MAP(MHA__X)};
#undef MHA__X
#define MHA__X(name, key, text) text,
static const char *const texts[] = {MHA_HEAD_LAYOUT_VARIANT_MAP(MHA__X)};
#undef MHA__X

const char *mha_head_layout_variant_key(mha_head_layout_variant variant)
{
    return (unsigned)variant < MHA_HEAD_LAYOUT_VARIANTS ? keys[variant] : NULL;
}

const char *mha_head_layout_variant_help(mha_head_layout_variant variant)
{
    return (unsigned)variant < MHA_HEAD_LAYOUT_VARIANTS ? texts[variant] : NULL;
}

/* ---- rows ---- */

static void add_up(mha_head_layout_parameters *p)
{
    p->total = p->q + p->k + p->v + p->out + p->extra;
}

/* Sets the counts of a row with `heads` query heads of width D and `kv_heads` key/value heads; the projections map E
 * elements to heads D elements, and back to E. */
static void plain(const mha_head_layout_options *model, int64_t heads, int64_t kv_heads, mha_head_layout *row)
{
    const int64_t E = model->d_model, D = row->head_dim;
    row->heads = heads;
    row->kv_heads = kv_heads;
    row->kv_groups = heads / kv_heads;
    row->weights = (mha_head_layout_parameters){.q = E * heads * D, .k = E * kv_heads * D, .v = E * kv_heads * D};
    row->weights.out = heads * D * E;
    row->biases = (mha_head_layout_parameters){.q = heads * D, .k = kv_heads * D, .v = kv_heads * D, .out = E};
}

/* Counts the operations of a causal prefill. Projections have two operations per weight and token. Attention has four
 * per query, key and head element: two for the score, two for the weighted sum. */
static void count_flops(const mha_head_layout_options *model, double token_weights, double sequence_weights,
                        mha_head_layout *row)
{
    const double L = (double)model->seq, runs = (double)model->batch * (double)model->layers;
    row->project_flops = runs * 2 * (L * token_weights + sequence_weights);
    row->attend_flops = runs * 2 * L * (L + 1) * (double)row->heads * (double)row->head_dim;
}

static mha_status count_cache(const mha_head_layout_options *model, mha_head_layout *row, mha_error *err)
{
    const int64_t dims[] = {2, model->layers, model->batch, model->seq, row->kv_heads, row->head_dim};
    size_t bytes;
    if (!mha__bytes(dims, 6, mha_dtype_size(model->dtype), &bytes) || (uint64_t)bytes > INT64_MAX)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_head_layout_options: keys and values must take fewer than 2^63 bytes (got seq %lld, "
                         "batch %lld, layers %lld, "
                         "%lld heads)",
                         (long long)model->seq, (long long)model->batch, (long long)model->layers,
                         (long long)row->kv_heads);
    row->kv_bytes = (int64_t)bytes;
    return MHA_OK;
}

static mha_status finish(const mha_head_layout_options *model, double token_weights, mha_head_layout *row,
                         mha_error *err)
{
    const double E = (double)model->d_model;
    add_up(&row->weights);
    add_up(&row->biases);
    if (row->head_dim > MHA_HEAD_DIM_MAX) row->refused = "heads are wider than the operator supports";
    row->reduction = 1 - (double)row->weights.total / (4 * E * E);
    count_flops(model, token_weights, (double)row->weights.extra, row);
    return count_cache(model, row, err);
}

static mha_status plain_row(const mha_head_layout_options *model, int64_t heads, int64_t kv_heads, mha_head_layout *row,
                            mha_error *err)
{
    plain(model, heads, kv_heads, row);
    const mha_head_layout_parameters *w = &row->weights;
    return finish(model, (double)(w->q + w->k + w->v + w->out), row, err);
}

/* ---- variants ---- */

/* Computes the row of permanently pruned heads. The published layers remove ceil(H prune) heads permanently; layers
 * that select heads per sequence keep int(H (1 - prune)) heads. */
static mha_status pruned_row(const mha_head_layout_options *model, mha_head_layout *row, mha_error *err)
{
    const int64_t left = model->heads - (int64_t)ceil((double)model->heads * model->prune);
    row->left_out = left < 1 ? "pruning would remove every head" : NULL;
    return row->left_out ? MHA_OK : plain_row(model, left, left, row, err);
}

static mha_status dynamic_row(const mha_head_layout_options *model, mha_head_layout *row, mha_error *err)
{
    const int64_t E = model->d_model, D = row->head_dim;
    const int64_t kept = (int64_t)((double)model->heads * (1 - model->prune));
    row->left_out = kept < 1 ? "no head would be kept" : NULL;
    if (row->left_out) return MHA_OK;
    plain(model, model->heads, model->heads, row);
    row->weights.extra = E * model->heads;
    row->biases.extra = model->heads;
    row->heads = row->kv_heads = kept;
    return finish(model, 4.0 * (double)(E * kept * D), row, err);
}

/* Returns the divisor of the number of heads, other than 1 and `heads`, whose ratio to `wanted` is closest to 1; 0 if
 * there is no such divisor. */
static int64_t group_size(int64_t heads, int64_t wanted)
{
    int64_t best = 0;
    double nearest = INFINITY;
    for (int64_t g = 2; g < heads; g++) {
        const double off = fabs(log((double)g / (double)wanted));
        if (heads % g == 0 && off < nearest) best = g, nearest = off;
    }
    return best;
}

static mha_status gqa_row(const mha_head_layout_options *model, mha_head_layout *row, mha_error *err)
{
    const int64_t group = group_size(model->heads, model->parameters > MHA__HEAD_LAYOUT_LARGE ? 8 : 4);
    row->left_out = group == 0 ? "the number of heads must have a divisor other than 1 and itself" : NULL;
    return row->left_out ? MHA_OK : plain_row(model, model->heads, model->heads / group, row, err);
}

static mha_status mqa_row(const mha_head_layout_options *model, mha_head_layout *row, mha_error *err)
{
    row->left_out = model->heads == 1 ? "a single head cannot share keys and values" : NULL;
    return row->left_out ? MHA_OK : plain_row(model, model->heads, 1, row, err);
}

/* Computes the row of a mixture of experts. An expert is one head with its own output projection to E. */
static mha_status moe_row(const mha_head_layout_options *model, mha_head_layout *row, mha_error *err)
{
    const int64_t E = model->d_model, D = row->head_dim;
    plain(model, model->experts, model->experts, row);
    row->weights.out += E * E;
    row->weights.extra = E * model->experts;
    row->biases.out = model->experts * E + E;
    row->biases.extra = model->experts;
    row->heads = row->kv_heads = model->top_k;
    return finish(model, 4.0 * (double)(E * model->top_k * D) + (double)(E * E), row, err);
}

static bool has_divisors(int64_t n, int min)
{
    for (int64_t d = 1; d <= n && min > 0; d++)
        min -= n % d == 0;
    return min <= 0;
}

static mha_status adaptive_row(const mha_head_layout_options *model, mha_head_layout *row, mha_error *err)
{
    enum { HIDDEN = 128, CHOICES = 3 }; /* hidden width and number of options of the predictor, as published */
    const int64_t E = model->d_model;
    row->left_out = has_divisors(E, CHOICES) ? NULL : "d_model must have at least three divisors";
    if (row->left_out) return MHA_OK;
    plain(model, model->heads, model->heads, row);
    row->weights.extra = E * HIDDEN + HIDDEN * CHOICES;
    row->biases.extra = HIDDEN + CHOICES;
    return finish(model, 4.0 * (double)(E * E), row, err);
}

static mha_status mha_row(const mha_head_layout_options *model, mha_head_layout *row, mha_error *err)
{
    return plain_row(model, model->heads, model->heads, row, err);
}

mha_status mha__head_layout_row(const mha_head_layout_options *model, mha_head_layout_variant variant,
                                mha_head_layout *row, mha_error *err)
{
    static mha_status (*const count[])(const mha_head_layout_options *, mha_head_layout *, mha_error *) = {
        [MHA_HEAD_LAYOUT_MHA] = mha_row,          [MHA_HEAD_LAYOUT_PRUNED] = pruned_row,
        [MHA_HEAD_LAYOUT_DYNAMIC] = dynamic_row,  [MHA_HEAD_LAYOUT_GQA] = gqa_row,
        [MHA_HEAD_LAYOUT_MQA] = mqa_row,          [MHA_HEAD_LAYOUT_MOE] = moe_row,
        [MHA_HEAD_LAYOUT_ADAPTIVE] = adaptive_row};
    *row = (mha_head_layout){.variant = variant, .head_dim = model->d_model / model->heads};
    return count[variant](model, row, err);
}

/* ---- tables ---- */

mha_status mha_head_layout_variants(const mha_head_layout_options *options,
                                    mha_head_layout rows[MHA_HEAD_LAYOUT_VARIANTS], mha_error *err)
{
    mha_head_layout_options model;
    MHA__TRY(mha_head_layout_resolve(options, &model, err));
    for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++)
        MHA__TRY(mha__head_layout_row(&model, (mha_head_layout_variant)v, &rows[v], err));
    return MHA_OK;
}

/* Inserts the row before all rows with more parameters. Rows with equally many parameters stay in the order of
 * insertion. */
static void insert_sorted(mha_head_layout *rows, int count, const mha_head_layout *row)
{
    int at = count;
    for (; at > 0 && rows[at - 1].weights.total > row->weights.total; at--)
        rows[at] = rows[at - 1];
    rows[at] = *row;
}

mha_status mha_head_layouts(const mha_head_layout_options *options, mha_head_layout rows[MHA_HEAD_LAYOUTS], int *count,
                            mha_error *err)
{
    static const int heads[] = {1, 2, 4, 8, 12, 16, 24, 32, 64}, groups[] = {1, 2, 4, 8};
    mha_head_layout_options model;
    MHA__TRY(mha_head_layout_resolve(options, &model, err));
    int n = 0;
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
            if (model.d_model % heads[h] != 0 || heads[h] % groups[g] != 0) continue;
            const int64_t kv_heads = heads[h] / groups[g];
            mha_head_layout row = {.head_dim = model.d_model / heads[h]};
            row.variant = groups[g] == 1  ? MHA_HEAD_LAYOUT_MHA
                          : kv_heads == 1 ? MHA_HEAD_LAYOUT_MQA
                                          : MHA_HEAD_LAYOUT_GQA;
            MHA__TRY(plain_row(&model, heads[h], kv_heads, &row, err));
            insert_sorted(rows, n++, &row);
        }
    *count = n;
    return MHA_OK;
}
