/* trainer_gates.c - creates the gates of a trainer, checks their options and state, and multiplies them into the model
 * or removes them. */
#include "train/gates/trainer_gates.h"

#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "train/trainer_struct.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define RAW "gates.raw."

/* ---- options ---- */

static mha_status bad(const char *field, double value, const char *range, mha_error *err)
{
    return mha__fail(err, MHA_ERR_ARG, "mha_train_options: gates.%s must be %s (got %g)", field, range, value);
}

static mha_status check_numbers(const mha_train_gates *o, mha_error *err)
{
    if (!(o->strength > 0 && o->strength <= 1e3)) return bad("strength", o->strength, "in (0, 1000]", err);
    if (!(o->rate > 0 && o->rate <= 1e3)) return bad("rate", o->rate, "in (0, 1000]", err);
    if (!(o->initial >= -6 && o->initial <= 4)) return bad("initial", o->initial, "in [-6, 4]", err);
    if (o->penalty == MHA_GATES_L1 && o->initial < 0) return bad("initial", o->initial, "above 0", err);
    return MHA_OK;
}

mha_status mha__gates_options(mha_train_gates *o, mha_error *err)
{
    static const mha_train_gates none = {0};
    if (o->penalty < MHA_GATES_NONE || o->penalty > MHA_GATES_L1)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_train_options: gates.penalty must be a value of mha_gates_penalty (got %d)",
                         (int)o->penalty);
    if (o->penalty == MHA_GATES_NONE)
        return o->strength == none.strength && o->rate == none.rate && o->initial == none.initial && !o->start &&
                       !o->ramp && !o->end && !o->heads && !o->only && !o->first
                   ? MHA_OK
                   : mha__fail(err, MHA_ERR_ARG,
                               "mha_train_options: gates.penalty must be set if other fields of gates are set");
    if (o->start < 0 || o->ramp < 0 || (o->end && o->end <= o->start))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_train_options: gates.start and gates.ramp must be at least 0, and gates.end must be 0 or "
                         "above gates.start "
                         "(got %lld, %lld, %lld)",
                         (long long)o->start, (long long)o->ramp, (long long)o->end);
    if (o->first && (o->only || !o->end))
        return mha__fail(err, MHA_ERR_ARG, "mha_train_options: gates.first must be 0 %s gates.%s",
                         o->only ? "with" : "without", o->only ? "only" : "end");
    if (o->penalty == MHA_GATES_L0 && o->heads && (o->strength != 0 || o->rate != 0))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_train_options: gates.%s must be 0 for L0 gates with a target head count (got %g)",
                         o->rate != 0 ? "rate" : "strength", o->rate != 0 ? o->rate : o->strength);
    if (o->strength == 0) o->strength = 0.01;
    if (o->rate == 0) o->rate = 0.1;
    if (o->initial == 0) o->initial = o->penalty == MHA_GATES_L1 ? 1 : 2.5;
    if (o->ramp == 0 && o->end) o->ramp = (o->end - o->start) * (o->penalty == MHA_GATES_L0 && o->heads ? 8 : 5) / 10;
    return check_numbers(o, err);
}

/* ---- creation ---- */

/* Adds a tensor to the state and returns its data; NULL in the pass that only measures the arena. */
static void *add_state(mha__arena *arena, mha__gates *g, const char *name, mha_named_tensor shape)
{
    size_t count = 1;
    for (int d = 0; d < shape.rank; d++)
        count *= (size_t)shape.shape[d];
    shape.name = name;
    shape.data = mha__take(arena, count, mha_dtype_size(shape.dtype));
    if (g->state) g->state[g->state_count] = shape;
    g->state_count++;
    return shape.data;
}

static void add_layer(mha__arena *arena, const mha_trainer *t, mha__gates *g, int64_t parameter)
{
    const mha__parameter *p = &t->parameter[parameter];
    const mha_named_tensor *weight = &t->list[parameter];
    const mha__config *config = &t->model->config;
    const bool transposed = config->family->parts[p->role].kind == MHA__PART_CONV1D;
    const size_t bytes = sizeof RAW + strlen(weight->name);
    char *name = mha__take(arena, 1, bytes);
    mha_named_tensor shape = *weight;
    float *raw = add_state(arena, g, name, shape);
    if (!name) return;
    snprintf(name, bytes, RAW "%s", weight->name);
    memcpy(raw, weight->data, (size_t)p->count * sizeof *raw);
    g->layer[p->layer] = (mha__gated){.raw = raw,
                                      .heads = config->layer_heads[p->layer],
                                      .parameter = parameter,
                                      .outer = transposed ? 1 : config->hidden,
                                      .inner = (config->family->latent ? config->value_width : config->head_dim) *
                                               (transposed ? config->hidden : 1)};
}

