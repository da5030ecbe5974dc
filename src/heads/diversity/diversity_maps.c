/* diversity_maps.c - compares the attention maps of heads.
 *
 * The maps of some texts are stored for all heads of all layers, as contiguous rows. All measures follow from sums over
 * the elements of the maps: the divergences from sums of (p + q) log2 (p + q) (js_mixtures.h), the cosines from
 * products. Centering subtracts from each product a term that follows from the row sums. */
#include "attn/stats/js_mixtures.h"
#include "base/error.h"
#include "base/size.h"
#include "heads/diversity/diversity.h"
#include "math/linalg.h"
#include <math.h>
#include <string.h>

/* ---- storing maps ---- */

void mha__held_maps_take(const mha__held_maps *held, int64_t layer, const float *probs)
{
    const int64_t heads = mha__diversity_width(held->d, layer);
    for (int64_t h = 0; h < heads; h++) {
        float *to = held->probs + (held->d->first[layer] + h) * held->stride;
        for (int64_t r = 0; r < held->row_count; r++) {
            const mha__map_row *row = &held->rows[r];
            const int64_t at = ((row->sequence * heads + h) * held->slots + row->slot) * held->keys;
            memcpy(to, probs + at, (size_t)row->keys * sizeof *to);
            to += row->keys;
        }
    }
}

/* ---- summation of one text in double, and over texts as integers ---- */

/* The stored rows of one text, `from` to `end`, and their elements: `numbers` elements that start at `at`. */
typedef struct text_rows {
    int64_t from, end, at, numbers;
} text_rows;

/* Advances to the next text; returns false after the last text. Initialize *t with zeros before the first call. */
static bool next_text(const mha__held_maps *held, text_rows *t)
{
    t->from = t->end;
    t->at += t->numbers;
    t->numbers = 0;
    if (t->from == held->row_count) return false;
    const int64_t sequence = held->rows[t->from].sequence;
    for (; t->end < held->row_count && held->rows[t->end].sequence == sequence; t->end++)
        t->numbers += held->rows[t->end].keys;
    return true;
}

static void add_mixtures(const mha__held_maps *held, const mha__diversity_tally *sums, mha__fixed *to)
{
    const int64_t heads = mha_diversity_heads(held->d);
    for (text_rows t = {0}; next_text(held, &t);) {
        mha__mixtures(held->ctx, heads, t.numbers, held->probs + t.at, held->stride, sums->text);
        mha__fixed_add_triangle(to, sums->text, heads);
    }
}

static void add_masses(const mha__held_maps *held, const mha__diversity_tally *sums)
{
    for (text_rows t = {0}; next_text(held, &t);) {
        double even = 0;
        for (int64_t h = 0; h < mha_diversity_heads(held->d); h++) {
            const float *p = held->probs + h * held->stride + t.at;
            double all = 0;
            for (int64_t r = t.from; r < t.end; r++) {
                double mass = 0;
                for (int64_t j = 0; j < held->rows[r].keys; j++)
                    mass += (double)*p++;
                all += mass / (double)held->rows[r].keys;
            }
            mha__fixed_add(&sums->mass[h], all);
        }
        for (int64_t r = t.from; r < t.end; r++)
            even += 1 / (double)held->rows[r].keys;
        mha__fixed_add(sums->even, even);
    }
}

static mha_status add_products(const mha__held_maps *held, const mha__diversity_tally *sums, mha_error *err)
{
    mha__fixed *dot = sums->dot;
    int64_t texts = 0;
    for (text_rows t = {0}; next_text(held, &t);) {
        held->starts[texts] = t.at;
        held->starts[++texts] = t.at + t.numbers;
    }
    for (int64_t l = 0; l < held->d->layers; l++) {
        const int64_t heads = mha__diversity_width(held->d, l);
        const mha__columns maps = {held->probs + held->d->first[l] * held->stride, 1, held->stride, heads};
        MHA__TRY(mha__gram_runs(held->ctx, held->starts, texts, &maps, dot, err));
        dot += mha__triangle(heads);
    }
    return MHA_OK;
}

/* Smooths the maps: 0.999 p + 0.001 / keys. */
static void smooth(const mha__held_maps *held)
{
    for (int64_t h = 0; h < mha_diversity_heads(held->d); h++) {
        float *p = held->probs + h * held->stride;
        for (int64_t r = 0; r < held->row_count; r++) {
            const float even = 0.001F / (float)held->rows[r].keys;
            for (int64_t j = 0; j < held->rows[r].keys; j++, p++)
                *p = 0.999F * *p + even;
        }
    }
}

