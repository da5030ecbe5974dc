/* weight_composition.c - computes how much heads read of what earlier heads write. */
#include <math.h>
#include <string.h>

#include "base/ctx.h"
#include "base/error.h"
#include "circuits/weight_circuits.h"
#include "layer/arena.h"
#include "math/linalg.h"

static void lay_out(mha__arena *arena, const mha_weight_circuits *c, int64_t hidden, mha__composition *to)
{
    const size_t all = (size_t)(c->layers * c->heads), head = (size_t)(c->head_dim * hidden);
    to->norm_qk = mha__take(arena, all, sizeof *to->norm_qk);
    to->norm_ov = mha__take(arena, all, sizeof *to->norm_ov);
    if (!mha__circuit_composes(c)) return;
    to->written = mha__take(arena, all, head * sizeof *to->written);
    for (int k = 0; k < MHA__COMPOSITIONS; k++)
        if (c->composition[k]) to->read[k] = mha__take(arena, (size_t)c->heads, head * sizeof *to->read[k]);
    to->product = mha__take(arena, (size_t)c->heads, (size_t)(c->head_dim * c->head_dim) * sizeof *to->product);
}

mha_status mha__composition_create(const mha_model *m, const mha_weight_circuits *c, mha__composition *to,
                                   mha_error *err)
{
    mha__arena arena = {0};
    lay_out(&arena, c, m->config.hidden, to);
    arena.base = arena.overflow ? NULL : mha__alloc(m->ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the circuits of a model");
    arena.used = 0;
    lay_out(&arena, c, m->config.hidden, to);
    return MHA_OK;
}

void mha__composition_free(const mha_model *m, mha__composition *composition)
{
    mha__free(m->ctx, composition->norm_qk); /* the first array of the arena */
}

/* Returns the Frobenius norm of a block [D, D] of a matrix with this row stride. */
static double norm_of(int64_t D, const double *block, int64_t stride)
{
    double sum = 0;
    for (int64_t r = 0; r < D; r++)
        sum += mha__dot(D, block + r * stride, block + r * stride);
    return sqrt(sum);
}

/* Computes the composition of the heads of layer `from` with one head, whose number is t. */
static mha_status compose(const mha_model *m, mha_weight_circuits *c, const mha__composition *p, int kind, int64_t from,
                          int64_t t, mha_error *err)
{
    const int64_t D = c->head_dim, E = m->config.hidden, heads = c->layer_heads[from], first = from * c->heads;
    const mha__columns read = {p->read[kind] + t % c->heads * D * E, 1, E, D};
    const mha__columns written = {p->written + first * D * E, 1, E, heads * D};
    const double own = kind == MHA_CIRCUIT_COMPOSE_V - MHA_CIRCUIT_COMPOSE_Q ? p->norm_ov[t] : p->norm_qk[t];
    memset(p->product, 0, (size_t)(heads * D * D) * sizeof *p->product);
    MHA__TRY(mha__gram_cross(m->ctx, E, &read, &written, p->product, err));
    for (int64_t h = 0; h < heads; h++) {
        const double size = own * p->norm_ov[first + h], both = norm_of(D, p->product + h * D, heads * D);
        c->composition[kind][(first + h) * c->layers * c->heads + t] = size > 0 ? both / size : NAN;
    }
    return MHA_OK;
}

mha_status mha__composition_layer(const mha_model *m, mha_weight_circuits *c, const mha__composition *p, int64_t layer,
                                  mha_error *err)
{
    for (int k = 0; k < MHA__COMPOSITIONS; k++)
        for (int64_t from = 0; c->composition[k] && from < layer; from++)
            for (int64_t h = 0; h < c->layer_heads[layer]; h++)
                MHA__TRY(compose(m, c, p, k, from, layer * c->heads + h, err));
    return MHA_OK;
}