static void take_all(mha__arena *arena, const mha_trainer *t, mha__gates *g)
{
    const size_t cells = (size_t)(g->layers * g->heads), layers = (size_t)g->layers;
    const mha_named_tensor each = {.dtype = MHA_F64, .rank = 2, .shape = {g->layers, g->heads}};
    const mha_named_tensor control = {.dtype = MHA_F64, .rank = 1, .shape = {MHA__GATES_CONTROL}};
    g->gradient = mha__take(arena, cells, sizeof *g->gradient);
    g->chosen = mha__take(arena, cells, sizeof *g->chosen);
    g->shown = mha__take(arena, cells, sizeof *g->shown);
    g->layer = mha__take(arena, layers, sizeof *g->layer);
    g->state = mha__take(arena, layers + 4, sizeof *g->state);
    g->state_count = 0;
    g->value = add_state(arena, g, "gates.value", each);
    g->mean = add_state(arena, g, "gates.mean", each);
    g->square = add_state(arena, g, "gates.square", each);
    g->control = add_state(arena, g, "gates.control", control);
    for (int64_t n = 0; n < t->count; n++)
        if (t->parameter[n].role == MHA__ATTN_OUT && t->list[n].rank == 2) add_layer(arena, t, g, n);
}

static void open_gates(mha__gates *g)
{
    for (int64_t l = 0; l < g->layers; l++)
        for (int64_t h = 0; h < g->layer[l].heads; h++) {
            g->value[l * g->heads + h] = g->o.initial;
            g->shown[l * g->heads + h] = 1;
            g->total++;
        }
    g->control[MHA__GATES_BASE] = log(g->o.strength);
}

static mha_status check_target(const mha__gates *g, mha_error *err)
{
    if (g->o.heads == 0 || (g->o.heads >= g->layers && g->o.heads <= g->total)) return MHA_OK;
    return mha__fail(
        err, MHA_ERR_ARG,
        "mha_train_options: gates.heads must be from %lld (one per layer) to %lld (all heads of the model) (got %lld)",
        (long long)g->layers, (long long)g->total, (long long)g->o.heads);
}

mha_status mha__gates_create(mha_trainer *t, mha_error *err)
{
    mha__arena arena = {0};
    mha__gates *g = mha__calloc(t->ctx, 1, sizeof *g);
    if (!g) return mha__no_memory(err, sizeof *g, "gates");
    t->gates = g;
    g->o = t->o.gates;
    g->layers = t->model->config.layers;
    g->heads = t->model->config.heads;
    take_all(&arena, t, g);
    arena.base = g->memory = arena.overflow ? NULL : mha__calloc(t->ctx, 1, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "gates");
    arena.used = 0;
    take_all(&arena, t, g);
    open_gates(g);
    return check_target(g, err);
}

mha_status mha__gates_resume(mha_trainer *t, mha_error *err)
{
    mha__gates *g = t->gates;
    bool good = true;
    for (int64_t at = 0; at < g->layers * g->heads; at++)
        good &= isfinite(g->value[at]) && isfinite(g->mean[at]) && isfinite(g->square[at]) && g->square[at] >= 0;
    for (int n = 0; n < MHA__GATES_CONTROL; n++)
        good &= isfinite(g->control[n]) != 0;
    good &= g->control[MHA__GATES_TAKEN] >= 0;
    if (!good)
        return mha__fail(err, MHA_ERR_FORMAT,
                         "the state of the gates must be finite, and its squares and steps must be at least 0");
    mha__gates_show(g);
    return MHA_OK;
}

/* ---- multiplying gates into the model, and removing them ---- */

/* Multiplies weights by a gate. If the gate is 0, the products are +0, also for negative weights. */
static void multiply(const float *from, float gate, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = gate != 0 ? gate * from[i] : 0;
}

static void show_layer(const mha__gated *l, const float *gates, float *to)
{
    for (int64_t o = 0; o < l->outer; o++)
        for (int64_t h = 0; h < l->heads; h++) {
            const int64_t at = (o * l->heads + h) * l->inner;
            multiply(l->raw + at, gates[h], l->inner, to + at);
        }
}

static size_t bytes_of(const mha_trainer *t, const mha__gated *l)
{
    return (size_t)t->parameter[l->parameter].count * sizeof(float);
}

mha_status mha__gates_lift(mha_trainer *t, mha_error *err)
{
    mha__gates *g = t->gates;
    g->lifted = true;
    if (!mha__gates_begun(g)) return MHA_OK; /* the model still contains the trained projections */
    for (int64_t n = 0; n < g->layers; n++)
        memcpy(t->list[g->layer[n].parameter].data, g->layer[n].raw, bytes_of(t, &g->layer[n]));
    return mha__trainer_refresh(t, err);
}

void mha__gates_end(mha_trainer *t)
{
    mha__gates *g = t->gates;
    mha__gates_show(g);
    for (int64_t n = 0; n < g->layers; n++) {
        const mha__gated *l = &g->layer[n];
        float *weight = t->list[l->parameter].data;
        if (g->lifted) memcpy(l->raw, weight, bytes_of(t, l));
        show_layer(l, g->shown + n * g->heads, weight);
    }
    g->lifted = false;
}

int64_t mha_trainer_gates(const mha_trainer *t, float *gates, double *expected)
{
    int64_t open = 0;
    if (!t) return 0;
    const mha__config *c = &t->model->config;
    for (int64_t l = 0; l < c->layers; l++)
        for (int64_t h = 0; h < c->heads; h++) {
            const int64_t at = l * c->heads + h;
            const float gate = h >= c->layer_heads[l] ? 0 : t->gates ? t->gates->shown[at] : 1;
            if (gates) gates[at] = gate;
            open += gate != 0;
        }
    if (expected) *expected = t->gates ? mha__gates_expected(t->gates) : (double)open;
    return open;
}
