/* route_fit.c - a router by distillation: what each head is worth to each text, foreseen from the mean of what the
 * layer reads. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "heads/importance/importance.h"
#include "layer/arena.h"
#include "math/linalg.h"
#include "model/route.h"
#include <math.h>
#include <string.h>

enum { LEAST_TEXTS = 8, FOURTH = 4, PROBES = 16 };
static const double least_worth = 1e-7; /* below that the logarithm is of rounding */
/* Ridges that are tried, per text; INFINITY is the mean alone. */
static const double ridges[] = {INFINITY, 100, 30, 10, 3, 1, 0.3, 0.1};

/* One layer of E inputs and U outputs, some of the texts. */
typedef struct fit {
    mha_ctx *ctx;
    const mha_model *model;
    const mha_head_data *data;
    int64_t texts, width, most; /* N, E, and the most units of a layer */
    double *means;              /* [layers, N, E] */
    double *worth;              /* [N, layers, H] */
    double *target;             /* [N, U] of the layer at hand */
    float *z;                   /* [N, E] standardised */
    double *centre, *spread;    /* [E] */
    double *gram;               /* [n, n], n the less of N and E */
    double *solved;             /* [the greater of N and E, U] */
    double *weight, *bias;      /* [E, U] and [U] */
    int64_t *row;               /* [N] the texts that are fitted, then the others */
    int64_t used;
} fit;

/* ---- what is known of each text ---- */

typedef struct see {
    fit *f;
    const mha_model_input *input;
    const int64_t *texts;
} see;

static int see_input(void *user, const mha_model_activations *a)
{
    const see *s = user;
    const int64_t E = s->f->width;
    for (int64_t b = 0; b < s->input->batch; b++) {
        double *to = s->f->means + (a->layer * s->f->texts + s->texts[b]) * E;
        const int64_t first = s->input->starts[b], end = s->input->starts[b + 1];
        memset(to, 0, (size_t)E * sizeof *to);
        for (int64_t r = first; r < end; r++)
            for (int64_t e = 0; e < E; e++)
                to[e] += (double)a->input[r * E + e];
        for (int64_t e = 0; e < E; e++)
            to[e] /= (double)(end - first);
    }
    return 0;
}

static mha_status see_means(fit *f, mha_error *err)
{
    for (int64_t b = 0; b < mha__head_data_batches(f->data); b++) {
        mha_model_input input;
        see s = {.f = f, .input = &input};
        MHA__TRY(mha__head_data_batch(f->data, b, &input, &s.texts, err));
        const mha_model_output output = {.size = sizeof output, .on_activations = see_input, .user = &s};
        MHA__TRY(mha_model_forward(f->model, &input, &output, err));
    }
    return MHA_OK;
}

/* Each text's worth of each head: without it, or where logits are to be kept, by its gradient. */
static mha_status see_worth(fit *f, const mha_router_fit_options *o, mha_error *err)
{
    const mha_model_info *info = mha_model_describe(f->model);
    const bool logits = info->causal && info->logits;
    const mha_importance_options asked = {.size = sizeof asked,
                                          .by = logits ? MHA_SCORE_JACOBIAN_PROBE : MHA_SCORE_LOO,
                                          .probes = o->probes ? o->probes : PROBES,
                                          .seed = o->seed};
    mha_importance_options own;
    mha__scoring s;
    MHA__TRY(mha__importance_options_read(f->model, f->data, &asked, &own, err));
    mha_status status = mha__scoring_open(&s, f->model, f->data, &own, err);
    while (status == MHA_OK && mha__scoring_next(&s)) {
        status = mha__scoring_group(&s, err);
        for (int64_t n = 0; status == MHA_OK && n < s.texts; n++)
            memcpy(f->worth + s.text[n] * s.total, s.part + n * s.total, (size_t)s.total * sizeof *s.part);
    }
    mha__scoring_close(&s);
    return status;
}

/* ---- ridge regression ---- */

/* Standardises the inputs of a layer by the texts in use. */
static void standardise(fit *f, int64_t layer)
{
    const double *means = f->means + layer * f->texts * f->width;
    for (int64_t e = 0; e < f->width; e++) {
        double sum = 0, square = 0;
        for (int64_t n = 0; n < f->used; n++)
            sum += means[f->row[n] * f->width + e];
        f->centre[e] = sum / (double)f->used;
        for (int64_t n = 0; n < f->used; n++) {
            const double d = means[f->row[n] * f->width + e] - f->centre[e];
            square += d * d;
        }
        f->spread[e] = square > 0 ? sqrt(square / (double)f->used) : 1;
        for (int64_t n = 0; n < f->texts; n++)
            f->z[n * f->width + e] = (float)((means[f->row[n] * f->width + e] - f->centre[e]) / f->spread[e]);
    }
}

