/* importance_finish.c - computes scores, their confidence intervals, and the agreement of the two halves of the data
 * from sums over units. */
#include "base/ctx.h"
#include "base/error.h"
#include "heads/importance/importance.h"
#include "mha/mean_interval.h"
#include <math.h>

/* Returns the mean score of head n over all units (half -1) or over one half of the units; NAN for heads that a layer
 * lacks. */
static double mean_of(const mha__importance_job *s, int half, int64_t n)
{
    if (!mha__head_set_has(mha__head_set_at(&s->sets, n), n)) return NAN;
    return half < 0 ? mha__tally_mean(&s->tally, n) : mha__tally_half(&s->tally, half, n);
}

/* Returns the divisor of the scores [H] of a layer: their L2 norm, or 1 for scores that are not normalized. */
static double norm_of(const mha__importance_job *s, const double *layer, int64_t H)
{
    double sum = 0;
    if (s->rule->form != MHA__FORM_LAYER_L2) return 1;
    for (int64_t h = 0; h < H; h++)
        if (!isnan(layer[h])) sum += layer[h] * layer[h];
    return sum > 0 ? sqrt(sum) : 1;
}

/* Computes the scores `values` [total] from all units (half -1) or from one half of the units. */
static void find_values(const mha__importance_job *s, int half, double *values)
{
    for (int64_t n = 0; n < s->total; n++) {
        values[n] = mean_of(s, half, n);
        if (s->rule->form == MHA__FORM_ABS) values[n] = fabs(values[n]);
    }
    for (int64_t first = 0, H; first < s->total; first += H) {
        H = mha__head_set_at(&s->sets, first)->heads;
        const double norm = norm_of(s, values + first, H);
        for (int64_t h = 0; h < H; h++)
            values[first + h] /= norm;
    }
}

mha_status mha__importance_halves(const mha__importance_job *s, double *halves, mha_error *err)
{
    double *values = mha__alloc(s->ctx, 2 * (size_t)s->total * sizeof *values);
    if (!values)
        return mha__no_memory(err, 2 * (size_t)s->total * sizeof *values, "the scores of both halves of the data");
    find_values(s, 0, values);
    find_values(s, 1, values + s->total);
    const mha_status status = mha__spearman(s->ctx, values, values + s->total, s->total, halves, err);
    mha__free(s->ctx, values);
    return status;
}

mha_status mha__importance_finish(const mha__importance_job *s, mha_importance *out, mha_error *err)
{
    const double quantile = mha_student_quantile(*s->tally.units - 1);
    find_values(s, -1, out->value);
    for (int64_t first = 0, H; first < s->total; first += H) {
        H = mha__head_set_at(&s->sets, first)->heads;
        /* `low` temporarily stores the mean scores, from which the norm is computed */
        for (int64_t h = 0; h < H; h++)
            out->low[first + h] = mean_of(s, -1, first + h);
        const double norm = norm_of(s, out->low + first, H);
        for (int64_t n = first; n < first + H; n++) {
            const double error = quantile * mha__tally_error(&s->tally, n) / norm;
            out->low[n] = isnan(error) ? NAN : fmax(s->rule->negative ? -INFINITY : 0, out->value[n] - error);
            out->high[n] = out->value[n] + error;
        }
    }
    return mha__importance_halves(s, &out->halves, err);
}
