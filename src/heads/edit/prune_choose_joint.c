/* prune_choose_joint.c - selects the heads to remove together, by their joint effect.
 *
 * Removing a group of heads shifts the output for each text: an encoder's L2-normalized embedding by a vector, a
 * decoder's loss by a scalar. The shifts are assumed to be additive. The next group to remove is the one with the
 * smallest total shift: for an encoder, the shortest vectors; for a decoder, the lowest loss. The assumption becomes
 * less accurate with every removed group, so the shifts are measured again after each round, batch by batch and layer
 * by layer. A group of layer l does not affect earlier layers, so the run that measures its shift starts at layer l. In
 * an encoder-decoder, all runs start from the tokens, and the layers of its kinds of heads are counted one after
 * another. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "heads/data/evaluate_texts.h"
#include "heads/data/head_data.h"
#include "heads/data/measure_steps.h"
#include "heads/edit/prune_model.h"
#include "layer/arena.h"
#include "math/hash.h"
#include "math/linalg.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct joint {
    const mha_model *m;
    const mha_prune_rule *rule;
    mha__outcome outcome;
    int64_t cells, width; /* elements in the shifts of all texts, and in the shift of one text (E or 1) */
    mha__head_sets sets;
    int64_t rows;   /* number of layers that the rule covers */
    uint8_t *keep;  /* [total] */
    int32_t *order; /* [total] or NULL */
    int32_t gone;   /* number of heads removed so far */
    float *gates;   /* [total] `keep` as gates, 1 or 0 */
    double *means;  /* [sets.cells]; NULL = the output of removed heads is 0 */
    float *fills;   /* [sets.cells] mean outputs of the removed heads, 0 for kept heads */
    float *whole;   /* [cells] output of the source model */
    float *now;     /* [cells] output of the current model */
    float *moved;   /* [groups, cells] the shift caused by removing each group; follows `now` in memory */
    int64_t values; /* size of `now` and `moved` in int64_t, for the measure of a round */
    int64_t round, rounds;
    int64_t *slot; /* [total] index of the group that begins with a head; -1 for other heads */
    int64_t groups;
    float *sum; /* [cells] now - whole, plus the shifts of the groups selected in this round */
} joint;

/* ---- shifts ---- */

/* Returns the layer of head n. */
static mha__head_row row_of(const joint *j, int64_t n)
{
    int64_t row = 0;
    for (int k = 0; j->sets.set + k < mha__head_set_at(&j->sets, n); k++)
        row += j->sets.set[k].layers;
    const mha__head_set *set = mha__head_set_at(&j->sets, n);
    return mha__head_row_of(&j->sets, row + (n - set->first) / set->heads);
}

/* Returns the number of heads in the group that begins with head `first`. */
static int64_t size_of(const joint *j, int64_t first)
{
    const mha__head_row row = row_of(j, first);
    return mha__row_group(&row);
}

/* Enables or disables the heads of a group. */
static void set(joint *j, int64_t first, bool on)
{
    const mha__head_set *set = mha__head_set_at(&j->sets, first);
    for (int64_t h = first; h < first + size_of(j, first); h++) {
        const int64_t cell = set->cell + (h - set->first) * set->width;
        j->gates[h] = on;
        for (int64_t d = cell; j->means && d < cell + set->width; d++)
            j->fills[d] = on ? 0 : (float)j->means[d];
    }
}

/* Writes the output of the last run for a text to `to`. Subtracts the output in `from` unless it is NULL. */
static void read(const joint *j, int64_t text, const float *from, float *to)
{
    const int64_t i = text * j->width;
    const double *e = j->outcome.embeddings + i;
    const double norm = sqrt(mha__dot(j->width, e, e));
    for (int64_t n = 0; n < j->width; n++) {
        const float x = j->outcome.predicts ? (float)j->outcome.losses[text] : (float)(norm > 0 ? e[n] / norm : 0);
        to[i + n] = from ? x - from[i + n] : x;
    }
}

/* The texts of one batch. Each batch is one step of a round. */
typedef struct texts_of {
    int64_t number, count;
    const int64_t *text;
} texts_of;

static mha_status run(const joint *j, const texts_of *batch, const float *from, float *to, mha_error *err)
{
    MHA__TRY(mha__outcome_batch(&j->outcome, batch->number, j->gates, j->means ? j->fills : NULL, err));
    for (int64_t b = 0; b < batch->count; b++)
        read(j, batch->text[b], from, to);
    return MHA_OK;
}

/* Returns true if a group begins with head `first` and has not been removed. */
static bool is_there(const joint *j, int64_t first)
{
    return j->slot[first] >= 0 && j->keep[first];
}

static mha_status measure_layer(joint *j, int64_t number, const texts_of *batch, mha_error *err)
{
    const mha__head_row row = mha__head_row_of(&j->sets, number);
    for (int64_t first = row.first; first < row.first + row.count; first++) {
        if (!is_there(j, first)) continue;
        set(j, first, false);
        const mha_status status = run(j, batch, j->now, j->moved + j->slot[first] * j->cells, err);
        set(j, first, true);
        if (status != MHA_OK) return status;
    }
    return MHA_OK;
}