/* The logarithm of what each unit is worth, in the order of the rows; and its mean over those in use. */
static void take_targets(fit *f, int64_t layer, int64_t units)
{
    const int64_t H = f->model->config.heads, group = f->model->config.layer_heads[layer] / units;
    for (int64_t n = 0; n < f->texts; n++)
        for (int64_t u = 0; u < units; u++) {
            double sum = 0;
            for (int64_t h = u * group; h < (u + 1) * group; h++)
                sum += f->worth[(f->row[n] * f->model->config.layers + layer) * H + h];
            f->target[n * units + u] = log(fmax(sum, 0) + least_worth);
        }
    for (int64_t u = 0; u < units; u++) {
        double sum = 0;
        for (int64_t n = 0; n < f->used; n++)
            sum += f->target[n * units + u];
        f->bias[u] = sum / (double)f->used;
    }
}

/* to [E, U] = Z^T from [used, U] */
static void through(const fit *f, int64_t units, const double *from, double *to)
{
    memset(to, 0, (size_t)(f->width * units) * sizeof *to);
    for (int64_t n = 0; n < f->used; n++)
        for (int64_t e = 0; e < f->width; e++)
            for (int64_t u = 0; u < units; u++)
                to[e * units + u] += (double)f->z[n * f->width + e] * from[n * units + u];
}

/* weight [E, U] for the rows in use: by as many unknowns as there are texts, or numbers of the width if they are fewer:
 * Z^T (Z Z^T + r I)^-1 t = (Z^T Z + r I)^-1 Z^T t. */
static mha_status solve(fit *f, int64_t units, double ridge, mha_error *err)
{
    const bool few = f->used < f->width;
    const int64_t n = few ? f->used : f->width;
    const mha__columns rows = {f->z, 1, f->width, f->used}, columns = {f->z, f->width, 1, f->width};
    memset(f->weight, 0, (size_t)(f->width * units) * sizeof *f->weight);
    if (isinf(ridge)) return MHA_OK;
    memset(f->gram, 0, (size_t)(n * n) * sizeof *f->gram);
    MHA__TRY(mha__gram(f->ctx, few ? f->width : f->used, few ? &rows : &columns, f->gram, err));
    for (int64_t i = 0; i < n; i++)
        f->gram[i * n + i] += ridge * (double)f->used;
    for (int64_t i = 0; i < f->used; i++)
        for (int64_t u = 0; u < units; u++)
            f->solved[i * units + u] = f->target[i * units + u] - f->bias[u];
    if (!few) through(f, units, f->solved, f->weight);
    MHA__TRY(mha__cholesky(f->ctx, n, f->gram, err));
    mha__cholesky_solve(f->ctx, n, f->gram, units, few ? f->solved : f->weight);
    if (few) through(f, units, f->solved, f->weight);
    return MHA_OK;
}

/* Sum of squares of what was not foreseen of the texts that are not in use. */
static double missed(const fit *f, int64_t units)
{
    double sum = 0;
    for (int64_t n = f->used; n < f->texts; n++)
        for (int64_t u = 0; u < units; u++) {
            double t = f->target[n * units + u] - f->bias[u];
            for (int64_t e = 0; e < f->width; e++)
                t -= (double)f->z[n * f->width + e] * f->weight[e * units + u];
            sum += t * t;
        }
    return sum;
}

/* ---- a layer ---- */

/* Every fourth text behind the others, and the others in use; or all of them. */
static void order(fit *f, bool all)
{
    int64_t used = 0, held = f->texts;
    for (int64_t n = 0; n < f->texts; n++)
        if (all || n % FOURTH != FOURTH - 1) f->row[used++] = n;
    for (int64_t n = f->texts - 1; n >= 0; n--)
        if (!all && n % FOURTH == FOURTH - 1) f->row[--held] = n;
    f->used = used;
}

static void prepare(fit *f, int64_t layer, int64_t units, bool all)
{
    order(f, all);
    standardise(f, layer);
    take_targets(f, layer, units);
}

static mha_status choose_ridge(fit *f, int64_t layer, int64_t units, double *best, mha_error *err)
{
    double least = INFINITY;
    prepare(f, layer, units, false);
    for (size_t i = 0; i < sizeof ridges / sizeof *ridges; i++) {
        MHA__TRY(solve(f, units, ridges[i], err));
        const double sum = missed(f, units);
        if (sum >= least) continue;
        least = sum;
        *best = ridges[i];
    }
    return MHA_OK;
}

/* In the numbers that the layer reads: s = w (m - centre) / spread + bias. */
static void put(const fit *f, int64_t layer, int64_t units, mha_router *r)
{
    float *weight = r->list[2 * layer].data, *bias = r->list[2 * layer + 1].data;
    for (int64_t u = 0; u < units; u++) {
        double b = f->bias[u];
        for (int64_t e = 0; e < f->width; e++) {
            const double w = f->weight[e * units + u] / f->spread[e];
            weight[u * f->width + e] = (float)w;
            b -= w * f->centre[e];
        }
        bias[u] = (float)b;
    }
}

