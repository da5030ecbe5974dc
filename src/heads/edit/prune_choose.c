/* prune_choose.c - selects the heads to remove by their scores.
 *
 * Heads are removed in groups; a group consists of the query heads that share one key head. Groups are removed in the
 * order of their scores, except from layers that have reached their minimum. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "heads/edit/edit_struct.h"
#include "heads/edit/keep_list.h"
#include "mha/prune.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct group {
    double score;
    int64_t layer, first; /* first: the group's first head */
} group;

/* Orders groups by ascending score; among groups with equal scores, the last one comes first. */
static int by_score(const void *a, const void *b)
{
    const group *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? -1 : 1;
    if (x->layer != y->layer) return x->layer > y->layer ? -1 : 1;
    return x->first > y->first ? -1 : 1;
}

/* Lists the groups of one layer with their mean scores. */
static mha_status list_groups(const mha_model *m, const double *scores, int64_t layer, group *list, int64_t *count,
                              mha_error *err)
{
    const int64_t size = mha__group(m, layer), heads = m->heads_per_layer[layer];
    const double *row = scores + layer * m->config.heads;
    MHA__TRY(mha__edit_check_scores(m, row, layer, err));
    for (int64_t first = 0; first < heads; first += size) {
        group g = {.layer = layer, .first = first};
        for (int64_t h = first; h < first + size; h++)
            g.score += row[h] / (double)size;
        list[(*count)++] = g;
    }
    return MHA_OK;
}

/* Relative tolerance: 0.07 * 100 exceeds 7 only because of binary rounding. This excess must not remove an additional
 * head. */
static const double binary_error = 4e-16;

/* Returns the number of heads to remove from one layer, rounded up to whole groups. */
static double wanted_of_layer(const mha_model *m, const mha_prune_rule *rule, int64_t layer)
{
    const double group = (double)mha__group(m, layer), heads = (double)m->heads_per_layer[layer];
    if (!mha__may_lose_heads(m, layer)) return 0;
    const double wanted = rule->count ? (double)rule->count : ceil(heads * rule->ratio * (1 - binary_error));
    return ceil(wanted / group) * group;
}

double mha__prune_wanted(const mha_model *m, const mha_prune_rule *rule, int64_t layer)
{
    int64_t heads = 0;
    if (layer >= 0) return wanted_of_layer(m, rule, layer);
    for (int64_t l = 0; l < m->config.layers; l++)
        heads += mha__may_lose_heads(m, l) ? m->heads_per_layer[l] : 0;
    return rule->count ? (double)rule->count : (double)heads * rule->ratio * (1 + binary_error);
}

bool mha__prune_takes(const mha_prune_rule *rule, double wanted, int64_t gone, int64_t size)
{
    const double missing = wanted - (double)gone;
    const bool nearest = !rule->count && !rule->per_layer;
    return nearest ? missing >= (double)size / 2 : missing > 0;
}

/* Sorts the list and removes groups from its front until `wanted` heads are removed or no further head may be removed.
 * Returns the number of removed heads. */
static int64_t take(const mha_model *m, const mha_prune_rule *rule, group *list, int64_t count, double wanted,
                    uint8_t *keep)
{
    const int64_t floor = mha__max64(rule->floor, 1);
    int64_t gone = 0;
    qsort(list, (size_t)count, sizeof *list, by_score);
    for (int64_t n = 0; n < count; n++) {
        const int64_t size = mha__group(m, list[n].layer);
        if (!mha__prune_takes(rule, wanted, gone, size) ||
            mha__keep_count(&(mha__keep){m, false, keep}, list[n].layer) - size < floor)
            continue;
        memset(keep + list[n].layer * m->config.heads + list[n].first, 0, (size_t)size);
        gone += size;
    }
    return gone;
}

mha_status mha__prune_short(const mha_prune_rule *rule, int64_t gone, int64_t layer, mha_error *err)
{
    if (!rule->count || gone >= rule->count) return MHA_OK;
    if (layer < 0)
        return mha__fail(
            err, MHA_ERR_ARG,
            "mha_prune_rule: count must be at most %lld, the number of heads above the floor of each layer (got %lld)",
            (long long)gone, (long long)rule->count);
    return mha__fail(
        err, MHA_ERR_ARG,
        "mha_prune_rule: count must be at most %lld, the number of heads above the floor of layer %lld (got %lld)",
        (long long)gone, (long long)layer, (long long)rule->count);
}

static mha_status choose(const mha_model *m, const double *scores, const mha_prune_rule *rule, group *list,
                         uint8_t *keep, mha_error *err)
{
    int64_t count = 0;
    memset(keep, 0, (size_t)(m->config.layers * m->config.heads));
    for (int64_t layer = 0; layer < m->config.layers; layer++) {
        memset(keep + layer * m->config.heads, 1, (size_t)m->heads_per_layer[layer]);
        if (!mha__may_lose_heads(m, layer)) continue;
        MHA__TRY(list_groups(m, scores, layer, list, &count, err));
        if (!rule->per_layer) continue;
        const int64_t gone = take(m, rule, list, count, mha__prune_wanted(m, rule, layer), keep);
        MHA__TRY(mha__prune_short(rule, gone, layer, err));
        count = 0;
    }
    if (rule->per_layer) return MHA_OK;
    return mha__prune_short(rule, take(m, rule, list, count, mha__prune_wanted(m, rule, -1), keep), -1, err);
}

mha_status mha__prune_check_rule(const mha_prune_rule *rule, mha_error *err)
{
    if (!(rule->ratio >= 0 && rule->ratio <= 1))
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_rule: ratio must be from 0 to 1 (got %g)", rule->ratio);
    if (rule->count < 0 || rule->floor < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_rule: count and floor must be at least 0 (got %lld, %lld)",
                         (long long)rule->count, (long long)rule->floor);
    return MHA_OK;
}

int64_t mha_prune_most(const mha_model *model, const mha_prune_rule *rule)
{
    mha_prune_rule r;
    int64_t all = 0, least = INT64_MAX;
    if (!model || mha__options_need(&r, sizeof r, rule, "mha_prune_rule", NULL) != MHA_OK) return -1;
    if (mha__prune_check_rule(&r, NULL) != MHA_OK) return -1;
    for (int64_t l = 0; l < model->config.layers; l++) {
        if (!mha__may_lose_heads(model, l)) continue;
        const int64_t group = mha__group(model, l), stay = (mha__max64(r.floor, 1) + group - 1) / group * group;
        const int64_t here = mha__max64(model->heads_per_layer[l] - stay, 0);
        all += here;
        least = here < least ? here : least;
    }
    return r.per_layer && all > 0 ? least : all;
}

mha_status mha_prune_choose(const mha_model *model, const double *scores, const mha_prune_rule *rule, uint8_t *keep,
                            mha_error *err)
{
    mha_prune_rule r;
    if (!model || !scores || !keep)
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_choose: %s must not be NULL",
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