static mha_status measure_batch(void *user, int64_t number, mha_error *err)
{
    joint *j = user;
    mha_model_input input;
    texts_of batch = {.number = number};
    MHA__TRY(mha__head_data_any(j->outcome.data, number, &input, &batch.text, err));
    batch.count = input.batch;
    j->outcome.layer = 0;
    MHA__TRY(run(j, &batch, NULL, j->now, err));
    for (int64_t row = 0; row < j->rows; row++) {
        MHA__TRY(measure_layer(j, row, &batch, err));
        if (row < j->rows - 1 && j->sets.count == 1)
            MHA__TRY(mha__outcome_advance(&j->outcome, number, j->gates, j->means ? j->fills : NULL, err));
    }
    return MHA_OK;
}

static int64_t tokens_before(const void *user, int64_t batch)
{
    const joint *j = user;
    return j->round * mha_head_data_tokens(j->outcome.data) + mha__tokens_before(j->outcome.data, batch);
}

static mha_status measure(joint *j, mha_error *err)
{
    const mha_head_data *data = j->outcome.data;
    const size_t heads = (size_t)j->sets.total;
    char options[96];
    snprintf(options, sizeof options, "shifts of heads, round %lld of %lld, fill %d, keep %llx", (long long)j->round,
             (long long)j->rounds, j->means != NULL, (unsigned long long)mha__hash(0, j->keep, heads));
    const mha__measure round = {.model = j->m,
                                .data = data,
                                .title = "choose heads",
                                .options = options,
                                .steps = mha__head_data_batches(data),
                                .values = (int64_t *)(void *)j->now,
                                .count = j->values,
                                .user = j,
                                .run = measure_batch,
                                .before = tokens_before,
                                .whole = j->rounds * mha_head_data_tokens(data)};
    memset(j->now, 0, (size_t)j->values * sizeof *round.values);
    MHA__TRY(mha__measure_run(&round, err));
    if (j->round == 0) memcpy(j->whole, j->now, (size_t)j->cells * sizeof *j->now);
    for (int64_t n = 0; n < j->cells; n++)
        j->sum[n] = j->now[n] - j->whole[n];
    return MHA_OK;
}

/* ---- selection ---- */

/* Returns the cost after adding the shift `more`: for an encoder, the sum of squares, which is twice the sum of 1 -
 * cos; for a decoder, the sum of the losses. */
static double cost(const joint *j, const float *more)
{
    double total = 0;
    for (int64_t n = 0; n < j->cells; n++) {
        const double x = (double)j->sum[n] + (double)more[n];
        total += j->outcome.predicts ? x : x * x;
    }
    return total;
}

static bool may_go(const joint *j, int64_t number)
{
    const mha__head_row row = mha__head_row_of(&j->sets, number);
    const int64_t left = mha__row_kept(&row, j->keep), size = mha__row_group(&row);
    if (!mha__row_may_lose(&row) || left - size < mha__max64(j->rule->floor, 1)) return false;
    const bool each = j->rule->per_layer != 0;
    return mha__prune_takes(j->rule, mha__prune_wanted(&j->sets, j->rule, each ? number : -1),
                            each ? row.count - left : j->gone, size);
}

static void remove_group(joint *j, int64_t first)
{
    const int64_t size = size_of(j, first);
    const float *more = j->moved + j->slot[first] * j->cells;
    for (int64_t n = 0; n < j->cells; n++)
        j->sum[n] += more[n];
    set(j, first, false);
    memset(j->keep + first, 0, (size_t)size);
    j->gone += (int32_t)size;
    for (int64_t h = first; j->order && h < first + size; h++)
        j->order[h] = j->gone;
}

/* Removes the group with the lowest cost (on ties, the last one); returns false if no group may be removed. */
static bool choose_one(joint *j)
{
    int64_t best = -1;
    double least = INFINITY;
    for (int64_t number = j->rows - 1; number >= 0; number--) {
        const mha__head_row row = mha__head_row_of(&j->sets, number);
        const bool goes = may_go(j, number);
        for (int64_t first = row.first + row.count - 1; goes && first >= row.first; first--) {
            if (!is_there(j, first)) continue;
            const double here = cost(j, j->moved + j->slot[first] * j->cells);
            if (best >= 0 && !(here < least)) continue;
            least = here;
            best = first;
        }
    }
    if (best >= 0) remove_group(j, best);
    return best >= 0;
}

/* Returns the number of heads that the rule removes if the minimum of each layer is ignored. */
static double heads_to_go(const joint *j)
{
    double heads = 0;
    if (!j->rule->per_layer) return mha__prune_wanted(&j->sets, j->rule, -1);
    for (int64_t row = 0; row < j->rows; row++)
        heads += mha__prune_wanted(&j->sets, j->rule, row);
    return heads;
}

static mha_status check_gone(const joint *j, mha_error *err)
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

static mha_status choose(joint *j, int64_t rounds, mha_error *err)
{
    const int64_t wanted = llround(heads_to_go(j)); /* only limits the rounds; mha__prune_takes decides on halves */
    bool more = true;
    j->rounds = mha__min64(rounds, wanted);
    for (j->round = 0; j->round < j->rounds && more; j->round++) {
        MHA__TRY(measure(j, err));
        while (more && j->gone < mha__ceil_div(wanted * (j->round + 1), j->rounds))
            more = choose_one(j);
    }
    return check_gone(j, err);
}

/* ---- public function ---- */

static void lay_out(mha__arena *arena, joint *j, const mha_head_data *data)
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
static void begin(joint *j)
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

static mha_status run_joint(joint *j, const mha_head_data *data, const mha_prune_joint_options *o, mha_error *err)
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
    joint j = {.m = model, .rule = rule, .keep = keep, .order = options->order, .sets = mha__head_sets_of(model)};
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
