/* attribution_heads.c - first-order products for z, pattern, v, q and k, from the gradient of the heads' outputs.
 *
 *     dA_ij = <dz_i, v_j>     dv_j = sum_i A_ij dz_i     ds_ij = A_ij (dA_ij - sum_k A_ik dA_ik)
 *
 * s are the scores before masks; q and k get ds through the scale and the softcap. q and k are rotated in both runs,
 * which does not change their products with a gradient. */
#include "circuits/attribution.h"
#include "math/linalg.h"
#include <math.h>

/* A head of a layer. Rows of q, k, v and their counterparts in the base and source runs have qkv_width elements. */
typedef struct head {
    const mha__attribution *a;
    const mha_attn_layer *attn;
    int64_t T, D, width;          /* width: elements per row of dz and z */
    const float *dz;              /* first column of the head */
    const float *map, *q, *k, *v; /* of the run `at` */
    const float *base, *source;   /* rows of the site in both runs, at the head's columns */
    int64_t stride;               /* of those rows */
    double scale, cap;
    double *out; /* [T] */
} head;

/* Returns <y1 - y0, x> for row t of the site. */
static double delta_dot(const head *h, int64_t t, const float *x, int64_t count)
{
    double sum = 0;
    for (int64_t d = 0; d < count; d++)
        sum += ((double)h->source[t * h->stride + d] - (double)h->base[t * h->stride + d]) * (double)x[d];
    return sum;
}

/* Computes dA for query i in a->row, and returns sum_j A_ij dA_ij. */
static double map_gradient(const head *h, int64_t i)
{
    double mean = 0;
    for (int64_t j = 0; j < h->T; j++) {
        h->a->row[j] = mha__dot_f32(h->D, h->dz + i * h->width, h->v + j * h->a->pair->qkv_width);
        mean += (double)h->map[i * h->T + j] * h->a->row[j];
    }
    return mean;
}

static double capped(const head *h, double score)
{
    return h->cap > 0 ? h->cap * tanh(score / h->cap) : score;
}

/* ---- z, pattern and v ---- */

static void of_outputs(const head *h)
{
    for (int64_t t = 0; t < h->T; t++)
        h->out[t] += h->a->weight * delta_dot(h, t, h->dz + t * h->width, h->D);
}

static void of_maps(const head *h)
{
    for (int64_t i = 0; i < h->T; i++) {
        map_gradient(h, i);
        for (int64_t j = 0; j < h->T; j++)
            h->out[i] +=
                h->a->weight * ((double)h->source[i * h->T + j] - (double)h->base[i * h->T + j]) * h->a->row[j];
    }
}

static void of_values(const head *h)
{
    for (int64_t j = 0; j < h->T; j++)
        for (int64_t i = 0; i < h->T; i++)
            h->out[j] += h->a->weight * (double)h->map[i * h->T + j] * delta_dot(h, j, h->dz + i * h->width, h->D);
}

/* ---- q and k ---- */

/* Returns 1 - p for key j of query i, and sets *weighted to the sum of p dA over the other keys. A large p leaves
 * little for them, so these sums are computed from their terms and not by subtraction. */
static double other_keys(const head *h, int64_t i, int64_t j, double mean, double *weighted)
{
    const float *map = h->map + i * h->T;
    double rest = 1 - (double)map[j];
    *weighted = mean - (double)map[j] * h->a->row[j];
    if (map[j] < 0.5f) return rest;
    rest = *weighted = 0;
    for (int64_t k = 0; k < h->T; k++) {
        if (k == j) continue;
        rest += (double)map[k];
        *weighted += (double)map[k] * h->a->row[k];
    }
    return h->attn->options.sinks ? 1 - (double)map[j] : rest;
}

/* Adds the products for q, or with `keys` for k: row i of q with key j, and the reverse. */
static void of_scores(const head *h, bool keys)
{
    const int64_t stride = h->a->pair->qkv_width;
    for (int64_t i = 0; i < h->T; i++) {
        const double mean = map_gradient(h, i);
        for (int64_t j = 0; j < h->T; j++) {
            const float *q = h->q + i * stride, *k = h->k + j * stride;
            const double p = (double)h->map[i * h->T + j];
            double weighted = 0;
            const double rest = other_keys(h, i, j, mean, &weighted);
            double slope = h->scale * p * (rest * h->a->row[j] - weighted);
            if (h->cap > 0) slope *= 1 - pow(tanh(h->scale * mha__dot_f32(h->D, q, k) / h->cap), 2);
            h->out[keys ? j : i] += h->a->weight * slope * (keys ? delta_dot(h, j, q, h->D) : delta_dot(h, i, k, h->D));
        }
    }
}

