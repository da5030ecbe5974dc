/* prune_search.c - finds the maximum number of heads that can be removed, by evaluating several counts on held-out
 * texts. */
#include "mha/prune_search.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "heads/edit/keep_list.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COARSE = 12, JOINT_ROUNDS = 12 };

struct mha_prune_curve {
    const mha_model *model;
    mha_ctx *ctx;
    size_t cells;           /* layers H */
    int32_t *order;         /* [layers, H] removal order of heads that are selected together */
    mha_prune_point *point; /* [count] */
    int64_t count, best;    /* best: index of the best point, -1 = none */
};

typedef struct search {
    mha_prune_curve *c;
    mha_prune_search_options o;
    mha_prune_rule rule;
    mha_prune_options prune;
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
    const mha_status status = mha_prune_choose_joint(s->c->model, s->o.learn, &all, &how, keep, err);
    mha__free(s->c->ctx, keep);
    return status;
}

/* Returns the rank of head n in the removal order, from 1: among the heads of its layer if the rule is per layer, else
 * among all heads. */
static int64_t rank_of(const search *s, int64_t n)
{
    const int64_t H = s->c->model->config.heads, first = n / H * H;
    const int32_t *order = s->c->order;
    int64_t rank = 0;
    if (!s->rule.per_layer) return order[n];
    for (int64_t other = first; other < first + H; other++)
        rank += order[other] > 0 && order[other] <= order[n];
    return rank;
}

static mha_status choose(search *s, int64_t count, uint8_t *keep, mha_error *err)
{
    const mha_model *m = s->c->model;
    mha_prune_rule rule = s->rule;
    if (s->o.scores && count > 0) {
        rule.count = count;
        return mha_prune_choose(m, s->o.scores, &rule, keep, err);
    }
    for (int64_t n = 0; n < (int64_t)s->c->cells; n++)
        keep[n] = n % m->config.heads < m->heads_per_layer[n / m->config.heads] &&
                  (count == 0 || s->c->order[n] == 0 || rank_of(s, n) > count);
    return MHA_OK;
}

/* ---- points of the curve ---- */

static mha_status evaluate(search *s, mha_prune_point *p, mha_error *err)
{
    mha_model_edit *edit;
    MHA__TRY(mha_prune(s->c->model, p->keep, &s->prune, &edit, err));
    const mha_status status = mha_model_edit_evaluate(edit, s->o.held_out, &p->evaluation, err);
    mha_model_edit_free(edit);
    const mha_comparison *c = &p->evaluation.comparison;
    const bool decodes = s->c->model->info.causal && s->c->model->info.logits;
    p->increase = decodes ? c->loss[1] - c->loss[0] : 1 - c->mean_cosine;
    p->within = p->increase <= s->o.max_increase;
    if (status != MHA_OK || !isnan(p->increase)) return status;
    return mha__fail(err, MHA_ERR_ARG, "mha_prune_search: held_out must have a token to predict (got no loss)");
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
    c->count++;
    MHA__TRY(choose(s, count, keep, err));
    MHA__TRY(evaluate(s, p, err));
    if (!s->o.on_point || s->o.on_point(s->o.user, p) == 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_CANCELLED, "mha_prune_search: on_point ended the search");
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

static mha_status try_all(search *s, int64_t most, mha_error *err)
{
    mha_prune_curve *c = s->c;
    for (int64_t n = 0; n <= COARSE; n++)
        MHA__TRY(try_count(s, most * n / COARSE, err));
    find_best(c);
    if (c->best < 0 || c->best == c->count - 1) return MHA_OK;
    const int64_t good = c->point[c->best].count, bad = c->point[c->best + 1].count;
    for (int64_t count = good + 1; count < bad; count++)
        MHA__TRY(try_count(s, count, err));
    find_best(c);
    return MHA_OK;
}

/* ---- search ---- */

static mha_status search_all(search *s, mha_error *err)
{
    mha_prune_curve *c = s->c;
    const int64_t most = mha_prune_most(c->model, &s->rule);
    c->point = mha__calloc(c->ctx, (size_t)most + COARSE + 2, sizeof *c->point);
    c->order = mha__calloc(c->ctx, c->cells, sizeof *c->order);
    if (!c->point || !c->order)
        return mha__no_memory(err, ((size_t)most + COARSE + 2) * sizeof *c->point, "the results of a pruning search");
    if (!s->o.scores) MHA__TRY(choose_together(s, err));
    MHA__TRY(try_all(s, most, err));
    return mha__progress(c->ctx, "search", COARSE, COARSE, err);
}

static mha_status check(const search *s, mha_error *err)
{
    const mha_prune_search_options *o = &s->o;
    if (!o->held_out) return mha__fail(err, MHA_ERR_ARG, "mha_prune_search_options: held_out must not be NULL");
    if (!o->scores && !o->learn)
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_search_options: learn must not be NULL if scores is NULL");
    if (!(o->max_increase >= 0))
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_search_options: max_increase must be at least 0 (got %g)",
                         o->max_increase);
    return mha__prune_check_rule(&s->rule, err);
}

mha_status mha_prune_search(const mha_model *model, const mha_prune_search_options *options, mha_prune_curve **out,
                            mha_error *err)
{
    search s = {0};
    if (!model || !out)
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_search: %s must not be NULL", model ? "out" : "model");
    *out = NULL;
    MHA__TRY(mha__options_need(&s.o, sizeof s.o, options, "mha_prune_search_options", err));
    MHA__TRY(mha__options_read(&s.prune, sizeof s.prune, s.o.prune, "mha_prune_options", err));
    s.rule = (mha_prune_rule){.size = sizeof s.rule, .per_layer = s.o.per_layer, .floor = s.o.floor};
    MHA__TRY(check(&s, err));
    s.c = mha__calloc(model->ctx, 1, sizeof *s.c);
    if (!s.c) return mha__no_memory(err, sizeof *s.c, "the results of a pruning search");
    *s.c = (mha_prune_curve){.model = model, .ctx = model->ctx, .best = -1};
    s.c->cells = (size_t)(model->config.layers * model->config.heads);
    const mha_status status = search_all(&s, err);
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
