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
    int64_t row, first; /* layer of all kinds; index of the group's first head in arrays of all kinds */
} group;

/* Orders groups by ascending score; among groups with equal scores, the last one comes first. */
static int by_score(const void *a, const void *b)
{
    const group *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? -1 : 1;
    return x->first > y->first ? -1 : 1;
}

/* ---- layers of all kinds ---- */

int64_t mha__prune_rows(const mha__head_sets *sets, const mha_prune_rule *rule)
{
    return rule->cross_keep ? mha__head_row_count(sets) : sets->set[MHA_HEADS_OWN].layers;
}

int64_t mha__row_group(const mha__head_row *row)
{
    return row->set->kind == MHA_HEADS_CROSS ? 1 : mha__group(row->set->model, row->layer);
}

bool mha__row_may_lose(const mha__head_row *row)
{
    return row->set->kind == MHA_HEADS_CROSS || mha__may_lose_heads(row->set->model, row->layer);
}

int64_t mha__row_kept(const mha__head_row *row, const uint8_t *keep)
{
    int64_t count = 0;
    for (int64_t h = 0; h < row->count; h++)
        count += keep[row->first + h];
    return count;
}

void mha__kinds_split(const mha__head_sets *sets, const uint8_t *all, uint8_t *own, uint8_t *cross, uint8_t *encoder)
{
    uint8_t *const to[] = {[MHA_HEADS_OWN] = own, [MHA_HEADS_CROSS] = cross, [MHA_HEADS_ENCODER] = encoder};
    for (int k = 0; k < sets->count; k++) {
        const mha__head_set *set = &sets->set[k];
        if (to[k]) memcpy(to[k], all + set->first, (size_t)(set->layers * set->heads));
    }
}

/* ---- groups ---- */

static mha_status check_scores(const mha__head_row *row, const double *scores, mha_error *err)
{
    const mha__head_set *set = row->set;
    if (set->kind != MHA_HEADS_CROSS) return mha__edit_check_scores(set->model, scores, row->layer, err);
    for (int64_t h = 0; h < row->count; h++)
        if (!isfinite(scores[h]))
            return mha__fail(err, MHA_ERR_ARG, "the score of head cross.%lld.%lld must be finite (got %g)",
                             (long long)row->layer, (long long)mha_cross_head_number(set->model, row->layer, h),
                             scores[h]);
    return MHA_OK;
}

/* Lists the groups of one layer with their mean scores. */
static mha_status list_groups(const mha__head_row *row, int64_t number, const double *scores, group *list,
                              int64_t *count, mha_error *err)
{
    const int64_t size = mha__row_group(row);
    MHA__TRY(check_scores(row, scores + row->first, err));
    for (int64_t first = row->first; first < row->first + row->count; first += size) {
        group g = {.row = number, .first = first};
        for (int64_t h = first; h < first + size; h++)
            g.score += scores[h] / (double)size;
        list[(*count)++] = g;
    }
    return MHA_OK;
}

/* ---- numbers of heads ---- */

/* Relative tolerance: 0.07 * 100 exceeds 7 only because of binary rounding. This excess must not remove an additional
 * head. */
static const double BINARY_ERROR = 4e-16;

/* Returns the number of heads to remove from one layer, rounded up to whole groups. */
static double wanted_of_row(const mha__head_row *row, const mha_prune_rule *rule)
{
    const double group = (double)mha__row_group(row), heads = (double)row->count;
    if (!mha__row_may_lose(row)) return 0;
    const double wanted = rule->count ? (double)rule->count : ceil(heads * rule->ratio * (1 - BINARY_ERROR));
    return ceil(wanted / group) * group;
}

double mha__prune_wanted(const mha__head_sets *sets, const mha_prune_rule *rule, int64_t row)
{
    int64_t heads = 0;
    if (row >= 0) {
        const mha__head_row one = mha__head_row_of(sets, row);
        return wanted_of_row(&one, rule);
    }
    for (int64_t r = 0; r < mha__prune_rows(sets, rule); r++) {
        const mha__head_row one = mha__head_row_of(sets, r);
        heads += mha__row_may_lose(&one) ? one.count : 0;
    }
    return rule->count ? (double)rule->count : (double)heads * rule->ratio * (1 + BINARY_ERROR);
}

bool mha__prune_takes(const mha_prune_rule *rule, double wanted, int64_t gone, int64_t size)
{
    const double missing = wanted - (double)gone;
    const bool nearest = !rule->count && !rule->per_layer;
    return nearest ? missing >= (double)size / 2 : missing > 0;
}

/* Sorts the list and removes groups from its front until `wanted` heads are removed or no further head may be removed.
 * Returns the number of removed heads. */