/* Returns the change of score i, j if row i of q, or with `keys` row j of k, is that of the source run. */
static double score_change(const head *h, bool keys, int64_t i, int64_t j)
{
    const int64_t stride = h->a->pair->qkv_width;
    const float *q = h->q + i * stride, *k = h->k + j * stride;
    const double before = h->scale * mha__dot_f32(h->D, q, k);
    const double change = h->scale * (keys ? delta_dot(h, j, q, h->D) : delta_dot(h, i, k, h->D));
    return capped(h, before + change) - capped(h, before);
}

/* AtP*: each row of q is replaced, and the softmax of its row is computed again. */
static void recompute_queries(const head *h)
{
    for (int64_t i = 0; i < h->T; i++) {
        double total = 0, kept = 0, sum = 0;
        const double mean = map_gradient(h, i);
        for (int64_t j = 0; j < h->T; j++) {
            const double p = (double)h->map[i * h->T + j], q = p == 0 ? 0 : p * exp(score_change(h, false, i, j));
            kept += p;
            total += q;
            sum += q * h->a->row[j];
        }
        if (h->attn->options.sinks) total += fmax(0, 1 - kept);
        if (total > 0) h->out[i] += h->a->weight * (sum / total - mean);
    }
}

/* AtP*: each row of k is replaced: one score of each row changes. */
static void recompute_keys(const head *h)
{
    for (int64_t i = 0; i < h->T; i++) {
        const double mean = map_gradient(h, i);
        for (int64_t j = 0; j < h->T; j++) {
            double weighted = 0;
            const double p = (double)h->map[i * h->T + j], change = p == 0 ? 0 : score_change(h, true, i, j);
            const double rest = other_keys(h, i, j, mean, &weighted), changed = p * exp(change);
            if (p == 0) continue;
            const double after = isinf(changed) ? h->a->row[j] : (weighted + changed * h->a->row[j]) / (rest + changed);
            h->out[j] += h->a->weight * (after - (weighted + p * h->a->row[j]) / (rest + p));
        }
    }
}

/* ---- all heads of a layer ---- */

static void attribute(const head *h)
{
    const bool fix = h->a->estimate == MHA_ESTIMATE_QKFIX;
    switch (h->a->site) {
    case MHA_SITE_Z:
        of_outputs(h);
        break;
    case MHA_SITE_PATTERN:
        of_maps(h);
        break;
    case MHA_SITE_V:
        of_values(h);
        break;
    case MHA_SITE_Q:
        fix ? recompute_queries(h) : of_scores(h, false);
        break;
    case MHA_SITE_K:
        fix ? recompute_keys(h) : of_scores(h, true);
        break;
    default:
        break;
    }
}

void mha__attribute_heads(const mha__attribution *a, int m, int64_t layer, const float *dz)
{
    const mha_prompt_pair *pair = a->pair;
    const mha_attn_layer *attn = mha__pair_attn(pair, layer);
    const mha_attn_layer_options *o = &attn->options;
    const int64_t T = pair->length, D = o->head_dim;
    const int64_t count = mha__site_heads(pair, a->site, layer), share = o->heads / count;
    const float *qkv = a->at->qkv + layer * T * pair->qkv_width;
    for (int64_t h = 0; h < o->heads; h++) {
        const mha_patch_part part = {a->site, layer, h / share, -1};
        head one = {.a = a,
                    .attn = attn,
                    .T = T,
                    .D = D,
                    .width = mha__context_width(attn),
                    .dz = dz + h * D,
                    .map = a->at->maps + (layer * pair->info->heads + h) * T * T,
                    .q = qkv + h * D,
                    .k = qkv + mha__key_offset(attn, h),
                    .v = qkv + mha__value_offset(attn, h),
                    .scale = o->scale != 0 ? o->scale : 1 / sqrt((double)D),
                    .cap = o->softcap,
                    .out = a->sums + ((m * pair->info->layers + layer) * a->heads + h / share) * T};
        one.base = mha__part_rows(pair, a->base, &part, &one.stride);
        one.source = mha__part_rows(pair, a->source, &part, &one.stride);
        attribute(&one);
    }
}
