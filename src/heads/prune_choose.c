/* prune_choose.c - which heads go, by their scores.
 *
 * The unit is a group: the query heads of one key head. All groups that could go stand in one list from the one that
 * goes first; a layer that has come down to its floor gives no more.
 */
#include "base/ctx.h"
#include "base/error.h"
#include "base/options.h"
#include "base/size.h"
#include "heads/prune_heads.h"
#include "mha/prune.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct group {
    double score;
    int64_t layer, first; /* its first head */
} group;

/* Lowest score first; of equal ones the last. */
static int by_score(const void *a, const void *b)
{
    const group *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? -1 : 1;
    if (x->layer != y->layer) return x->layer > y->layer ? -1 : 1;
    return x->first > y->first ? -1 : 1;
}

/* Fills the groups of one layer; the sum of scores is checked, so that one that is no number is found. */
static mha_status list_groups(const mha_model *m, const double *scores, int64_t layer, group *list, int64_t *count,
                              mha_error *err)
{
    const int64_t size = mha__group(m, layer), heads = m->heads_per_layer[layer];
    const double *row = scores + layer * m->config.heads;
    for (int64_t h = 0; h < heads; h++)
        if (!isfinite(row[h]))
            return mha__fail(err, MHA_ERR_ARG, "the score of head %lld.%lld is %g, which is no number",
                             (long long)layer, (long long)h, row[h]);
    for (int64_t first = 0; first < heads; first += size) {
        group g = {.layer = layer, .first = first};
        for (int64_t h = first; h < first + size; h++)
            g.score += row[h] / (double)size;
        list[(*count)++] = g;
    }
    return MHA_OK;
}

/* Heads of a layer that a ratio removes. What a ratio such as 0.07 of 100 heads is beyond a whole number comes from
 * its binary form, and is no head. */
static int64_t by_ratio(const mha_prune_rule *rule, int64_t heads)
{
    return (int64_t)ceil((double)heads * rule->ratio * (1 - 4e-16));
}

int64_t mha__prune_wanted(const mha_model *m, const mha_prune_rule *rule, int64_t layer)
{
    int64_t sum = 0;
    if (rule->count) return rule->count;
    for (int64_t l = 0; l < m->config.layers; l++)
        if ((layer < 0 || l == layer) && mha__may_lose_heads(m, l)) sum += by_ratio(rule, m->heads_per_layer[l]);
    return sum;
}

/* Removes groups from the front of the list until `heads` are gone or none may go. Returns the heads removed. */
static int64_t take(const mha_model *m, group *list, int64_t count, int64_t heads, int64_t floor, uint8_t *keep)
{
    int64_t gone = 0;
    qsort(list, (size_t)count, sizeof *list, by_score);
    for (int64_t n = 0; n < count && gone < heads; n++) {
        const int64_t size = mha__group(m, list[n].layer);
        if (mha__kept(m, keep, list[n].layer) - size < floor) continue;
        memset(keep + list[n].layer * m->config.heads + list[n].first, 0, (size_t)size);
        gone += size;
    }
    return gone;
}

mha_status mha__prune_short(const mha_prune_rule *rule, int64_t gone, int64_t layer, mha_error *err)
{
    if (!rule->count || gone >= rule->count) return MHA_OK;
    if (layer < 0)
        return mha__fail(err, MHA_ERR_ARG, "%lld heads cannot go: no more than %lld, with the floor of each layer",
                         (long long)rule->count, (long long)gone);
    return mha__fail(err, MHA_ERR_ARG, "%lld heads cannot go in layer %lld: no more than %lld, with its floor",
                     (long long)rule->count, (long long)layer, (long long)gone);
}

static mha_status choose(const mha_model *m, const double *scores, const mha_prune_rule *rule, group *list,
                         uint8_t *keep, mha_error *err)
{
    const int64_t floor = mha__max64(rule->floor, 1);
    int64_t count = 0;
    memset(keep, 0, (size_t)(m->config.layers * m->config.heads));
    for (int64_t layer = 0; layer < m->config.layers; layer++) {
        memset(keep + layer * m->config.heads, 1, (size_t)m->heads_per_layer[layer]);
        if (!mha__may_lose_heads(m, layer)) continue;
        MHA__TRY(list_groups(m, scores, layer, list, &count, err));
        if (!rule->per_layer) continue;
        MHA__TRY(
            mha__prune_short(rule, take(m, list, count, mha__prune_wanted(m, rule, layer), floor, keep), layer, err));
        count = 0;
    }
    if (rule->per_layer) return MHA_OK;
    return mha__prune_short(rule, take(m, list, count, mha__prune_wanted(m, rule, -1), floor, keep), -1, err);
}

mha_status mha__prune_check_rule(const mha_prune_rule *rule, mha_error *err)
{
    if (!(rule->ratio >= 0 && rule->ratio <= 1))
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_rule: ratio is %g, not 0..1", rule->ratio);
    if (rule->count < 0 || rule->floor < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_rule: count is %lld and floor %lld, neither may be negative",
                         (long long)rule->count, (long long)rule->floor);
    return MHA_OK;
}

mha_status mha_prune_choose(const mha_model *model, const double *scores, const mha_prune_rule *rule, uint8_t *keep,
                            mha_error *err)
{
    mha_prune_rule r;
    if (!model || !scores || !keep)
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_choose: %s is NULL",
                         !model    ? "model"
                         : !scores ? "scores"
                                   : "keep");
    MHA__TRY(mha__options_need(&r, sizeof r, rule, "mha_prune_rule", err));
    MHA__TRY(mha__prune_check_rule(&r, err));
    const size_t most = (size_t)(model->config.layers * model->config.heads);
    group *list = mha__calloc(model->ctx, most, sizeof *list);
    if (!list) return mha__no_memory(err, most * sizeof *list, "the list of heads");
    const mha_status status = choose(model, scores, &r, list, keep, err);
    mha__free(model->ctx, list);
    return status;
}
