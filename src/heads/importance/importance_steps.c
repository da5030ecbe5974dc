/* importance_steps.c - divides a measurement into steps and runs them. A group is one step if its texts cannot be
 * separated (pairs, or gradients of weights); otherwise, each step has some units of a group. */
#include "base/error.h"
#include "base/size.h"
#include "heads/data/measure_steps.h"
#include "heads/importance/importance.h"
#include "math/hash.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Maximum number of units in a step. Long steps have fewer and larger matrix products, which are faster; short steps
 * need less memory in a backward pass, and can be divided more evenly among processes. Sums of forward passes do not
 * depend on this number; those of backward passes do (the loss of a batch, and importance_taylor.c). */
enum { STEP = 32, STEP_FORWARD = 64 };

/* ---- groups and steps ---- */

static bool is_divided(const mha__importance_job *s)
{
    return !mha__importance_of_pairs(s) && !s->rule->adds;
}

int64_t mha__importance_step_units(const mha__importance_job *s)
{
    const int64_t max = s->rule->forward && !mha__head_data_work(s->data) ? STEP_FORWARD : STEP;
    return is_divided(s) ? mha__min64(max, s->per_group) : s->per_group;
}

/* Returns the number of units in a group. If the last group of pairs would have one pair, the pair joins the previous
 * group. */
static int64_t group_units(const mha__importance_job *s, int64_t group)
{
    const int64_t left = s->units - group * s->per_group;
    return mha__importance_of_pairs(s) && left == s->per_group + 1 ? left : mha__min64(s->per_group, left);
}

static int64_t steps_of(const mha__importance_job *s, int64_t units)
{
    return is_divided(s) ? mha__ceil_div(units, mha__importance_step_units(s)) : 1;
}

int64_t mha__importance_steps(const mha__importance_job *s)
{
    int64_t groups = mha__ceil_div(s->units, s->per_group);
    if (groups > 1 && group_units(s, groups - 2) > s->per_group) groups--;
    return (groups - 1) * steps_of(s, s->per_group) + steps_of(s, group_units(s, groups - 1));
}

/* Returns the number of predicted tokens in a text. */
static int64_t terms_of(const mha__importance_job *s, int64_t text)
{
    const int32_t *labels = s->packer.labeled ? s->packer.labeled + s->label_at[text] : NULL;
    int64_t length, count = 0;
    mha_head_data_ids(s->data, text, &length);
    if (labels && s->options.loss == MHA_LOSS_CLASSES) return labels[0] != MHA_IGNORE;
    for (int64_t t = s->info->causal ? 1 : 0; t < length; t++)
        count += !labels || labels[t] != MHA_IGNORE;
    return count;
}

/* Returns true if the score uses the mean loss over the tokens of a group. */
static bool has_terms(const mha__importance_job *s)
{
    return s->rule->loss && !mha__importance_of_pairs(s);
}

/* Returns the number of tokens in the mean loss of a group. */
static int64_t terms_of_group(const mha__importance_job *s, int64_t group)
{
    const int64_t first = group * s->per_group, end = first + group_units(s, group);
    int64_t terms = 0;
    for (int64_t text = first; text < end; text++)
        terms += terms_of(s, text);
    return terms;
}

/* Fails for `units` units from `first` on, which the message names. */
static mha_status fail_units(const mha__importance_job *s, mha_status status, int64_t first, int64_t units,
                             const char *rule, mha_error *err)
{
    const long long from = first + 1, to = first + units, all = mha_head_data_count(s->data);
    if (units == 1) return mha__fail(err, status, "text %lld of %lld: %s", from, all, rule);
    return mha__fail(err, status, "texts %lld to %lld of %lld: %s", from, to, all, rule);
}

mha_status mha__importance_check_terms(const mha__importance_job *s, mha_error *err)
{
    if (!has_terms(s)) return MHA_OK;
    for (int64_t group = 0; group < mha__ceil_div(s->units, s->per_group); group++)
        if (!terms_of_group(s, group))
            return fail_units(s, MHA_ERR_ARG, group * s->per_group, group_units(s, group),
                              "a batch must have at least one token in the loss", err);
    return MHA_OK;
}

static int64_t first_unit(const mha__importance_job *s, int64_t step)
{
    const int64_t per_group = steps_of(s, s->per_group);
    return step / per_group * s->per_group + step % per_group * mha__importance_step_units(s);
}

void mha__importance_begin(mha__importance_job *s, int64_t step)
{
    const int64_t group = step / steps_of(s, s->per_group), first = group * s->per_group;
    s->group_units = group_units(s, group);
    if (has_terms(s) && (s->terms == 0 || group != s->group)) s->terms = terms_of_group(s, group);
    s->group = group;
    s->first = first_unit(s, step);
    s->count = first + s->group_units - s->first;
    if (is_divided(s)) s->count = mha__min64(s->count, mha__importance_step_units(s));
    const int parts = mha__importance_of_pairs(s) ? 2 : 1;
    s->texts = parts * s->count;
    s->done = parts * s->first;
    s->done_here = 0;
    for (int64_t n = 0; n < s->texts; n++)
        s->text[n] = n < s->count ? s->first + n : s->units + s->first + n - s->count;
}

/* ---- running the steps ---- */

/* Fails for a score that is not finite: `units` units from `first` on have no meaningful ranking. */
static mha_status check_finite(const mha__importance_job *s, int64_t first, int64_t units, const double *scores,
                               mha_error *err)
{
    char rule[80];
    for (int64_t n = 0; n < s->total; n++) {
        if (isfinite(scores[n])) continue;
        snprintf(rule, sizeof rule, "the scores of all heads must be finite (got %g)",
                 isnan(scores[n]) ? (double)NAN : scores[n]);
        return fail_units(s, MHA_ERR_NOT_FINITE, first, units, rule, err);
    }
    return MHA_OK;
}

