/* prune_choose_joint.c - selects the heads to remove together, by their joint effect.
 *
 * Removing a group of heads shifts the output for each text: an encoder's L2-normalized embedding by a vector, a
 * decoder's loss by a scalar. The shifts are assumed to be additive. The next group to remove is the one with the
 * smallest total shift: for an encoder, the shortest vectors; for a decoder, the lowest loss. The assumption becomes
 * less accurate with every removed group, so the shifts are measured again after each round, batch by batch and layer
 * by layer (prune_joint_shifts.c). */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "heads/data/head_data.h"
#include "heads/edit/prune_joint.h"
#include <math.h>
#include <string.h>

/* ---- selection ---- */

/* Returns the cost after adding the shift `more`: for an encoder, the sum of squares, which is twice the sum of 1 -
 * cos; for a decoder, the sum of the losses. INFINITY if the sum is NaN. */
static double cost(const mha__joint *j, const float *more)
{
    double total = 0;
    for (int64_t n = 0; n < j->cells; n++) {
        const double x = (double)j->sum[n] + (double)more[n];
        total += j->outcome.predicts ? x : x * x;
    }
    return isnan(total) ? INFINITY : total;
}

static bool may_go(const mha__joint *j, int64_t number)
{
    const mha__head_row row = mha__head_row_of(&j->sets, number);
    const int64_t left = mha__row_kept(&row, j->keep), size = mha__row_group(&row);
    if (!mha__row_may_lose(&row) || left - size < mha__max64(j->rule->floor, 1)) return false;
    const bool each = j->rule->per_layer != 0;
    return mha__prune_takes(j->rule, mha__prune_wanted(&j->sets, j->rule, each ? number : -1),
                            each ? row.count - left : j->gone, size);
}

static void remove_group(mha__joint *j, int64_t first)
{
    const int64_t size = mha__joint_group(j, first);
    const float *more = j->moved + j->slot[first] * j->cells;
    for (int64_t n = 0; n < j->cells; n++)
        j->sum[n] += more[n];
    mha__joint_set(j, first, false);
    memset(j->keep + first, 0, (size_t)size);
    j->gone += (int32_t)size;
    for (int64_t h = first; j->order && h < first + size; h++)
        j->order[h] = j->gone;
}

/* Removes the group with the lowest cost (on ties, the last one); returns false if no group may be removed. */
static bool choose_one(mha__joint *j)
{
    int64_t best = -1;
    double min = INFINITY;
    for (int64_t number = j->rows - 1; number >= 0; number--) {
        const mha__head_row row = mha__head_row_of(&j->sets, number);
        const bool goes = may_go(j, number);
        for (int64_t first = row.first + row.count - 1; goes && first >= row.first; first--) {
            if (!mha__joint_keeps(j, first)) continue;
            const double here = cost(j, j->moved + j->slot[first] * j->cells);
            if (best >= 0 && !(here < min)) continue;
            min = here;
            best = first;
        }
    }
    if (best >= 0) remove_group(j, best);
    return best >= 0;
}

/* Returns the number of heads that the rule removes if the minimum of each layer is ignored. */
static double heads_to_go(const mha__joint *j)
{
    double heads = 0;
    if (!j->rule->per_layer) return mha__prune_wanted(&j->sets, j->rule, -1);
    for (int64_t row = 0; row < j->rows; row++)
        heads += mha__prune_wanted(&j->sets, j->rule, row);
    return heads;
}

static mha_status check_gone(const mha__joint *j, mha_error *err)
{
    int64_t all = 0;
    for (int64_t number = 0; number < j->rows; number++) {
        const mha__head_row row = mha__head_row_of(&j->sets, number);
        const int64_t gone = row.count - mha__row_kept(&row, j->keep);
        if (j->rule->per_layer) MHA__TRY(mha__prune_short(j->rule, gone, row.layer, err));
        all += gone;
    }
    return j->rule->per_layer ? MHA_OK : mha__prune_short(j->rule, all, -1, err);
}

static mha_status choose(mha__joint *j, int64_t rounds, mha_error *err)
{
    const int64_t wanted = llround(heads_to_go(j)); /* only limits the rounds; mha__prune_takes decides on halves */
    bool more = true;
    j->rounds = mha__min64(rounds, wanted);
    for (j->round = 0; j->round < j->rounds && more; j->round++) {
        MHA__TRY(mha__joint_measure(j, err));
        while (more && j->gone < mha__ceil_div(wanted * (j->round + 1), j->rounds))
            more = choose_one(j);
    }
    return check_gone(j, err);
}

/* ---- public function ---- */

