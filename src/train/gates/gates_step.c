/* gates_step.c - samples the gates of a step, updates them with Adam under a penalty, controls the head count, and
 * freezes the gates. */
#include "base/error.h"
#include "math/rng_draws.h"
#include "train/gates/trainer_gates.h"
#include "train/trainer_struct.h"
#include <math.h>
#include <string.h>

static const double FROZEN_OPEN = 32; /* log-alpha of a gate frozen open; the negative is log-alpha of a gate frozen
                                        * closed */
/* range of log-alpha during training: a gate at either limit can still change */
static const double LOG_ALPHA_MIN = -6, LOG_ALPHA_MAX = 4;
static const double OPEN_MIN = 0.01; /* minimum of an L1 gate frozen open; a gate frozen closed is 0 */

/* ---- penalty strength ---- */

static double penalty(const mha__gates *g)
{
    double sum = 0;
    for (int64_t at = 0; at < g->layers * g->heads; at++)
        if (mha__gates_has(g, at)) sum += g->o.penalty == MHA_GATES_L0 ? mha__gate_open(g->value[at]) : g->value[at];
    return sum;
}

/* Returns the fraction of the ramp that is completed at a step, from 0 to 1. */
static double share(const mha__gates *g, int64_t step)
{
    return g->o.ramp ? fmin(1, (double)(step - g->o.start) / (double)g->o.ramp) : 1;
}

/* Returns the target number of open gates at a step. */
static double target_of(const mha__gates *g, int64_t step)
{
    return (double)g->total + share(g, step) * (double)(g->o.heads - g->total);
}

/* Returns the penalty strength of a step. If there is a target head count, a proportional-integral controller sets the
 * logarithm of the strength, because suitable strengths span several powers of ten. */
static double find_strength(mha__gates *g, int64_t step, double open)
{
    static const double now = 2, from_now_on = 0.05, weakest = 1e-8, strongest = 1e3;
    if (!g->o.heads) return g->o.strength * share(g, step);
    const double beyond = open - target_of(g, step);
    double *base = &g->control[MHA__GATES_BASE];
    const double strength = exp(*base + now * beyond);
    *base = fmin(fmax(*base + from_now_on * beyond, log(weakest)), log(strongest));
    return fmin(strength, strongest);
}

/* ---- one step ---- */

/* Returns true if gates are trained at a step. L1 gates that are frozen open are still trained, so that they recover
 * from the penalty. */
static bool learns(const mha__gates *g, int64_t step)
{
    return step > g->o.start && (!mha__gates_settled(g) || g->o.penalty == MHA_GATES_L1);
}

static bool is_closed(const mha__gates *g, int64_t at)
{
    return mha__gates_settled(g) && g->value[at] == 0;
}

mha_status mha__gates_begin(mha_trainer *t, mha_error *err)
{
    mha__gates *g = t->gates;
    g->sampled = 0;
    memset(g->gradient, 0, (size_t)(g->layers * g->heads) * sizeof *g->gradient);
    return mha__gates_lift(t, err);
}

/* Returns one of 2^32 evenly spaced values in the open interval (0, 1). */
static double uniform(uint64_t key, int64_t sequence, int64_t layer, int64_t head)
{
    const uint64_t n = (uint64_t)sequence;
    const uint32_t x = mha__philox(key, (uint32_t)n, (uint32_t)(n >> 32), (uint32_t)layer, (uint32_t)head);
    return ((double)x + 0.5) * 0x1p-32;
}

/* Returns a sample of one gate. Sets *slope to its derivative with respect to `value`; for priced gates, with respect
 * to u. */
static double sample(const mha__gates *g, int64_t at, bool moves, uint64_t key, int64_t sequence, double *slope)
{
    *slope = moves ? 1 : 0;
    if (!moves) return (double)g->shown[at];
    if (g->o.penalty == MHA_GATES_L1) return g->value[at];
    const double u = uniform(key, sequence, at / g->heads, at % g->heads),
                 gate = mha__gate_sampled(g->value[at], u, slope);
    if (mha__gates_priced(g)) *slope /= u * (1 - u); /* derivative with respect to u, not log-alpha */
    return gate;
}

void mha__gates_draw(mha_trainer *t, int64_t batch, float *gates, float *slopes)
{
    mha__gates *g = t->gates;
    const uint64_t key = mha__splitmix_at(t->o.seed, (uint64_t)t->step + 1);
    const bool moves = learns(g, t->step + 1);
    for (int64_t n = 0; n < g->layers * batch * g->heads; n++) {
        const int64_t at = n / (batch * g->heads) * g->heads + n % g->heads;
        double slope = 0;
        gates[n] =
            mha__gates_has(g, at) ? (float)sample(g, at, moves, key, g->sampled + n / g->heads % batch, &slope) : 0;
        slopes[n] = (float)slope;
    }
    g->sampled += batch;
}

