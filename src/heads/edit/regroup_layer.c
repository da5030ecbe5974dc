/* regroup_layer.c - regroups the projections of one layer: orders the heads, then computes the shared keys, then the
 * shared values. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "heads/edit/regroup_model.h"
#include <math.h>
#include <string.h>

/* The keys or the values of one layer. */
typedef struct side {
    const mha__regroup_job *job;
    const mha__projections *from, *to;
    mha__shared shared;   /* products and weighting for the closed form */
    bool keys, closed;    /* closed: true = fitted in closed form */
    int64_t had, wanted;  /* key or value heads of the source, and of the regrouped layer */
    double *maps, *backs; /* [H / wanted, D, D] */
} side;

/* ---- cost of sharing keys or values ---- */

/* Computes Wo_h^T Wo_h of each head h. */
static void squares_of_out(const mha__projections *p, double *squares)
{
    const int64_t D = p->head_dim, wide = p->heads * D;
    for (int64_t e = 0; e < p->width; e++)
        for (int64_t h = 0; h < p->heads; h++) {
            const double *row = p->o + e * wide + h * D;
            for (int64_t i = 0; i < D; i++)
                for (int64_t j = 0; j < D; j++)
                    squares[(h * D + i) * D + j] += row[i] * row[j];
        }
}

/* Copies the sums over tokens of the products of elements; for centered keys, subtracts the products of the means. */
static mha_status take_gram(side *s, mha_error *err)
{
    const mha__moments *m = s->job->moments;
    const int64_t l = s->job->layer, n = s->shared.stored * s->shared.head_dim;
    const double *sums = s->keys && !s->job->o->uncentered ? m->mean[l] : NULL, tokens = (double)m->tokens;
    const double *from = s->keys ? m->keys[l] : m->values[l];
    s->shared.gram = mha__alloc(s->shared.ctx, (size_t)(n * n) * sizeof *s->shared.gram);
    if (!s->shared.gram)
        return mha__no_memory(err, (size_t)(n * n) * sizeof *s->shared.gram, "the second moments of a layer");
    for (int64_t i = 0; i < n * n; i++)
        s->shared.gram[i] = from[i] - (sums ? sums[i / n] * sums[i % n] / tokens : 0);
    return MHA_OK;
}

/* Weights the error of each head: multiplies S_h by sqrt(weight). */
static void weigh(side *s)
{
    const double *weights = s->job->weights;
    const int64_t cells = s->shared.head_dim * s->shared.head_dim;
    for (int64_t n = 0; weights && n < s->shared.heads * cells; n++) {
        const double root = sqrt(weights[n / cells]);
        s->shared.root[n] *= root;
        s->shared.back[n] /= root;
    }
}

static mha_status take_roots(side *s, mha_error *err)
{
    const int64_t cells = s->shared.head_dim * s->shared.head_dim * s->shared.heads;
    const mha__moments *m = s->job->moments;
    double *squares = mha__calloc(s->shared.ctx, (size_t)cells, sizeof *squares);
    if (!squares) return mha__no_memory(err, (size_t)cells * sizeof *squares, "the weighting matrices of a layer");
    if (s->keys)
        memcpy(squares, m->queries[s->job->layer], (size_t)cells * sizeof *squares);
    else
        squares_of_out(s->from, squares);
    const mha_status status =
        mha__shared_roots(&s->shared, squares, s->keys ? (double)m->tokens : 1, s->keys ? 1e-6 : 1e-8, err);
    mha__free(s->shared.ctx, squares);
    if (status == MHA_OK) weigh(s);
    return status;
}

static mha_status begin(side *s, mha_error *err)
{
    const mha_model *model = s->job->model;
    const int64_t D = s->from->head_dim;
    const mha_regroup_method method = s->job->o->method;
    s->had = s->keys ? s->from->k_heads : s->from->v_heads;
    s->wanted = s->keys ? s->job->keys : s->job->values;
    s->closed = s->wanted < s->had && (method == MHA_REGROUP_CLOSED || (method == MHA_REGROUP_VALUES && !s->keys));
    s->shared = (mha__shared){.ctx = model->ctx,
                              .heads = s->from->heads,
                              .head_dim = D,
                              .stored = model->config.layer_kv_heads[s->job->layer]};
    if (!s->closed) return MHA_OK;
    const size_t numbers = (size_t)(s->from->heads / s->wanted * D * D);
    s->maps = mha__alloc(model->ctx, 2 * numbers * sizeof *s->maps);
    if (!s->maps) return mha__no_memory(err, 2 * numbers * sizeof *s->maps, "the transforms of a group of heads");
    s->backs = s->maps + numbers;
    MHA__TRY(take_gram(s, err));
    return take_roots(s, err);
}

static void end(side *s)
{
    mha__free(s->shared.ctx, s->maps);
    mha__shared_free(&s->shared);
}

/* ---- order of heads ---- */

/* Returns the number of neighboring heads that must stay together because they share an unchanged key or value head.
 * The key and value head counts divide the number of query heads. */
static int64_t unit_of(const side *sides)
{
    int64_t unit = 1;
    for (int n = 0; n < 2; n++)
        if (sides[n].wanted == sides[n].had) unit = mha__common_multiple(unit, sides[n].from->heads / sides[n].had);
    return unit;
}

