/* prune_search.c - finds the maximum number of heads that can be removed, by evaluating several counts on held-out
 * texts. */
#include "mha/prune_search.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "heads/data/head_data.h"
#include "heads/edit/keep_list.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COARSE = 12, JOINT_ROUNDS = 12 };

struct mha_prune_curve {
    const mha_model *model;
    mha_ctx *ctx;
    mha__head_sets sets;
    size_t cells;           /* sets.total: layers H, summed over kinds of heads */
    int32_t *order;         /* [total] removal order of heads that are selected together */
    mha_prune_point *point; /* [count] */
    int64_t count, best;    /* best: index of the best point, -1 = none */
};

typedef struct search {
    mha_prune_curve *c;
    mha_prune_search_options o;
    mha_prune_rule rule;
    mha_prune_options prune;
    double *scores; /* [total] scores of all kinds; NULL = chosen jointly */
} search;

/* ---- selection of heads ---- */

static mha_status choose_together(const search *s, mha_error *err)
{
    mha_prune_rule all = s->rule;
    uint8_t *keep = mha__alloc(s->c->ctx, s->c->cells);
    if (!keep) return mha__no_memory(err, s->c->cells, "a list of heads");
    const mha_prune_joint_options how = {
        .size = sizeof how, .rounds = JOINT_ROUNDS, .fill = s->prune.fill != NULL, .order = s->c->order};
    all.ratio = 1;
    const mha_status status = mha__prune_jointly(s->c->model, s->o.learn, &all, &how, keep, err);
    mha__free(s->c->ctx, keep);
    return status;
}

/* Returns the rank of head n in the removal order, from 1: among the heads of its layer if the rule is per layer, else
 * among all heads. */
static int64_t rank_of(const search *s, int64_t n)
{
    const mha__head_set *set = mha__head_set_at(&s->c->sets, n);
    const int64_t H = set->heads, first = n - (n - set->first) % H;
    const int32_t *order = s->c->order;
    int64_t rank = 0;
    if (!s->rule.per_layer) return order[n];
    for (int64_t other = first; other < first + H; other++)
        rank += order[other] > 0 && order[other] <= order[n];
    return rank;
}

static mha_status choose(search *s, int64_t count, uint8_t *keep, mha_error *err)
{
    mha_prune_rule rule = s->rule;
    if (s->scores && count > 0) {
        rule.count = count;
        return mha__prune_by_scores(s->c->model, s->scores, &rule, keep, err);
    }
    for (int64_t n = 0; n < (int64_t)s->c->cells; n++)
        keep[n] = mha__head_set_has(mha__head_set_at(&s->c->sets, n), n) &&
                  (count == 0 || s->c->order[n] == 0 || rank_of(s, n) > count);
    return MHA_OK;
}

/* ---- points of the curve ---- */

static mha_status evaluate(search *s, mha_prune_point *p, mha_error *err)
{
    mha_model_edit *edit;
    mha_prune_options how = s->prune;
    how.cross_keep = p->cross_keep;
    how.encoder_keep = p->encoder_keep;
    MHA__TRY(mha_prune(s->c->model, p->keep, &how, &edit, err));
    const mha_status status = mha_model_edit_evaluate(edit, s->o.held_out, &p->evaluation, err);
    mha_model_edit_free(edit);
    const mha_comparison *c = &p->evaluation.comparison;
    const bool decodes = s->c->model->info.causal && s->c->model->info.logits;
    p->increase = decodes ? c->loss[1] - c->loss[0] : 1 - c->mean_cosine;
    p->within = p->increase <= s->o.max_increase;
    if (status != MHA_OK || !isnan(p->increase)) return status;
    if (decodes && mha__head_data_longest(s->o.held_out) < 2)
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_search: held_out must have a token to predict (got no loss)");
    return mha__fail(err, MHA_ERR_NOT_FINITE, "%s of the held-out texts must be finite (got %g)",
                     decodes ? "the loss" : "the cosine", p->increase);
}

static mha_status try_count(search *s, int64_t count, mha_error *err)
{
    mha_prune_curve *c = s->c;
    mha_prune_point *p = &c->point[c->count];
    for (int64_t n = 0; n < c->count; n++)
        if (c->point[n].count == count) return MHA_OK;
    MHA__TRY(mha__progress(c->ctx, "search", c->count < COARSE ? c->count : COARSE, COARSE, err));
    uint8_t *keep = mha__calloc(c->ctx, c->cells, 1);
    if (!keep) return mha__no_memory(err, c->cells, "a list of heads");
    *p = (mha_prune_point){.count = count, .keep = keep};
    if (c->sets.count > 1) p->cross_keep = keep + c->sets.set[MHA_HEADS_CROSS].first;
    if (c->sets.count > 1) p->encoder_keep = keep + c->sets.set[MHA_HEADS_ENCODER].first;
    c->count++;
    MHA__TRY(choose(s, count, keep, err));
    MHA__TRY(evaluate(s, p, err));
    if (!s->o.on_point || s->o.on_point(s->o.user, p) == 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_CANCELED, "mha_prune_search: on_point ended the search");
}

static int by_count(const void *a, const void *b)
{
    const int64_t x = ((const mha_prune_point *)a)->count, y = ((const mha_prune_point *)b)->count;
    return (x > y) - (x < y);
}

