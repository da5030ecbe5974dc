/* weight_composition.c - computes how much heads read of what earlier heads write. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "circuits/weights/weight_circuits.h"
#include <math.h>

static void lay_out(mha__arena *arena, const mha_weight_circuits *c, int64_t hidden, mha__composition *to)
{
    const size_t all = (size_t)(c->layers * c->heads), head = (size_t)(c->head_dim * hidden);
    to->norm_qk = mha__take(arena, all, sizeof *to->norm_qk);
    to->norm_ov = mha__take(arena, all, sizeof *to->norm_ov);
    if (!mha__circuit_composes(c)) return;
    to->written = mha__take(arena, (size_t)c->heads, head * sizeof *to->written);
    for (int k = 0; k < MHA__COMPOSITIONS; k++)
        if (c->composition[k]) to->read[k] = mha__take(arena, (size_t)c->heads, head * sizeof *to->read[k]);
    to->sender = mha__take(arena, (size_t)c->layers, sizeof(mha_linear *));
    const size_t wide = (size_t)(c->heads * c->head_dim);
    to->product = mha__take(arena, wide, wide * sizeof *to->product);
}

mha_status mha__composition_create(const mha_model *m, const mha_weight_circuits *c, mha__composition *to,
                                   mha_error *err)
{
    mha__arena arena = {0};
    lay_out(&arena, c, m->config.hidden, to);
    arena.base = arena.overflow ? NULL : mha__calloc(m->ctx, 1, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the circuits of a model");
    arena.used = 0;
    lay_out(&arena, c, m->config.hidden, to);
    return MHA_OK;
}

void mha__composition_free(const mha_model *m, const mha_weight_circuits *c, mha__composition *composition)
{
    for (int64_t l = 0; composition->sender && l < c->layers; l++)
        mha_linear_free(composition->sender[l]);
    mha__free(m->ctx, composition->norm_qk); /* the first array of the arena */
}

/* Returns the Frobenius norm of a block [D, D] of a matrix with this row stride. */
static double norm_of(int64_t D, const float *block, int64_t stride)
{
    double sum = 0;
    for (int64_t r = 0; r < D; r++)
        for (int64_t i = 0; i < D; i++)
            sum += (double)block[r * stride + i] * (double)block[r * stride + i];
    return sqrt(sum);
}

/* Computes the composition of the heads of layer `from` with those of layer `to`. */
static mha_status compose(mha_weight_circuits *c, const mha__composition *p, int kind, int64_t from, int64_t to,
                          mha_error *err)
{
    const int64_t D = c->head_dim, H = c->heads, senders = c->layer_heads[from], receivers = c->layer_heads[to];
    const double *own = kind == MHA_CIRCUIT_COMPOSE_V - MHA_CIRCUIT_COMPOSE_Q ? p->norm_ov : p->norm_qk;
    MHA__TRY(mha_linear_forward(p->sender[from], p->read[kind], receivers * D, p->product, err));
    for (int64_t n = 0; n < senders * receivers; n++) {
        const int64_t s = n % senders, t = n / senders;
        const double size = own[to * H + t] * p->norm_ov[from * H + s];
        const double both = norm_of(D, p->product + (t * D * senders + s) * D, senders * D);
        c->composition[kind][(from * H + s) * c->layers * H + to * H + t] = size > 0 ? both / size : NAN;
    }
    return MHA_OK;
}

mha_status mha__composition_layer(const mha_model *m, mha_weight_circuits *c, mha__composition *p, int64_t layer,
                                  mha_error *err)
{
    for (int k = 0; k < MHA__COMPOSITIONS; k++)
        for (int64_t from = 0; c->composition[k] && from < layer; from++)
            MHA__TRY(compose(c, p, k, from, layer, err));
    const int64_t rows = c->layer_heads[layer] * c->head_dim;
    return mha_linear_create(m->ctx, m->config.hidden, rows, p->written, NULL, &p->sender[layer], err);
}