static mha_status find_order(const side *sides, mha_error *err)
{
    const mha__regroup_job *job = sides->job;
    const int64_t H = sides->from->heads, cells = H * H, counts[2] = {job->keys, job->values};
    mha_ctx *ctx = job->model->ctx;
    for (int64_t h = 0; h < H; h++)
        job->order[h] = (int32_t)h;
    for (int n = 0; n < 2; n++)
        if (sides[n].wanted < sides[n].had && !sides[n].closed) return MHA_OK; /* only neighbors are averaged */
    if (job->o->contiguous) return MHA_OK;
    double *cost = mha__calloc(ctx, (size_t)(2 * cells), sizeof *cost);
    if (!cost) return mha__no_memory(err, (size_t)(2 * cells) * sizeof *cost, "the costs of pairs of heads");
    mha_status status = MHA_OK;
    for (int n = 0; n < 2 && status == MHA_OK; n++)
        if (sides[n].closed && sides[n].wanted > 1) status = mha__shared_pairs(&sides[n].shared, cost + n * cells, err);
    double *const costs[2] = {sides[0].closed ? cost : NULL, sides[1].closed ? cost + cells : NULL};
    if (status == MHA_OK) mha__order_find(H, unit_of(sides), counts, costs, job->order);
    mha__free(ctx, cost);
    return status;
}

/* ---- new weights ---- */

/* Computes to [D, row] += map [D, D] from [D, row]; if map is NULL, to += factor from. */
static void add_mapped(int64_t D, int64_t row, const double *map, double factor, const double *from, double *to)
{
    for (int64_t i = 0; i < D; i++)
        for (int64_t l = map ? 0 : i; l < (map ? D : i + 1); l++) {
            const double f = map ? map[i * D + l] : factor;
            for (int64_t e = 0; e < row; e++)
                to[i * row + e] += f * from[l * row + e];
        }
}

/* Writes the columns of head `head` of the source's output projection at position `place`, transformed by `back` unless
 * it is NULL. */
static void put_out(const side *s, int64_t place, int64_t head, const double *back)
{
    const int64_t D = s->from->head_dim, wide = s->from->heads * D;
    for (int64_t e = 0; e < s->from->width; e++) {
        const double *from = s->from->o + e * wide + head * D;
        double *to = s->to->o + e * wide + place * D;
        for (int64_t j = 0; j < D; j++)
            to[j] = back ? 0 : from[j];
        for (int64_t j = 0; back && j < D; j++)
            for (int64_t b = 0; b < D; b++)
                to[j] += from[b] * back[j * D + b];
    }
}

/* Returns the weight of head `at` in the mean of a group. If the number of key or value heads is unchanged, all heads
 * of a group are equal and the weights are uniform. */
static double part_of(const side *s, const int32_t *heads, int64_t count, int64_t at)
{
    const double *weights = s->wanted < s->had ? s->job->weights : NULL;
    double sum = 0;
    for (int64_t i = 0; weights && i < count; i++)
        sum += weights[heads[i]];
    return weights ? weights[heads[at]] / sum : 1 / (double)count;
}

/* Computes the shared key or value head of group g, and transforms the query or output projections of the heads that
 * read it. */
static mha_status put_group(const side *s, int64_t g, mha_error *err)
{
    const int64_t H = s->from->heads, D = s->from->head_dim, row = s->from->width + 1, count = H / s->wanted;
    const int32_t *heads = s->job->order + g * count;
    const double *old = s->keys ? s->from->k : s->from->v;
    double *shared = (s->keys ? s->to->k : s->to->v) + g * D * row;
    if (s->closed) MHA__TRY(mha__shared_fit(&s->shared, heads, count, s->maps, s->backs, err));
    for (int64_t i = 0; i < count; i++) {
        const double *map = s->closed ? s->maps + i * D * D : NULL, *back = s->closed ? s->backs + i * D * D : NULL;
        const int64_t place = g * count + i;
        add_mapped(D, row, map, part_of(s, heads, count, i), old + heads[i] * s->had / H * D * row, shared);
        if (s->keys)
            add_mapped(D, row, back, 1, s->from->q + heads[i] * D * row, s->to->q + place * D * row);
        else
            put_out(s, place, heads[i], back);
    }
    return MHA_OK;
}

static mha_status put_side(const side *s, mha_error *err)
{
    for (int64_t g = 0; g < s->wanted; g++)
        MHA__TRY(put_group(s, g, err));
    return MHA_OK;
}

mha_status mha__regroup_layer(const mha__regroup_job *job, const mha__projections *from, mha__projections *to,
                              mha_error *err)
{
    side sides[2] = {{.job = job, .from = from, .to = to, .keys = true}, {.job = job, .from = from, .to = to}};
    MHA__TRY(mha__projections_make(job->model->ctx, from, job->keys, job->values, to, err));
    mha_status status = begin(&sides[0], err);
    if (status == MHA_OK) status = begin(&sides[1], err);
    if (status == MHA_OK) status = find_order(sides, err);
    for (int n = 0; n < 2 && status == MHA_OK; n++)
        status = put_side(&sides[n], err);
    end(&sides[0]);
    end(&sides[1]);
    return status;
}
