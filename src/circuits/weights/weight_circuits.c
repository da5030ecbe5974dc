/* weight_circuits.c - returns the results of mha_weight_circuits_measure. */
#include "circuits/weights/weight_circuits.h"

#include "base/ctx.h"
#include <math.h>

static const char *const texts[][2] = {
#define TEXT(name, key, text) [name] = {key, text},
    MHA_CIRCUIT_MAP(TEXT)
#undef TEXT
};

const char *mha_circuit_key(mha_circuit_kind what)
{
    return (unsigned)what < MHA_CIRCUITS ? texts[what][0] : NULL;
}

const char *mha_circuit_help(mha_circuit_kind what)
{
    return (unsigned)what < MHA_CIRCUITS ? texts[what][1] : NULL;
}

void mha_weight_circuits_free(mha_weight_circuits *c)
{
    if (!c) return;
    mha__free(c->ctx, c->memory);
    mha__free(c->ctx, c);
}

/* Returns the index of a head; -1 if it does not exist. */
static int64_t number_of(const mha_weight_circuits *c, int64_t layer, int64_t head)
{
    const bool there = layer >= 0 && layer < c->layers && head >= 0 && head < c->layer_heads[layer];
    return there ? layer * c->heads + head : -1;
}

static double value_of(const mha_weight_circuits *c, const double *values, int64_t layer, int64_t head)
{
    const int64_t n = c ? number_of(c, layer, head) : -1;
    return n >= 0 && values ? values[n] : NAN;
}

const char *mha_weight_circuits_reason(const mha_weight_circuits *c, mha_circuit_kind what)
{
    return c && (unsigned)what < MHA_CIRCUITS ? c->reason[what] : NULL;
}

const double *mha_weight_circuits_singular(const mha_weight_circuits *c, mha_circuit_kind what, int64_t layer,
                                           int64_t head, int64_t *count)
{
    const int64_t n = c && (unsigned)what <= MHA_CIRCUIT_OV && c->singular[what] ? number_of(c, layer, head) : -1;
    if (count) *count = n >= 0 ? c->head_dim : 0;
    return n >= 0 ? c->singular[what] + n * c->head_dim : NULL;
}

double mha_weight_circuits_directions(const mha_weight_circuits *c, mha_circuit_kind what, int64_t layer, int64_t head)
{
    int64_t count;
    const double *s = mha_weight_circuits_singular(c, what, layer, head, &count);
    double squares = 0, fourth = 0;
    for (int64_t i = 0; i < count && s[0] > 0; i++) {
        const double square = (s[i] / s[0]) * (s[i] / s[0]);
        squares += square;
        fourth += square * square;
    }
    return fourth > 0 ? squares * squares / fourth : NAN;
}

double mha_weight_circuits_copying(const mha_weight_circuits *c, int64_t layer, int64_t head, int centred)
{
    return c ? value_of(c, centred ? c->centred : c->copying, layer, head) : NAN;
}

double mha_weight_circuits_trace(const mha_weight_circuits *c, int64_t layer, int64_t head)
{
    return c ? value_of(c, c->trace, layer, head) : NAN;
}

double mha_weight_circuits_composition(const mha_weight_circuits *c, mha_circuit_kind what, int64_t sender_layer,
                                       int64_t sender_head, int64_t layer, int64_t head)
{
    if (!c || what < MHA_CIRCUIT_COMPOSE_Q || what >= MHA_CIRCUITS) return NAN;
    const double *values = c->composition[what - MHA_CIRCUIT_COMPOSE_Q];
    const int64_t s = number_of(c, sender_layer, sender_head), t = number_of(c, layer, head);
    return values && s >= 0 && t >= 0 ? values[s * c->layers * c->heads + t] : NAN;
}

double mha_weight_circuits_baseline(const mha_weight_circuits *c)
{
    return c ? c->baseline : NAN;
}
