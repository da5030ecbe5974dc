/* test_heads_diversity.c - compares every measure of head similarity with its formula in double, computed from the maps
 * and contexts of a model. Tests an encoder, a decoder, and a model with a transposed output projection. */
#include "math/linalg.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/heads/diversity_case.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 7 };

/* ---- reference formulas ---- */

/* The maps of the current text, [N, n, n], and the contexts of all texts, [layers][tokens, W]. */
typedef struct seen {
    int64_t first[65], layers, width, tokens, at; /* first[l]: number of heads in the layers before layer l; width: W */
    int64_t n;
    double *maps;
    double *contexts[64];
} seen;

static int see_maps(void *user, int64_t layer, int64_t heads, const float *probs)
{
    seen *s = user;
    for (int64_t i = 0; i < heads * s->n * s->n; i++)
        s->maps[s->first[layer] * s->n * s->n + i] = (double)probs[i];
    return 0;
}

static int see_contexts(void *user, const mha_model_activations *a)
{
    seen *s = user;
    const int64_t width = a->heads * a->head_dim;
    for (int64_t i = 0; i < a->rows * width; i++)
        s->contexts[a->layer][s->at * width + i] = (double)a->context[i];
    return 0;
}

static seen see(const mha_model *model, const mha_head_data *data)
{
    const mha_model_info *info = mha_model_describe(model);
    seen s = {.layers = info->layers, .tokens = mha_head_data_tokens(data)};
    for (int64_t l = 0; l < info->layers; l++) {
        s.first[l + 1] = s.first[l] + info->heads_per_layer[l];
        s.contexts[l] = calloc((size_t)(s.tokens * info->heads * info->head_dim), sizeof(double));
    }
    return s;
}

/* Returns the entropy of (p + q) / 2, in bits. */
static double entropy(int64_t n, const double *p, const double *q)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = (p[i] + q[i]) / 2;
        if (x > 0) sum -= x * log2(x);
    }
    return sum;
}

typedef struct pairs {
    int64_t n; /* number of heads */
    double *js, *clark, *dot, *centred;
} pairs;

static void smooth(int64_t keys, const double *p, double *to)
{
    for (int64_t j = 0; j < keys; j++)
        to[j] = 0.999 * p[j] + 0.001 / (double)keys;
}

static void add_row(pairs *want, const seen *s, int64_t row, int64_t keys)
{
    double pa[100], pb[100];
    for (int64_t a = 0; a < want->n; a++)
        for (int64_t b = 0; b < want->n; b++) {
            const double *p = s->maps + (a * s->n + row) * s->n, *q = s->maps + (b * s->n + row) * s->n;
            const double even = 1 / (double)keys;
            const int64_t at = a * want->n + b;
            smooth(keys, p, pa);
            smooth(keys, q, pb);
            want->js[at] += entropy(keys, p, q) - (entropy(keys, p, p) + entropy(keys, q, q)) / 2;
            want->clark[at] += log(2) * (entropy(keys, pa, pb) - (entropy(keys, pa, pa) + entropy(keys, pb, pb)) / 2);
            for (int64_t j = 0; j < keys; j++) {
                want->dot[at] += p[j] * q[j];
                want->centred[at] += (p[j] - even) * (q[j] - even);
            }
        }
}

