/* weight_measure.c - measures the circuits of all heads, layer by layer.
 *
 * X = (X B^T) B for each of Q, K, V and O, where the rows of B are an orthonormal basis of the rows of X. The norms and
 * singular values of W_QK and W_OV are then those of products of the D x D matrices X B^T. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "circuits/weights/weight_circuits.h"
#include "math/linalg.h"
#include <math.h>
#include <string.h>

typedef struct job {
    const mha_model *model;
    mha_weight_circuits *to;
    bool folded;
    mha__circuit_layer layer;
    mha__copying copying;
    mha__composition composition;
    double *scratch; /* [threads, room] */
    int64_t room;
    double *cos, *sin; /* [R / 2] the rotation by one position; NULL = the layer does not rotate */
    const mha_rope_options *rope;
    uint8_t *failed; /* [heads] 1 = weights that are not finite */
} job;

/* Scratch of one head. */
typedef struct head {
    double *rows[4], *basis; /* [D, E] per mha__projection, and an orthonormal basis of one of them */
    double *inner[4];        /* [D, D] row i: products of row i of the basis with the rows of the projection */
    double *turned, *matrix; /* [D, D] */
    double *room;            /* of mha__copying_score */
} head;

static head head_of(const job *j, int worker)
{
    const int64_t D = j->to->head_dim, E = j->model->config.hidden;
    double *at = j->scratch + worker * j->room;
    head h;
    for (int i = 0; i < 4; i++, at += D * E)
        h.rows[i] = at;
    h.basis = at;
    at += D * E;
    for (int i = 0; i < 4; i++, at += D * D)
        h.inner[i] = at;
    h.turned = at;
    h.matrix = at + D * D;
    h.room = at + 2 * D * D;
    return h;
}

static int64_t room_of(const mha_weight_circuits *c, int64_t hidden)
{
    return 5 * c->head_dim * hidden + 6 * c->head_dim * c->head_dim + mha__copying_room(c, hidden);
}

/* ---- one head ---- */

static void find_inner(const job *j, const head *h, int which)
{
    const int64_t D = j->to->head_dim, E = j->model->config.hidden;
    memcpy(h->basis, h->rows[which], (size_t)(D * E) * sizeof *h->basis);
    mha__orthonormal_rows(D, E, h->basis);
    for (int64_t i = 0; i < D; i++)
        for (int64_t r = 0; r < D; r++)
            h->inner[which][i * D + r] = mha__dot(E, h->basis + i * E, h->rows[which] + r * E);
}

/* Computes the singular values of a^T b, of which a and b have the inner products in rows. Returns its norm; NAN if it
 * is not finite. */
static double find_singular(const job *j, const head *h, const double *a, const double *b, double *values)
{
    const int64_t D = j->to->head_dim;
    double sum = 0;
    for (int64_t r = 0; r < D; r++)
        for (int64_t c = 0; c < D; c++) {
            const double x = mha__dot(D, a + r * D, b + c * D);
            h->matrix[r * D + c] = x;
            sum += x * x;
        }
    if (values && !mha__singular_values(D, D, h->matrix, values)) return NAN;
    return sqrt(sum);
}

/* Rotates the rows of the keys by one position backward. */
static void turn_keys(const job *j, const head *h)
{
    const int64_t D = j->to->head_dim, half = (j->rope->rotary_dim ? j->rope->rotary_dim : D) / 2;
    memcpy(h->turned, h->inner[MHA__OF_K], (size_t)(D * D) * sizeof *h->turned);
    for (int64_t r = 0; j->cos && r < D; r++)
        for (int64_t i = 0; i < half; i++) {
            double *x = h->turned + r * D + (j->rope->interleaved ? 2 * i : i),
                   *y = x + (j->rope->interleaved ? 1 : half);
            const double a = *x, b = *y;
            *x = a * j->cos[i] + b * j->sin[i];
            *y = b * j->cos[i] - a * j->sin[i];
        }
}

/* Writes what a head writes or reads: to [D, E] = inner x, in f32. */
static void project(const job *j, const double *inner, const double *x, double *room, float *to)
{
    const int64_t D = j->to->head_dim, E = j->model->config.hidden;
    for (int64_t r = 0; r < D; r++) {
        memset(room, 0, (size_t)E * sizeof *room);
        for (int64_t k = 0; k < D; k++)
            for (int64_t e = 0; e < E; e++)
                room[e] += inner[r * D + k] * x[k * E + e];
        for (int64_t e = 0; e < E; e++)
            to[r * E + e] = (float)room[e];
    }
}