static mha_status fit_layer(fit *f, int64_t layer, mha_router *r, mha_router *fixed, mha_error *err)
{
    double ridge = INFINITY;
    prepare(f, layer, r->units[layer], true);
    memset(f->weight, 0, (size_t)(f->width * r->units[layer]) * sizeof *f->weight);
    put(f, layer, r->units[layer], fixed);
    MHA__TRY(choose_ridge(f, layer, r->units[layer], &ridge, err));
    prepare(f, layer, r->units[layer], true);
    MHA__TRY(solve(f, r->units[layer], ridge, err));
    put(f, layer, r->units[layer], r);
    return MHA_OK;
}

/* ---- the whole ---- */

static void lay_out(mha__arena *arena, fit *f)
{
    const mha__config *c = &f->model->config;
    const size_t N = (size_t)f->texts, E = (size_t)f->width, U = (size_t)c->heads, layers = (size_t)c->layers;
    const size_t less = N < E ? N : E, more = N < E ? E : N;
    f->means = mha__take(arena, layers * N, E * sizeof *f->means);
    f->worth = mha__take(arena, layers * N, U * sizeof *f->worth);
    f->target = mha__take(arena, N, U * sizeof *f->target);
    f->z = mha__take(arena, N, E * sizeof *f->z);
    f->centre = mha__take(arena, E, sizeof *f->centre);
    f->spread = mha__take(arena, E, sizeof *f->spread);
    f->gram = mha__take(arena, less, less * sizeof *f->gram);
    f->solved = mha__take(arena, more, U * sizeof *f->solved);
    f->weight = mha__take(arena, E, U * sizeof *f->weight);
    f->bias = mha__take(arena, U, sizeof *f->bias);
    f->row = mha__take(arena, N, sizeof *f->row);
}

static mha_status run(fit *f, const mha_router_fit_options *o, mha_router *r, mha_router *fixed, mha_error *err)
{
    MHA__TRY(see_worth(f, o, err));
    MHA__TRY(see_means(f, err));
    for (int64_t layer = 0; layer < r->layers; layer++)
        MHA__TRY(fit_layer(f, layer, r, fixed, err));
    mha__router_widen(r);
    mha__router_widen(fixed);
    return MHA_OK;
}

static mha_status check(const mha_model *model, const mha_head_data *data, mha_router **out,
                        const mha_router_fit_options *o, mha_error *err)
{
    if (!model || !data || !out)
        return mha__fail(err, MHA_ERR_ARG, "mha_router_fit: %s is NULL", !model ? "model" : !data ? "data" : "out");
    if (model->router) return mha__fail(err, MHA_ERR_ARG, "mha_router_fit: the model has a router: take it off first");
    if (!model->packed) return mha__fail(err, MHA_ERR_ARG, "the model was opened without weights (no_weights)");
    if (o->probes < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_router_fit_options: probes is %lld", (long long)o->probes);
    if (mha_head_data_count(data) < LEAST_TEXTS)
        return mha__fail(err, MHA_ERR_ARG, "mha_router_fit: %lld texts; it takes %d",
                         (long long)mha_head_data_count(data), LEAST_TEXTS);
    return MHA_OK;
}

mha_status mha_router_fit(const mha_model *model, const mha_head_data *data, const mha_router_fit_options *options,
                          mha_router **out, mha_router **fixed, mha_error *err)
{
    mha_router_fit_options o;
    mha_router *r = NULL, *same = NULL;
    mha__arena arena = {0};
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_router_fit_options", err));
    MHA__TRY(check(model, data, out, &o, err));
    *out = NULL;
    if (fixed) *fixed = NULL;
    fit f = {.ctx = model->ctx,
             .model = model,
             .data = data,
             .texts = mha_head_data_count(data),
             .width = model->config.hidden};
    lay_out(&arena, &f);
    void *memory = arena.base = arena.overflow ? NULL : mha__alloc(f.ctx, arena.used);
    if (!memory) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the fit of a router");
    arena.used = 0;
    lay_out(&arena, &f);
    mha_status status = mha__router_allocate(model, &r, err);
    if (status == MHA_OK) status = mha__router_allocate(model, &same, err);
    if (status == MHA_OK) status = run(&f, &o, r, same, err);
    if (status == MHA_OK && fixed) *fixed = same;
    if (status == MHA_OK) *out = r;
    if (status != MHA_OK || !fixed) mha_router_free(same);
    if (status != MHA_OK) mha_router_free(r);
    mha__free(f.ctx, memory);
    return status;
}
