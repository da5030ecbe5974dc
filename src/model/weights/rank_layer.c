/* rank_layer.c - creates the block of a layer from this process's parts of the tensors.
 *
 * Rows of q, k and v are read head by head, and columns of the output projection and of down group by group. Norms and
 * the biases of sums are read whole. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/block/transformer_block.h"
#include "model/weights/rank_parts.h"
#include "model/weights/tensor_pieces.h"

/* A layer while its block is created. */
typedef struct layer_reader {
    mha_model *m;
    mha__weights *weights; /* a copy with the same file and prefix, but with its own converted tensors */
    int64_t layer;
    mha__layer_part own;
    mha_matrix part[MHA__ROLES];
    int64_t *start; /* [heads + key heads + value heads] first rows of heads */
} layer_reader;

static bool is_divided(mha__role role)
{
    return role == MHA__QUERY || role == MHA__KEY || role == MHA__VALUE || role == MHA__QKV || role == MHA__ATTN_OUT ||
           role == MHA__GATE || role == MHA__GATE_UP || role == MHA__UP || role == MHA__DOWN;
}

/* Checks all tensors of the layer; reads the tensors that are not divided. */
static mha_status read_whole(layer_reader *r, mha_error *err)
{
    const bool check_only = r->weights->check_only;
    for (mha__role role = MHA__FIRST_OF_LAYER; role < MHA__ROLES; role++) {
        if (mha__of_experts(role)) continue;
        r->weights->check_only = check_only || is_divided(role);
        MHA__TRY(mha__weights_part(r->weights, role, r->layer, &r->part[role], err));
    }
    r->weights->check_only = check_only;
    return MHA_OK;
}

/* Reads pieces of the rows of a role's matrix and of its bias. */
static mha_status read_rows(layer_reader *r, mha__role role, const int64_t *start, int64_t count, int64_t length,
                            mha_error *err)
{
    mha_matrix *part = &r->part[role];
    const mha_tensor *weight = mha__weights_tensor(r->weights, role, r->layer, false);
    const mha_tensor *bias = mha__weights_tensor(r->weights, role, r->layer, true);
    mha__tensor_pieces pieces = {.count = count, .length = length, .start = start};
    if (!part->out) return MHA_OK;
    part->out = count * length;
    if (bias) MHA__TRY(mha__tensor_read_pieces(r->weights, bias, &pieces, &part->bias, err));
    pieces.dimension = part->transposed ? 1 : 0;
    return mha__tensor_read_pieces(r->weights, weight, &pieces, &part->weight, err);
}

/* Writes to `start` the first row of each of this process's `count` heads of q, k or v; returns the end of the list. In
 * the tensor, head n begins at row first + n step and is shared by `share` query heads. */
static int64_t *list_heads(const layer_reader *r, int64_t count, int64_t share, int64_t first, int64_t step,
                           int64_t *start)
{
    const int64_t each = r->own.heads / count;
    for (int64_t n = 0; n < count; n++)
        *start++ = first + (r->own.head + n * each) / share * step;
    return start;
}

static mha_status read_projections(layer_reader *r, mha_error *err)
{
    const mha__config *c = &r->m->config;
    const int64_t D = c->head_dim, H = c->layer_heads[r->layer], K = c->layer_k_heads[r->layer],
                  V = c->layer_v_heads[r->layer];
    const bool fused = r->part[MHA__QKV].out > 0, mixed = fused && mha__weights_per_head(c, MHA__QKV);
    const int64_t step = mixed ? 3 * D : D, own[] = {r->own.heads, r->own.k_heads, r->own.v_heads};
    const int64_t share[] = {1, H / K, H / V}, first[] = {0, mixed ? D : H * D, mixed ? 2 * D : (H + K) * D};
    int64_t *end = r->start;
    for (int n = 0; n < 3; n++) {
        int64_t *const begin = fused ? end : r->start;
        end = list_heads(r, own[n], share[n], fused ? first[n] : 0, step, begin);
        if (!fused) MHA__TRY(read_rows(r, (mha__role)(MHA__QUERY + n), begin, own[n], D, err));
    }
    return fused ? read_rows(r, MHA__QKV, r->start, end - r->start, D, err) : MHA_OK;
}