static void find_composition(const job *j, const head *h, int64_t n)
{
    static const mha__projection inner[] = {MHA__OF_K, MHA__OF_Q, MHA__OF_O},
                                 rows[] = {MHA__OF_Q, MHA__OF_K, MHA__OF_V};
    const int64_t size = j->to->head_dim * j->model->config.hidden;
    const mha__composition *p = &j->composition;
    const int64_t at = n % j->to->heads * size;
    project(j, h->inner[MHA__OF_V], h->rows[MHA__OF_O], h->basis, p->written + at);
    for (int k = 0; k < MHA__COMPOSITIONS; k++)
        if (p->read[k]) project(j, h->inner[inner[k]], h->rows[rows[k]], h->basis, p->read[k] + at);
}

static double *values_of(const mha_weight_circuits *c, mha_circuit_kind what, int64_t n)
{
    return c->singular[what] ? c->singular[what] + n * c->head_dim : NULL;
}

/* Measures one head of the current layer. */
static void measure_head(void *arg, int64_t number, int worker)
{
    job *j = arg;
    mha_weight_circuits *c = j->to;
    const head h = head_of(j, worker);
    const int64_t n = j->layer.layer * c->heads + number;
    for (int which = MHA__OF_Q; which <= MHA__OF_O; which++) {
        mha__circuit_head(&j->layer, (mha__projection)which, number, h.rows[which]);
        find_inner(j, &h, which);
    }
    const double *q = h.inner[MHA__OF_Q], *k = h.inner[MHA__OF_K], *v = h.inner[MHA__OF_V], *o = h.inner[MHA__OF_O];
    double *previous = values_of(c, MHA_CIRCUIT_QK_PREVIOUS, n);
    const double qk = find_singular(j, &h, q, k, values_of(c, MHA_CIRCUIT_QK, n));
    const double ov = find_singular(j, &h, o, v, values_of(c, MHA_CIRCUIT_OV, n));
    j->composition.norm_qk[n] = qk;
    j->composition.norm_ov[n] = ov;
    bool finite = isfinite(qk) && isfinite(ov);
    if (previous && finite) {
        turn_keys(j, &h);
        finite = isfinite(find_singular(j, &h, q, h.turned, previous));
    }
    if (finite && c->copying)
        finite = mha__copying_score(c, &j->copying, j->model->config.hidden, n, h.rows[MHA__OF_V], h.rows[MHA__OF_O],
                                    h.room);
    if (finite && j->composition.written) find_composition(j, &h, n);
    j->failed[number] = !finite;
}

/* ---- all heads ---- */

static mha_status find_rotation(job *j, int64_t layer, mha_error *err)
{
    const mha__config *config = &j->model->config;
    const mha__layer_attention *a = &config->attention[layer];
    double gain;
    j->rope = a->local ? &config->local_rope : &config->rope;
    double *const room = j->scratch + mha__threads(j->model->ctx) * j->room;
    j->cos = a->turned ? room : NULL;
    j->sin = room + j->to->head_dim;
    if (!a->turned || !j->to->singular[MHA_CIRCUIT_QK_PREVIOUS]) return MHA_OK;
    MHA__TRY(mha_rope_frequencies(j->rope, 1, j->sin, &gain, err));
    const int64_t half = (j->rope->rotary_dim ? j->rope->rotary_dim : j->to->head_dim) / 2;
    for (int64_t i = 0; i < half; i++) {
        j->cos[i] = cos(j->sin[i]);
        j->sin[i] = sin(j->sin[i]);
    }
    return MHA_OK;
}

static mha_status measure_layer(job *j, int64_t layer, mha_error *err)
{
    const mha_model *m = j->model;
    const int64_t heads = j->to->layer_heads[layer];
    MHA__TRY(mha__circuit_layer_open(m, layer, j->folded, &j->layer, err));
    MHA__TRY(find_rotation(j, layer, err));
    mha__parallel(m->ctx, heads, measure_head, j);
    for (int64_t h = 0; h < heads; h++)
        if (j->failed[h])
            return mha__fail(err, MHA_ERR_ARG, "weights of head %lld.%lld must be finite and not too large",
                             (long long)layer, (long long)h);
    if (mha__circuit_composes(j->to)) MHA__TRY(mha__composition_layer(m, j->to, &j->composition, layer, err));
    return mha__progress(m->ctx, "circuits", layer + 1, j->to->layers, err);
}

static mha_status measure_layers(job *j, mha_error *err)
{
    mha_status status = MHA_OK;
    for (int64_t layer = 0; layer < j->to->layers && status == MHA_OK; layer++) {
        status = measure_layer(j, layer, err);
        mha__circuit_layer_close(&j->layer);
    }
    return status;
}