mha_status mha__importance_add_group(mha__importance_job *s, mha_error *err)
{
    MHA__TRY(check_finite(s, s->first, s->count, s->part, err));
    mha__tally_add(&s->tally, s->group, s->part, 1);
    return MHA_OK;
}

static mha_status add_units(mha__importance_job *s, mha_error *err)
{
    for (int64_t u = 0; u < s->count; u++) {
        double *sum = s->part + u * s->total, *other = s->part + (s->count + u) * s->total;
        for (int64_t n = 0; mha__importance_of_pairs(s) && n < s->total; n++)
            sum[n] += other[n];
        MHA__TRY(check_finite(s, s->first + u, 1, sum, err));
        mha__tally_add(&s->tally, s->first + u, sum, s->weight[u]);
    }
    return MHA_OK;
}

static mha_status run_units(mha__importance_job *s, mha_error *err)
{
    memset(s->part, 0, (size_t)(s->texts * s->total) * sizeof *s->part);
    for (int64_t n = 0; n < s->texts; n++)
        s->weight[n] = 1;
    MHA__TRY(s->rule->group(s, err));
    return s->rule->adds ? MHA_OK : add_units(s, err);
}

/* Returns true if this step is the last one of its group. */
static bool closes_group(const mha__importance_job *s)
{
    return s->first + s->count == s->group * s->per_group + s->group_units;
}

static mha_status run_step(void *user, int64_t step, mha_error *err)
{
    mha__importance_job *s = user;
    double halves = NAN;
    mha__importance_begin(s, step);
    MHA__TRY(run_units(s, err));
    s->counts[MHA__TEXTS] += s->texts;
    if (!closes_group(s)) return MHA_OK;
    s->counts[MHA__GROUPS]++;
    if (s->options.settle == 0) return MHA_OK;
    s->counts[MHA__BEFORE] = s->counts[MHA__SETTLED];
    MHA__TRY(mha__importance_halves(s, &halves, err));
    s->counts[MHA__SETTLED] = halves >= s->options.settle;
    return MHA_OK;
}

static bool has_settled(const void *user)
{
    const mha__importance_job *s = user;
    return s->counts[MHA__BEFORE] && s->counts[MHA__SETTLED];
}

int64_t mha__importance_texts_before(const void *user, int64_t step)
{
    const mha__importance_job *s = user;
    const int64_t unit = step < mha__importance_steps(s) ? first_unit(s, step) : s->units;
    return unit * (mha__importance_of_pairs(s) ? 2 : 1);
}

static const char *quoted_state(const mha__importance_job *s, mha__quoted *q)
{
    return mha__quote(q, s->options.state, strlen(s->options.state));
}

/* Checks that the counts in a state file are the counts after `done` steps; otherwise, the file is damaged. */
static mha_status check_counts(const void *user, int64_t done, mha_error *err)
{
    const mha__importance_job *s = user;
    const int64_t per_group = steps_of(s, s->per_group), texts = mha__importance_texts_before(s, done);
    const int64_t groups = done < mha__importance_steps(s) ? done / per_group : mha__ceil_div(done, per_group);
    if (s->counts[MHA__TEXTS] != texts)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: the number of texts after %lld steps must be %lld (got %lld)",
                         quoted_state(s, &(mha__quoted){0}), (long long)done, (long long)texts,
                         (long long)s->counts[MHA__TEXTS]);
    if (s->counts[MHA__GROUPS] != groups)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: the number of groups after %lld steps must be %lld (got %lld)",
                         quoted_state(s, &(mha__quoted){0}), (long long)done, (long long)groups,
                         (long long)s->counts[MHA__GROUPS]);
    return MHA_OK;
}

static uint64_t labels_hash(const mha__importance_job *s)
{
    const int32_t *labels = s->options.labels;
    return labels ? mha__hash(0, labels, (size_t)mha__importance_labels(s->data) * sizeof *labels) : 0;
}

const char *mha__importance_describe(const mha__importance_job *s, const char *what, char words[MHA__IMPORTANCE_WORDS])
{
    const mha_importance_options *o = &s->options;
    snprintf(words, MHA__IMPORTANCE_WORDS,
             "%s%s, loss %s, scale %.17g, %d probes, batches of %lld, steps of %lld, settle %.17g, seed %llu, "
             "labels %llx",
             what, mha_importance_score_key(o->by), mha_head_loss_key(o->loss), o->loss_scale, o->probes,
             (long long)s->per_group, (long long)mha__importance_step_units(s), o->settle, (unsigned long long)o->seed,
             (unsigned long long)labels_hash(s));
    return words;
}

mha_status mha__importance_run_steps(mha__importance_job *s, mha_error *err)
{
    const mha_importance_options *o = &s->options;
    char words[MHA__IMPORTANCE_WORDS];
    const mha__measure measure = {.model = s->model,
                                  .data = s->data,
                                  .title = "importance",
                                  .options = mha__importance_describe(s, "", words),
                                  .state = o->state,
                                  .steps = mha__importance_steps(s),
                                  .values = s->tally.values,
                                  .count = s->tally.count,
                                  .user = s,
                                  .run = run_step,
                                  .check = check_counts,
                                  .before = mha__importance_texts_before,
                                  .whole = mha_head_data_count(s->data),
                                  .ended = o->settle > 0 ? has_settled : NULL};
    return mha__measure_run(&measure, err);
}