static mha_status read_feed_forward(layer_reader *r, mha_error *err)
{
    const mha_matrix *both = &r->part[MHA__GATE_UP];
    const int64_t n = r->own.columns, start[] = {r->own.column, r->m->config.intermediate + r->own.column};
    MHA__TRY(read_rows(r, MHA__GATE, start, 1, n, err));
    MHA__TRY(read_rows(r, MHA__UP, start, 1, n, err));
    MHA__TRY(read_rows(r, MHA__GATE_UP, start, 2, n, err));
    if (!both->out) return MHA_OK;
    r->part[MHA__GATE] = r->part[MHA__UP] = *both;
    r->part[MHA__UP].weight += n * r->m->config.hidden;
    if (both->bias) r->part[MHA__UP].bias += n;
    return MHA_OK;
}

/* Creates the product of a role whose columns are divided; NULL if the layer lacks the role. */
static mha_status create_sum(layer_reader *r, mha__role role, int64_t items, int64_t item_width,
                             mha__row_parallel **product, mha_error *err)
{
    const mha_model_ranks *ranks = &r->m->ranks;
    const mha_tensor *bias = mha__weights_tensor(r->weights, role, r->layer, true);
    const mha_matrix *part = &r->part[role];
    mha__divided_matrix matrix = {.items = items, .item_width = item_width, .out = r->m->config.hidden};
    if (!part->out) return MHA_OK;
    for (int g = mha__rank_begin(ranks, ranks->rank); g < mha__rank_begin(ranks, ranks->rank + 1); g++) {
        const int64_t start = mha__group_begin(items, g) * item_width;
        const mha__tensor_pieces columns = {.dimension = part->transposed ? 0 : 1,
                                            .count = 1,
                                            .length = mha__group_begin(items, g + 1) * item_width - start,
                                            .start = &start};
        matrix.group[g] = *part;
        if (columns.length > 0)
            MHA__TRY(mha__tensor_read_pieces(r->weights, mha__weights_tensor(r->weights, role, r->layer, false),
                                             &columns, &matrix.group[g].weight, err));
    }
    const int64_t zero = 0;
    const mha__tensor_pieces all = {.count = 1, .length = matrix.out, .start = &zero};
    if (bias) MHA__TRY(mha__tensor_read_pieces(r->weights, bias, &all, &matrix.bias, err));
    return mha__row_parallel_create(r->m->ctx, ranks, &matrix, product, err);
}

/* Returns the options of the block with this process's heads and columns, and without the products. */
static mha_block_options options_of(const layer_reader *r)
{
    mha_attn_layer_options cross; /* not used: ranks do not support encoder-decoders */
    mha_block_options o = mha__model_block_options(r->m, r->layer, r->part, &cross);
    o.cross = NULL;
    o.attn.heads = r->own.heads;
    o.attn.kv_heads = r->own.k_heads;
    o.attn.v_heads = r->own.v_heads;
    if (o.attn.slopes) o.attn.slopes += r->own.head;
    if (o.attn.sinks) o.attn.sinks += r->own.head;
    if (o.intermediate) o.intermediate = r->own.columns;
    o.attn.o = o.down = (mha_matrix){0};
    return o;
}

static mha_status create_block(layer_reader *r, mha_error *err)
{
    const mha__config *c = &r->m->config;
    mha__row_parallel *o = NULL, *down = NULL;
    MHA__TRY(read_projections(r, err));
    MHA__TRY(read_feed_forward(r, err));
    mha_status status = create_sum(r, MHA__ATTN_OUT, c->layer_heads[r->layer], c->head_dim, &o, err);
    if (status == MHA_OK) status = create_sum(r, MHA__DOWN, c->intermediate, 1, &down, err);
    if (status != MHA_OK) {
        mha__row_parallel_free(o);
        mha__row_parallel_free(down);
        return status;
    }
    const mha_block_options options = options_of(r);
    return mha__block_create_part(r->m->ctx, &options, o, down, &r->m->block[r->layer], err);
}

mha_status mha__rank_block(mha_model *m, int64_t layer, mha__weights *weights, mha_error *err)
{
    layer_reader r = {.m = m, .weights = weights, .layer = layer, .own = mha__layer_part_of(m, layer)};
    const size_t max = (size_t)(r.own.heads + r.own.k_heads + r.own.v_heads);
    weights->converted = NULL;
    r.start = mha__alloc(m->ctx, max * sizeof *r.start);
    if (!r.start) return mha__no_memory(err, max * sizeof *r.start, "the row indices of heads");
    mha_status status = read_whole(&r, err);
    if (status == MHA_OK && !weights->check_only) status = create_block(&r, err);
    mha__free(m->ctx, r.start);
    mha__weights_release(weights);
    return status;
}