static void lay_out(mha__arena *arena, mha__joint *j, const mha_head_data *data)
{
    const size_t heads = (size_t)j->sets.total, cells = (size_t)j->cells, width = (size_t)j->m->config.hidden;
    const size_t tokens = (size_t)mha__head_data_batch_tokens(data);
    j->values = mha__ceil_div((1 + j->groups) * j->cells, sizeof(int64_t) / sizeof(float));
    j->gates = mha__take(arena, heads, sizeof *j->gates);
    j->fills = mha__take(arena, (size_t)j->sets.cells, sizeof *j->fills);
    j->whole = mha__take(arena, cells, sizeof *j->whole);
    j->now = mha__take(arena, (size_t)j->values, sizeof(int64_t));
    j->moved = j->now ? j->now + j->cells : NULL;
    j->sum = mha__take(arena, cells, sizeof *j->sum);
    j->slot = mha__take(arena, heads, sizeof *j->slot);
    j->outcome.stream = mha__take(arena, tokens, width * sizeof *j->outcome.stream);
}

/* Initializes the selection with all heads kept. */
static void begin(mha__joint *j)
{
    int64_t groups = 0;
    for (int64_t h = 0; h < j->sets.total; h++) {
        j->slot[h] = -1;
        j->gates[h] = 1;
    }
    for (int64_t number = 0; number < j->rows; number++) {
        const mha__head_row row = mha__head_row_of(&j->sets, number);
        for (int64_t h = 0; h < row.set->heads; h++) {
            j->keep[row.first + h] = h < row.count;
            if (j->order) j->order[row.first + h] = 0;
            if (h < row.count && h % mha__row_group(&row) == 0) j->slot[row.first + h] = groups++;
        }
    }
}

static mha_status run_joint(mha__joint *j, const mha_head_data *data, const mha_prune_joint_options *o, mha_error *err)
{
    const mha__config *c = &j->m->config;
    mha__arena arena = {0};
    j->width = j->outcome.predicts ? 1 : c->hidden;
    j->cells = mha_head_data_count(data) * j->width;
    lay_out(&arena, j, data);
    void *memory = arena.base = arena.overflow ? NULL : mha__calloc(j->m->ctx, 1, arena.used);
    if (!memory) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "a joint selection");
    arena.used = 0;
    lay_out(&arena, j, data);
    begin(j);
    mha_status status = o->fill ? mha__mean_contexts(j->m, data, &j->means, err) : MHA_OK;
    if (status == MHA_OK) status = choose(j, o->rounds, err);
    mha__free(j->m->ctx, j->means);
    mha__free(j->m->ctx, memory);
    return status;
}

mha_status mha__prune_jointly(const mha_model *model, const mha_head_data *data, const mha_prune_rule *rule,
                              const mha_prune_joint_options *options, uint8_t *keep, mha_error *err)
{
    mha__joint j = {.m = model, .rule = rule, .keep = keep, .order = options->order, .sets = mha__head_sets_of(model)};
    j.rows = mha__prune_rows(&j.sets, rule);
    for (int64_t number = 0; number < j.rows; number++) {
        const mha__head_row row = mha__head_row_of(&j.sets, number);
        j.groups += row.count / mha__row_group(&row);
    }
    mha_status status = mha__outcome_create(model, data, &j.outcome, err);
    if (status == MHA_OK && j.outcome.predicts && mha_head_data_tokens(data) == mha_head_data_count(data))
        status = mha__fail(err, MHA_ERR_ARG, "mha_prune_choose_joint: data must have a token to predict (got none)");
    if (status == MHA_OK) status = run_joint(&j, data, options, err);
    mha__outcome_free(&j.outcome);
    return status;
}

/* Chooses among the heads of all kinds. */
static mha_status choose_kinds(const mha_model *model, const mha_head_data *data, const mha_prune_rule *rule,
                               const mha_prune_joint_options *o, uint8_t *keep, mha_error *err)
{
    const mha__head_sets sets = mha__head_sets_of(model);
    uint8_t *all = mha__calloc(model->ctx, (size_t)sets.total, 1);
    if (!all) return mha__no_memory(err, (size_t)sets.total, "a list of heads");
    const mha_status status = mha__prune_jointly(model, data, rule, o, all, err);
    if (status == MHA_OK) mha__kinds_split(&sets, all, keep, rule->cross_keep, rule->encoder_keep);
    mha__free(model->ctx, all);
    return status;
}

mha_status mha_prune_choose_joint(const mha_model *model, const mha_head_data *data, const mha_prune_rule *rule,
                                  const mha_prune_joint_options *options, uint8_t *keep, mha_error *err)
{
    enum { ROUNDS = 4 };
    mha_prune_rule r;
    mha_prune_joint_options o;
    if (!model || !data || !keep)
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_choose_joint: %s must not be NULL",
                         !model  ? "model"
                         : !data ? "data"
                                 : "keep");
    MHA__TRY(mha__head_data_no_images(data, err));
    MHA__TRY(mha__options_need(&r, sizeof r, rule, "mha_prune_rule", err));
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_prune_joint_options", err));
    MHA__TRY(mha__prune_check_rule(model, &r, err));
    if (o.rounds < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_joint_options: rounds must be at least 0 (got %lld)",
                         (long long)o.rounds);
    if (o.rounds == 0) o.rounds = ROUNDS;
    return r.cross_keep ? choose_kinds(model, data, &r, &o, keep, err)
                        : mha__prune_jointly(model, data, &r, &o, keep, err);
}