static int64_t take(const mha__head_sets *sets, const mha_prune_rule *rule, group *list, int64_t count, double wanted,
                    uint8_t *keep)
{
    const int64_t floor = mha__max64(rule->floor, 1);
    int64_t gone = 0;
    qsort(list, (size_t)count, sizeof *list, by_score);
    for (int64_t n = 0; n < count; n++) {
        const mha__head_row row = mha__head_row_of(sets, list[n].row);
        const int64_t size = mha__row_group(&row);
        if (!mha__prune_takes(rule, wanted, gone, size) || mha__row_kept(&row, keep) - size < floor) continue;
        memset(keep + list[n].first, 0, (size_t)size);
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

/* ---- selection ---- */

static mha_status choose(const mha__head_sets *sets, const double *scores, const mha_prune_rule *rule, group *list,
                         uint8_t *keep, mha_error *err)
{
    int64_t count = 0;
    memset(keep, 0, (size_t)sets->total);
    for (int64_t r = 0; r < mha__prune_rows(sets, rule); r++) {
        const mha__head_row row = mha__head_row_of(sets, r);
        memset(keep + row.first, 1, (size_t)row.count);
        if (!mha__row_may_lose(&row)) continue;
        MHA__TRY(list_groups(&row, r, scores, list, &count, err));
        if (!rule->per_layer) continue;
        const int64_t gone = take(sets, rule, list, count, mha__prune_wanted(sets, rule, r), keep);
        MHA__TRY(mha__prune_short(rule, gone, row.layer, err));
        count = 0;
    }
    if (rule->per_layer) return MHA_OK;
    return mha__prune_short(rule, take(sets, rule, list, count, mha__prune_wanted(sets, rule, -1), keep), -1, err);
}

mha_status mha__prune_by_scores(const mha_model *model, const double *scores, const mha_prune_rule *rule, uint8_t *keep,
                                mha_error *err)
{
    const mha__head_sets sets = mha__head_sets_of(model);
    group *list = mha__calloc(model->ctx, (size_t)sets.total, sizeof *list);
    if (!list) return mha__no_memory(err, (size_t)sets.total * sizeof *list, "the list of heads");
    const mha_status status = choose(&sets, scores, rule, list, keep, err);
    mha__free(model->ctx, list);
    return status;
}

/* Chooses among the heads of all kinds. */
static mha_status choose_kinds(const mha_model *model, const double *scores, const mha_prune_rule *r, uint8_t *keep,
                               mha_error *err)
{
    const mha__head_sets sets = mha__head_sets_of(model);
    const double *const of[] = {scores, r->cross_scores, r->encoder_scores};
    double *all = mha__calloc(model->ctx, (size_t)sets.total, sizeof *all + 1);
    uint8_t *kept = (uint8_t *)(all + sets.total);
    if (!all) return mha__no_memory(err, (size_t)sets.total * (sizeof *all + 1), "the scores of heads");
    for (int k = 0; k < sets.count; k++)
        memcpy(all + sets.set[k].first, of[k], (size_t)(sets.set[k].layers * sets.set[k].heads) * sizeof *all);
    const mha_status status = mha__prune_by_scores(model, all, r, kept, err);
    if (status == MHA_OK) mha__kinds_split(&sets, kept, keep, r->cross_keep, r->encoder_keep);
    mha__free(model->ctx, all);
    return status;
}

/* ---- public functions ---- */

mha_status mha__prune_check_rule(const mha_model *model, const mha_prune_rule *rule, mha_error *err)
{
    if (!(rule->ratio >= 0 && rule->ratio <= 1))
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_rule: ratio must be from 0 to 1 (got %g)", rule->ratio);
    if (rule->count < 0 || rule->floor < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_rule: count and floor must be at least 0 (got %lld, %lld)",
                         (long long)rule->count, (long long)rule->floor);
    if (!rule->cross_keep != !rule->encoder_keep)
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_rule: cross_keep and encoder_keep must both be set, or NULL");
    if (rule->cross_keep && !model->encoder)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_prune_rule: cross_keep must be NULL unless the model is the decoder of an "
                         "encoder-decoder (got %s)",
                         model->info.family);
    return MHA_OK;
}

int64_t mha_prune_most(const mha_model *model, const mha_prune_rule *rule)
{
    mha_prune_rule r;
    int64_t all = 0, min = INT64_MAX;
    if (!model || mha__options_need(&r, sizeof r, rule, "mha_prune_rule", NULL) != MHA_OK) return -1;
    if (mha__prune_check_rule(model, &r, NULL) != MHA_OK) return -1;
    const mha__head_sets sets = mha__head_sets_of(model);
    for (int64_t n = 0; n < mha__prune_rows(&sets, &r); n++) {
        const mha__head_row row = mha__head_row_of(&sets, n);
        if (!mha__row_may_lose(&row)) continue;
        const int64_t group = mha__row_group(&row), stay = (mha__max64(r.floor, 1) + group - 1) / group * group;
        const int64_t here = mha__max64(row.count - stay, 0);
        all += here;
        min = here < min ? here : min;
    }
    return r.per_layer && all > 0 ? min : all;
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
    MHA__TRY(mha__prune_check_rule(model, &r, err));
    if (r.cross_keep && (!r.cross_scores || !r.encoder_scores))
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_rule: %s must not be NULL with cross_keep",
                         r.cross_scores ? "encoder_scores" : "cross_scores");
    if (r.cross_keep) return choose_kinds(model, scores, &r, keep, err);
    return mha__prune_by_scores(model, scores, &r, keep, err);
}
