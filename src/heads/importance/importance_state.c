/* importance_state.c - runs group after group until the last one, or until the ranking has converged; stores the state
 * in a file after each, if requested. */
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "heads/data/measure_state.h"
#include "heads/importance/importance.h"
#include "math/hash.h"

/* ---- contents of the file besides the tally ---- */

static void keep(mha__importance_job *s)
{
    const mha__tally *t = &s->tally;
    const double kept[MHA__KEPT] = {(double)t->units,
                                    t->weight,
                                    t->weight_square,
                                    t->half_weight[0],
                                    t->half_weight[1],
                                    s->loss,
                                    (double)s->groups,
                                    s->identity,
                                    s->before ? 1 : 0,
                                    s->settled ? 1 : 0,
                                    (double)s->first + (double)s->count};
    for (int n = 0; n < MHA__KEPT; n++)
        s->kept[n] = kept[n];
}

static bool is_count(double x, int64_t most)
{
    return x >= 0 && x <= (double)most && x == floor(x);
}

static mha_status restore(mha__importance_job *s, mha_error *err)
{
    mha__tally *t = &s->tally;
    const double *kept = s->kept;
    if (!is_count(kept[0], s->units) || !is_count(kept[6], s->units))
        return mha__fail(err, MHA_ERR_FORMAT,
                         "%s: \"kept\" must have counts of texts and groups up to %lld (got %g and %g)",
                         s->options.state, (long long)s->units, kept[0], kept[6]);
    t->units = (int64_t)kept[0];
    t->weight = kept[1];
    t->weight_square = kept[2];
    t->half_weight[0] = kept[3];
    t->half_weight[1] = kept[4];
    s->loss = kept[5];
    s->groups = (int64_t)kept[6];
    s->identity = kept[7];
    s->before = kept[8] != 0;
    s->settled = kept[9] != 0;
    return MHA_OK;
}

/* ---- groups ---- */

static mha_status run_group(mha__importance_job *s, mha_error *err)
{
    double halves = NAN;
    MHA__TRY(mha__importance_group(s, err));
    s->before = s->settled;
    if (s->options.settle > 0) MHA__TRY(mha__importance_halves(s, &halves, err));
    s->settled = halves >= s->options.settle;
    return MHA_OK;
}

static mha_status run_groups(mha__importance_job *s, mha__state *state, int64_t done, mha_error *err)
{
    for (int64_t n = 0; n < done; n++)
        mha__importance_next(s);
    while (!(s->before && s->settled) && mha__importance_next(s)) {
        const mha_status status = run_group(s, err);
        if (status == MHA_ERR_CANCELLED) mha__state_save(state, done, NULL);
        if (status != MHA_OK) return status;
        keep(s);
        MHA__TRY(mha__state_keep(state, ++done, err));
    }
    return s->options.state ? mha__state_save(state, done, err) : MHA_OK;
}

static uint64_t labels_hash(const mha__importance_job *s)
{
    const int32_t *labels = s->options.labels;
    return labels ? mha__hash(0, labels, (size_t)mha_head_data_tokens(s->data) * sizeof *labels) : 0;
}

mha_status mha__importance_groups(mha__importance_job *s, mha_error *err)
{
    const mha_importance_options *o = &s->options;
    char words[256];
    snprintf(words, sizeof words,
             "%s, loss %s, scale %.17g, %d probes, batches of %lld, settle %.17g, seed %llu, labels %llx",
             mha_importance_score_key(o->by), mha_head_loss_key(o->loss), o->loss_scale, o->probes,
             (long long)s->per_group, o->settle, (unsigned long long)o->seed, (unsigned long long)labels_hash(s));
    const mha__state_of of = {
        .path = o->state, .options = words, .steps = (s->units + s->per_group - 1) / s->per_group};
    const mha_named_tensor sums[] = {
        {.name = "sums", .dtype = MHA_F64, .rank = 2, .shape = {5, s->total}, .data = s->tally.sum},
        {.name = "kept", .dtype = MHA_F64, .rank = 1, .shape = {MHA__KEPT}, .data = s->kept}};
    mha__state state;
    int64_t done = 0;
    MHA__TRY(mha__state_open(&state, s->model, s->data, &of, sums, 2, &done, err));
    if (done > 0) MHA__TRY(restore(s, err));
    return run_groups(s, &state, done, err);
}