static void find_best(mha_prune_curve *c)
{
    qsort(c->point, (size_t)c->count, sizeof *c->point, by_count);
    c->best = c->count - 1;
    while (c->best >= 0 && !c->point[c->best].within)
        c->best--;
}

static mha_status try_all(search *s, int64_t max, mha_error *err)
{
    mha_prune_curve *c = s->c;
    for (int64_t n = 0; n <= COARSE; n++)
        MHA__TRY(try_count(s, max * n / COARSE, err));
    find_best(c);
    if (c->best < 0 || c->best == c->count - 1) return MHA_OK;
    const int64_t good = c->point[c->best].count, bad = c->point[c->best + 1].count;
    for (int64_t count = good + 1; count < bad; count++)
        MHA__TRY(try_count(s, count, err));
    find_best(c);
    return MHA_OK;
}

/* ---- search ---- */

/* Joins the scores of all kinds. */
static mha_status join_scores(search *s, mha_error *err)
{
    const mha__head_sets *sets = &s->c->sets;
    const double *const of[] = {s->o.scores, s->o.cross_scores, s->o.encoder_scores};
    const size_t bytes = s->c->cells * sizeof *s->scores;
    s->scores = mha__alloc(s->c->ctx, bytes);
    if (!s->scores) return mha__no_memory(err, bytes, "the scores of heads");
    for (int k = 0; k < sets->count; k++)
        memcpy(s->scores + sets->set[k].first, of[k],
               (size_t)(sets->set[k].layers * sets->set[k].heads) * sizeof *s->scores);
    return MHA_OK;
}

static mha_status search_all(search *s, mha_error *err)
{
    mha_prune_curve *c = s->c;
    const int64_t max = mha_prune_most(c->model, &s->rule);
    c->point = mha__calloc(c->ctx, (size_t)max + COARSE + 2, sizeof *c->point);
    c->order = mha__calloc(c->ctx, c->cells, sizeof *c->order);
    if (!c->point || !c->order)
        return mha__no_memory(err, ((size_t)max + COARSE + 2) * sizeof *c->point, "the results of a pruning search");
    if (!s->o.scores)
        MHA__TRY(choose_together(s, err));
    else
        MHA__TRY(join_scores(s, err));
    MHA__TRY(try_all(s, max, err));
    return mha__progress(c->ctx, "search", COARSE, COARSE, err);
}

static mha_status check(const search *s, const mha_model *model, mha_error *err)
{
    const mha_prune_search_options *o = &s->o;
    if (!o->held_out) return mha__fail(err, MHA_ERR_ARG, "mha_prune_search_options: held_out must not be NULL");
    if (!o->scores && !o->learn)
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_search_options: learn must not be NULL if scores is NULL");
    if (!(o->max_increase >= 0))
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_search_options: max_increase must be at least 0 (got %g)",
                         o->max_increase);
    if (model->encoder && o->scores && (!o->cross_scores || !o->encoder_scores))
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_search_options: %s must not be NULL for %s",
                         o->cross_scores ? "encoder_scores" : "cross_scores", model->info.family);
    return mha__prune_check_rule(model, &s->rule, err);
}

mha_status mha_prune_search(const mha_model *model, const mha_prune_search_options *options, mha_prune_curve **out,
                            mha_error *err)
{
    static const uint8_t covers;
    search s = {0};
    if (!model || !out)
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_search: %s must not be NULL", model ? "out" : "model");
    *out = NULL;
    MHA__TRY(mha__options_need(&s.o, sizeof s.o, options, "mha_prune_search_options", err));
    MHA__TRY(mha__options_read(&s.prune, sizeof s.prune, s.o.prune, "mha_prune_options", err));
    s.rule = (mha_prune_rule){.size = sizeof s.rule, .per_layer = s.o.per_layer, .floor = s.o.floor};
    if (model->encoder) s.rule.cross_keep = s.rule.encoder_keep = (uint8_t *)&covers; /* only marks the kinds */
    MHA__TRY(check(&s, model, err));
    s.c = mha__calloc(model->ctx, 1, sizeof *s.c);
    if (!s.c) return mha__no_memory(err, sizeof *s.c, "the results of a pruning search");
    *s.c = (mha_prune_curve){.model = model, .ctx = model->ctx, .best = -1};
    s.c->sets = mha__head_sets_of(model);
    s.c->cells = (size_t)s.c->sets.total;
    const mha_status status = search_all(&s, err);
    mha__free(model->ctx, s.scores);
    if (status == MHA_OK)
        *out = s.c;
    else
        mha_prune_curve_free(s.c);
    return status;
}

void mha_prune_curve_free(mha_prune_curve *curve)
{
    if (!curve) return;
    for (int64_t n = 0; n < curve->count; n++)
        mha__free(curve->ctx, (void *)curve->point[n].keep);
    mha__free(curve->ctx, curve->point);
    mha__free(curve->ctx, curve->order);
    mha__free(curve->ctx, curve);
}

const mha_prune_point *mha_prune_curve_points(const mha_prune_curve *curve, int64_t *count)
{
    if (count) *count = curve ? curve->count : 0;
    return curve ? curve->point : NULL;
}

const mha_prune_point *mha_prune_curve_best(const mha_prune_curve *curve)
{
    return curve && curve->best >= 0 ? &curve->point[curve->best] : NULL;
}