static mha_status run(job *j, mha_error *err)
{
    const mha_model *m = j->model;
    j->room = room_of(j->to, m->config.hidden);
    const size_t doubles = (size_t)(mha__threads(m->ctx) * j->room + 2 * j->to->head_dim);
    const size_t bytes = doubles * sizeof *j->scratch + (size_t)j->to->heads;
    MHA__TRY(mha__composition_create(m, j->to, &j->composition, err));
    if (j->to->copying) MHA__TRY(mha__copying_create(m, j->folded, &j->copying, err));
    j->scratch = mha__alloc(m->ctx, bytes);
    if (!j->scratch) return mha__no_memory(err, bytes, "the circuits of a head");
    j->failed = (uint8_t *)(j->scratch + doubles);
    return measure_layers(j, err);
}

/* ---- the result ---- */

static void lay_out(mha__arena *arena, mha_weight_circuits *c)
{
    const size_t all = (size_t)(c->layers * c->heads);
    c->layer_heads = mha__take(arena, (size_t)c->layers, sizeof *c->layer_heads);
    for (int i = 0; i <= MHA_CIRCUIT_OV; i++)
        if (mha__circuit_wanted(c, (mha_circuit_kind)i))
            c->singular[i] = mha__take(arena, all, (size_t)c->head_dim * sizeof(double));
    for (int i = 0; i < MHA__COMPOSITIONS; i++)
        if (mha__circuit_wanted(c, (mha_circuit_kind)(MHA_CIRCUIT_COMPOSE_Q + i)))
            c->composition[i] = mha__take(arena, all, all * sizeof(double));
    if (!mha__circuit_wanted(c, MHA_CIRCUIT_COPYING)) return;
    c->copying = mha__take(arena, all, sizeof *c->copying);
    c->centred = mha__take(arena, all, sizeof *c->centred);
    c->trace = mha__take(arena, all, sizeof *c->trace);
}

static mha_status create(const mha_model *m, mha_weight_circuits *c, mha_error *err)
{
    mha__arena arena = {0};
    lay_out(&arena, c);
    arena.base = c->memory = arena.overflow ? NULL : mha__calloc(m->ctx, 1, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the circuits of a model");
    arena.used = 0;
    lay_out(&arena, c);
    for (int64_t l = 0; l < c->layers; l++)
        c->layer_heads[l] = m->config.layer_heads[l];
    return MHA_OK;
}

/* Sets c->what from the options and from what the model supports. */
static mha_status choose(const mha_model *m, const mha_weight_circuits_options *o, mha_weight_circuits *c,
                         mha_error *err)
{
    const uint32_t all = (1u << MHA_CIRCUITS) - 1;
    if (o->what & ~all)
        return mha__fail(err, MHA_ERR_ARG, "what must be a combination of 1 << MHA_CIRCUIT_... (got %#x)", o->what);
    MHA__TRY(mha__circuit_support(m, !o->raw, c->reason, err));
    c->what = o->what ? o->what : all;
    for (int i = 0; i < MHA_CIRCUITS; i++) {
        if (!c->reason[i]) continue;
        if (o->what >> i & 1)
            return mha__fail(err, MHA_ERR_UNSUPPORTED, "circuit %s must not be requested for this %s model: %s",
                             mha_circuit_key((mha_circuit_kind)i), m->info.family, c->reason[i]);
        c->what &= ~(1u << i);
    }
    const mha_norm norm = mha__model_norm(&m->config, MHA__ATTN_NORM, &(mha_matrix){0});
    const bool centred = !o->raw && norm.kind == MHA_NORM_LAYER;
    c->baseline = 1 / sqrt((double)(m->config.hidden - (centred ? 1 : 0)));
    return MHA_OK;
}

mha_status mha_weight_circuits_measure(const mha_model *model, const mha_weight_circuits_options *options,
                                       mha_weight_circuits **out, mha_error *err)
{
    mha_weight_circuits_options o;
    if (!model || !out) return mha__fail(err, MHA_ERR_ARG, "%s must not be NULL", model ? "out" : "model");
    *out = NULL;
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_weight_circuits_options", err));
    mha_weight_circuits *c = mha__calloc(model->ctx, 1, sizeof *c);
    if (!c) return mha__no_memory(err, sizeof *c, "the circuits of a model");
    *c = (mha_weight_circuits){.ctx = model->ctx,
                               .layers = model->config.layers,
                               .heads = model->config.heads,
                               .head_dim = model->config.head_dim};
    job j = {.model = model, .to = c, .folded = !o.raw};
    mha_status status = choose(model, &o, c, err);
    if (status == MHA_OK) status = create(model, c, err);
    if (status == MHA_OK) status = run(&j, err);
    mha__free(model->ctx, j.scratch);
    mha__copying_free(model, &j.copying);
    mha__composition_free(model, c, &j.composition);
    if (status == MHA_OK)
        *out = c;
    else
        mha_weight_circuits_free(c);
    return status;
}