/* Runs each text through the model and sums the measures of each pair of heads over all rows of the maps. */
static pairs see_texts(const mha_model *model, const mha_head_data *data, seen *s)
{
    const mha_model_info *info = mha_model_describe(model);
    const size_t n = (size_t)s->first[s->layers];
    pairs want = {(int64_t)n, calloc(n * n, sizeof(double)), calloc(n * n, sizeof(double)),
                  calloc(n * n, sizeof(double)), calloc(n * n, sizeof(double))};
    for (int64_t t = 0; t < mha_head_data_count(data); t++, s->at += s->n) {
        mha_error err = {0};
        mha_model_input input = {.size = sizeof input, .batch = 1};
        const mha_model_output output = {
            .size = sizeof output, .on_attention = see_maps, .on_activations = see_contexts, .user = s};
        input.ids = mha_head_data_ids(data, t, &input.length);
        s->n = input.length;
        s->maps = calloc(n * (size_t)(s->n * s->n), sizeof(double));
        if (mha_model_forward(model, &input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
        for (int64_t row = 0; row < s->n; row++)
            add_row(&want, s, row, info->causal ? row + 1 : s->n);
        free(s->maps);
    }
    return want;
}

static void check_value(const mha_diversity *d, mha_diversity_kind what, int64_t layer_a, int64_t a, int64_t layer_b,
                        int64_t b, double want, double limit)
{
    const double got = mha_diversity_value(d, what, layer_a, a, layer_b, b);
    if (!(fabs(got - want) <= limit))
        fail_msg("%s of heads %d.%d and %d.%d: got %.9g, expected %.9g", mha_diversity_key(what), (int)layer_a, (int)a,
                 (int)layer_b, (int)b, got, want);
    assert_true(got == mha_diversity_value(d, what, layer_b, b, layer_a, a));
}

static void check_maps(const mha_diversity *d, const seen *s, const pairs *want)
{
    for (int64_t i = 0; i < want->n * want->n; i++) {
        const int64_t a = i / want->n, b = i % want->n;
        int64_t la = 0, lb = 0;
        while (s->first[la + 1] <= a)
            la++;
        while (s->first[lb + 1] <= b)
            lb++;
        const int64_t ha = a - s->first[la], hb = b - s->first[lb];
        const double rows = (double)s->tokens;
        check_value(d, MHA_DIVERSITY_JS, la, ha, lb, hb, want->js[i] / rows, 3e-7);
        check_value(d, MHA_DIVERSITY_JS_CLARK, la, ha, lb, hb, want->clark[i], 3e-7 * rows);
        if (la != lb) {
            assert_true(isnan(mha_diversity_value(d, MHA_DIVERSITY_COSINE, la, ha, lb, hb)));
            continue;
        }
        const double *dot = want->dot, *centred = want->centred;
        const int64_t aa = a * want->n + a, bb = b * want->n + b;
        check_value(d, MHA_DIVERSITY_COSINE, la, ha, lb, hb, dot[i] / sqrt(dot[aa] * dot[bb]), 1e-6);
        check_value(d, MHA_DIVERSITY_COSINE_CENTRED, la, ha, lb, hb, centred[i] / sqrt(centred[aa] * centred[bb]),
                    1e-6);
    }
}

/* ---- reference for measures of head outputs X [tokens, E] ---- */

typedef struct outputs {
    int64_t heads, D, E, tokens;
    float *w; /* output projection [E, H D], or [H D, E] if transposed */
    bool transposed;
    const double *contexts;
    int *half; /* [tokens]: the half that contains the token */
} outputs;

/* Returns the output X of head h for all tokens of a half (-1: all tokens), with centered columns. Rows of other tokens
 * are 0. */
static double *added(const outputs *o, int64_t h, int half)
{
    double *x = calloc((size_t)(o->tokens * o->E), sizeof *x);
    const int64_t width = o->heads * o->D;
    for (int64_t e = 0; e < o->E; e++) {
        double mean = 0, rows = 0;
        for (int64_t t = 0; t < o->tokens; t++) {
            if (half >= 0 && o->half[t] != half) continue;
            for (int64_t j = h * o->D; j < (h + 1) * o->D; j++)
                x[t * o->E + e] +=
                    o->contexts[t * width + j] * (double)(o->transposed ? o->w[j * o->E + e] : o->w[e * width + j]);
            mean += x[t * o->E + e];
            rows++;
        }
        for (int64_t t = 0; t < o->tokens; t++)
            if (half < 0 || o->half[t] == half) x[t * o->E + e] -= mean / rows;
    }
    return x;
}

/* Returns the squared Frobenius norm of X^T Y. */
static double overlap(const outputs *o, const double *x, const double *y)
{
    double sum = 0;
    for (int64_t a = 0; a < o->E; a++)
        for (int64_t b = 0; b < o->E; b++) {
            double dot = 0;
            for (int64_t t = 0; t < o->tokens; t++)
                dot += x[t * o->E + a] * y[t * o->E + b];
            sum += dot * dot;
        }
    return sum;
}

/* Returns the outputs of all heads except h, centered in a half, as a matrix [tokens, (H - 1) E]. */
static double *others(const outputs *o, int64_t h, int half)
{
    const int64_t wide = (o->heads - 1) * o->E;
    double *to = calloc((size_t)(o->tokens * wide), sizeof *to);
    for (int64_t g = 0, at = 0; g < o->heads; g++) {
        if (g == h) continue;
        double *x = added(o, g, half);
        for (int64_t t = 0; t < o->tokens; t++)
            memcpy(to + t * wide + at * o->E, x + t * o->E, (size_t)o->E * sizeof *x);
        free(x);
        at++;
    }
    return to;
}

/* Fits a ridge regression from the outputs of all other heads to the output of head h in half `fit`. Returns its
 * squared error in the other half, and adds the squared norm of the output in that half to *all. */
static double left_over(const outputs *o, int64_t h, int fit, double *all)
{
    const int64_t wide = (o->heads - 1) * o->E, E = o->E;
    double penalty = 0, sum = 0, tokens = 0;
    for (int64_t t = 0; t < o->tokens; t++)
        tokens += o->half[t] == fit;
    for (int64_t g = 0; g < o->heads; g++) {
        double *x = added(o, g, fit);
        penalty += mha__dot(o->tokens * E, x, x) / tokens;
        free(x);
    }
    double *z = others(o, h, fit), *y = added(o, h, fit), *test_z = others(o, h, 1 - fit), *test = added(o, h, 1 - fit);
    double *k = calloc((size_t)(wide * wide), sizeof *k), *b = calloc((size_t)(wide * E), sizeof *b);
    for (int64_t t = 0; t < o->tokens; t++)
        for (int64_t i = 0; i < wide; i++) {
            for (int64_t j = 0; j <= i; j++)
                k[i * wide + j] += z[t * wide + i] * z[t * wide + j];
            for (int64_t e = 0; e < E; e++)
                b[i * E + e] += z[t * wide + i] * y[t * E + e];
        }
    for (int64_t i = 0; i < wide; i++)
        k[i * wide + i] += penalty;
    assert_int_equal(mha__cholesky(NULL, wide, k, NULL), MHA_OK);
    mha__cholesky_solve(NULL, wide, k, E, b);
    for (int64_t t = 0; t < o->tokens; t++)
        for (int64_t e = 0; e < E; e++) {
            double x = test[t * E + e];
            *all += x * x;
            for (int64_t i = 0; i < wide; i++)
                x -= test_z[t * wide + i] * b[i * E + e];
            sum += x * x;
        }
    double *memory[] = {z, y, test_z, test, k, b};
    for (int i = 0; i < 6; i++)
        free(memory[i]);
    return sum;
}

static void check_layer(const mha_diversity *d, const outputs *o, int64_t layer)
{
    for (int64_t a = 0; a < o->heads; a++) {
        double *x = added(o, a, -1), all = 0, left = 0;
        for (int64_t b = 0; b <= a; b++) {
            double *y = added(o, b, -1);
            const double want = overlap(o, x, y) / sqrt(overlap(o, x, x) * overlap(o, y, y));
            check_value(d, MHA_DIVERSITY_CKA, layer, a, layer, b, want, 1e-9);
            free(y);
        }
        free(x);
        for (int fit = 0; fit < 2; fit++)
            left += left_over(o, a, fit, &all);
        check_value(d, MHA_DIVERSITY_UNIQUE, layer, a, layer, a, fmin(1, left / all), 1e-9);
    }
}

/* Returns |P_a P_b|_F^2 / D for the projections P = W (W^T W)^-1 W^T onto the output subspaces of heads a and b. */
static double shared(const outputs *o, int64_t a, int64_t b)
{
    const int64_t heads[2] = {a, b}, D = o->D, E = o->E, width = o->heads * D;
    double *projection[2], sum = 0;
    for (int n = 0; n < 2; n++) {
        double *w = calloc((size_t)(D * E), sizeof *w), *solved = calloc((size_t)(D * E), sizeof *solved);
        double *gram = calloc((size_t)(D * D), sizeof *gram);
        for (int64_t j = 0; j < D; j++)
            for (int64_t e = 0; e < E; e++) {
                const int64_t column = heads[n] * D + j;
                w[j * E + e] = (double)(o->transposed ? o->w[column * E + e] : o->w[e * width + column]);
                solved[j * E + e] = w[j * E + e];
            }
        for (int64_t i = 0; i < D * D; i++)
            gram[i] = mha__dot(E, w + i / D * E, w + i % D * E);
        assert_int_equal(mha__cholesky(NULL, D, gram, NULL), MHA_OK);
        mha__cholesky_solve(NULL, D, gram, E, solved);
        projection[n] = calloc((size_t)(E * E), sizeof(double));
        for (int64_t i = 0; i < E * E; i++)
            for (int64_t j = 0; j < D; j++)
                projection[n][i] += w[j * E + i / E] * solved[j * E + i % E];
        free(w);
        free(solved);
        free(gram);
    }
    sum = mha__dot(E * E, projection[0], projection[1]); /* trace(P_a P_b) = |P_a P_b|_F^2 */
    free(projection[0]);
    free(projection[1]);
    return sum / (double)D;
}

static void mark_halves(const mha_head_data *data, int *half)
{
    for (int64_t t = 0, at = 0, n; t < mha_head_data_count(data); t++, at += n) {
        mha_head_data_ids(data, t, &n);
        for (int64_t i = 0; i < n; i++)
            half[at + i] = (int)((t + i / 64) % 2);
    }
}

static void check_model(const char *folder, const char *projection, bool transposed)
{
    mha_model *model = case_open(NULL, folder);
    const mha_model_info *info = mha_model_describe(model);
    mha_head_data *data = diversity_data(model, diversity_lengths, TEXTS, 0);
    mha_diversity *d = diversity_of(model, data, (mha_diversity_options){0});
    seen s = see(model, data);
    pairs want = see_texts(model, data, &s);
    char path[100];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    mha_file *file = case_file(path);
    check_maps(d, &s, &want);
    assert_int_equal(mha_diversity_rows(d), s.tokens);
    int *half = calloc((size_t)s.tokens, sizeof *half);
    mark_halves(data, half);
    for (int64_t l = 0; l < info->layers; l++) {
        char name[100];
        snprintf(name, sizeof name, projection, (int)l);
        outputs o = {info->heads, info->head_dim, info->hidden, s.tokens, case_floats(file, name),
                     transposed,  s.contexts[l],  half};
        check_layer(d, &o, l);
        for (int64_t a = 0; a < o.heads; a++)
            for (int64_t b = 0; b <= a; b++)
                check_value(d, MHA_DIVERSITY_SUBSPACE, l, a, l, b, shared(&o, a, b), 1e-9);
        free(o.w);
        free(s.contexts[l]);
    }
    double *memory[] = {want.js, want.clark, want.dot, want.centred};
    for (int i = 0; i < 4; i++)
        free(memory[i]);
    free(half);
    mha_file_free(file);
    mha_diversity_free(d);
    mha_head_data_free(data);
    mha_model_free(model);
}

static void formulas_of_an_encoder(void **state)
{
    (void)state;
    check_model("models/bert-tiny", "encoder.layer.%d.attention.output.dense.weight", false);
}

static void formulas_of_decoders(void **state)
{
    (void)state;
    check_model("models/gpt2-tiny", "transformer.h.%d.attn.c_proj.weight", true);
    check_model("heads/tinylm", "model.layers.%d.self_attn.o_proj.weight", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(formulas_of_an_encoder),
                                       cmocka_unit_test(formulas_of_decoders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