mha_status mha__held_maps_add(const mha__held_maps *held, const mha__diversity_tally *sums, mha_error *err)
{
    if (sums->dot) {
        MHA__TRY(add_products(held, sums, err));
        add_masses(held, sums);
    }
    if (sums->js) add_mixtures(held, sums, sums->js);
    if (!sums->clark) return MHA_OK;
    smooth(held);
    add_mixtures(held, sums, sums->clark);
    return MHA_OK;
}

/* ---- values computed from the sums ---- */

static mha_status not_finite(const mha_diversity *d, int64_t head, mha_error *err)
{
    int64_t layer = 0;
    while (d->first[layer + 1] <= head)
        layer++;
    return mha__fail(err, MHA_ERR_ARG, "mha_diversity_measure: the attention of head %lld of layer %lld must be finite",
                     (long long)(head - d->first[layer]), (long long)layer);
}

static mha_status divergences(const mha_diversity *d, const double *sums, double factor, double *to, mha_error *err)
{
    const int64_t n = mha_diversity_heads(d);
    for (int64_t a = 0; a < n; a++) {
        if (!isfinite(sums[a * n + a])) return not_finite(d, a, err);
        for (int64_t b = 0; b <= a; b++) {
            const double own = (sums[a * n + a] + sums[b * n + b]) / 4, both = sums[a * n + b] / 2;
            to[a * n + b] = to[b * n + a] = factor * fmax(own - both, 0); /* exactly 0 if a = b */
        }
    }
    return MHA_OK;
}

/* Returns the cosine from a product and both squares; NAN if a square is 0. Centering sets negligible squares to 0. */
static double cosine(double product, double a, double b)
{
    return a > 0 && b > 0 ? fmax(-1, fmin(1, product / sqrt(a * b))) : NAN;
}

/* Returns the product of the centered maps p - 1 / keys, computed from the product `dot` of the maps and their row
 * sums. A square within rounding error of 0 becomes 0. */
static double centered(const mha__diversity_sums *sums, int64_t a, int64_t b, double dot)
{
    const double rest = dot - (sums->mass[a] + sums->mass[b]) + *sums->even;
    return a == b && rest < 1e-12 * dot ? 0 : rest;
}

static mha_status cosines(mha_diversity *d, const mha__diversity_sums *sums, mha_error *err)
{
    const int64_t n = mha_diversity_heads(d);
    const double *dot = sums->dot;
    for (int64_t l = 0; l < d->layers; l++) {
        const int64_t heads = mha__diversity_width(d, l), first = d->first[l];
        for (int64_t i = 0; i < heads * heads; i++) {
            const int64_t a = i / heads, b = i % heads;
            const int64_t at = (first + a) * n + first + b;
            const double aa = dot[a * heads + a], bb = dot[b * heads + b];
            if (!isfinite(aa)) return not_finite(d, first + a, err);
            if (d->value[MHA_DIVERSITY_COSINE]) d->value[MHA_DIVERSITY_COSINE][at] = cosine(dot[i], aa, bb);
            if (d->value[MHA_DIVERSITY_COSINE_CENTRED])
                d->value[MHA_DIVERSITY_COSINE_CENTRED][at] =
                    cosine(centered(sums, first + a, first + b, dot[i]), centered(sums, first + a, first + a, aa),
                           centered(sums, first + b, first + b, bb));
        }
        dot += heads * heads;
    }
    return MHA_OK;
}

mha_status mha__diversity_of_maps(mha_diversity *d, const mha__diversity_sums *sums, mha_error *err)
{
    double *js = d->value[MHA_DIVERSITY_JS], *clark = d->value[MHA_DIVERSITY_JS_CLARK];
    if (sums->dot) MHA__TRY(cosines(d, sums, err));
    if (clark) MHA__TRY(divergences(d, sums->clark, log(2), clark, err));
    if (!js) return MHA_OK;
    MHA__TRY(divergences(d, sums->js, 1 / (double)d->rows, js, err));
    MHA__TRY(mha__head_map(d->ctx, mha_diversity_heads(d), js, d->map, d->eigenvalues, err));
    return mha__head_clusters(d->ctx, mha_diversity_heads(d), js, d->merges, err);
}