mha_status mha__gates_check(const mha_trainer *t, mha_error *err)
{
    const mha__gates *g = t->gates;
    for (int64_t at = 0; at < g->layers * g->heads; at++)
        if (!isfinite(g->gradient[at]))
            return mha__fail(err, MHA_ERR_NOT_FINITE,
                             "step %lld: the gradient of the gate of head %lld.%lld must be finite",
                             (long long)t->step + 1, (long long)(at / g->heads), (long long)(at % g->heads));
    return MHA_OK;
}

/* Returns the derivative of strength times penalty with respect to the gate's value. */
static double pull(const mha__gates *g, double strength, double value)
{
    const double open = mha__gate_open(value);
    return strength * (g->o.penalty == MHA_GATES_L0 ? open * (1 - open) : 1);
}

static void move(const mha_trainer *t, mha__gates *g, double scale, double strength)
{
    const mha_train_options *o = &t->o;
    const double taken = g->control[MHA__GATES_TAKEN];
    const double bias1 = 1 - pow(o->beta1, taken), bias2 = 1 - pow(o->beta2, taken);
    for (int64_t at = 0; at < g->layers * g->heads; at++) {
        if (!mha__gates_has(g, at) || is_closed(g, at)) continue;
        double *value = &g->value[at], *mean = &g->mean[at], *square = &g->square[at];
        const double x = g->gradient[at] * scale + pull(g, strength, *value);
        *mean += (1 - o->beta1) * (x - *mean);
        *square = o->beta2 * *square + (1 - o->beta2) * x * x;
        *value -= g->o.rate * (*mean / bias1) / (sqrt(*square / bias2) + o->eps);
        *value = g->o.penalty == MHA_GATES_L1 ? fmax(*value, mha__gates_settled(g) ? OPEN_MIN : 0)
                                              : fmin(fmax(*value, LOG_ALPHA_MIN), LOG_ALPHA_MAX);
    }
}

/* ---- freezing ---- */

/* Returns true if gate a is kept in preference to gate b: if it has the larger value. On ties, which are frequent at
 * the limits of the range, the gate with the lower mean gradient is kept. */
static bool is_better(const mha__gates *g, int64_t a, int64_t b)
{
    return g->value[a] > g->value[b] || (g->value[a] == g->value[b] && g->mean[a] < g->mean[b]);
}

/* Returns the best head in a layer (-1 = in all layers) that is not chosen yet; on ties, the first of them. */
static int64_t best(const mha__gates *g, int64_t layer, const float *chosen)
{
    int64_t found = -1;
    for (int64_t at = 0; at < g->layers * g->heads; at++)
        if (mha__gates_has(g, at) && (layer < 0 || at / g->heads == layer) && chosen[at] == 0 &&
            (found < 0 || is_better(g, at, found)))
            found = at;
    return found;
}

static bool stays(const mha__gates *g, int64_t at, int64_t chosen)
{
    if (g->o.heads) return chosen < g->o.heads;
    return g->o.penalty == MHA_GATES_L0 ? g->value[at] >= 0 : g->value[at] > 0;
}

static double settled_value(const mha__gates *g, double value, bool open)
{
    if (g->o.penalty == MHA_GATES_L0) return open ? FROZEN_OPEN : -FROZEN_OPEN;
    return open ? fmax(value, OPEN_MIN) : 0;
}

/* Freezes the gates and resets the moments of Adam, which include gradients of the penalty. */
static void settle(mha__gates *g)
{
    const size_t cells = (size_t)(g->layers * g->heads);
    int64_t chosen = 0;
    memset(g->chosen, 0, cells * sizeof *g->chosen);
    for (int64_t l = 0; l < g->layers; l++, chosen++)
        g->chosen[best(g, l, g->chosen)] = 1;
    for (int64_t at; (at = best(g, -1, g->chosen)) >= 0 && stays(g, at, chosen); chosen++)
        g->chosen[at] = 1;
    for (int64_t at = 0; at < g->layers * g->heads; at++)
        if (mha__gates_has(g, at)) g->value[at] = settled_value(g, g->value[at], g->chosen[at] != 0);
    memset(g->mean, 0, cells * sizeof *g->mean);
    memset(g->square, 0, cells * sizeof *g->square);
    g->control[MHA__GATES_TAKEN] = 0;
    g->control[MHA__GATES_SETTLED] = 1;
}

void mha__gates_update(mha_trainer *t, double scale, mha_train_report *report)
{
    mha__gates *g = t->gates;
    const bool moves = learns(g, t->step);
    if (moves) g->control[MHA__GATES_TAKEN]++;
    report->open = mha__gates_expected(g);
    if (moves && mha__gates_priced(g)) {
        report->penalty = mha__gates_move_priced(g, target_of(g, t->step), scale) * report->open;
    } else if (moves) {
        const double strength = mha__gates_settled(g) ? 0 : find_strength(g, t->step, report->open);
        report->penalty = strength * penalty(g);
        move(t, g, scale, strength);
    }
    if (g->o.end && t->step >= g->o.end && !mha__gates_settled(g)) settle(g);
}
