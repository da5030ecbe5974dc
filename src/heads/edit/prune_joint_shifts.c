/* prune_joint_shifts.c - measures by how much the output for each text shifts if a group of heads is removed.
 *
 * A group of layer l does not affect earlier layers, so the run that measures its shift starts at layer l. In an
 * encoder-decoder, all runs start from the tokens, and the layers of its kinds of heads are counted one after
 * another. */
#include "base/error.h"
#include "heads/data/head_data.h"
#include "heads/data/measure_steps.h"
#include "heads/edit/prune_joint.h"
#include "math/hash.h"
#include "math/linalg.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns the layer of head n. */
static mha__head_row row_of(const mha__joint *j, int64_t n)
{
    int64_t row = 0;
    for (int k = 0; j->sets.set + k < mha__head_set_at(&j->sets, n); k++)
        row += j->sets.set[k].layers;
    const mha__head_set *set = mha__head_set_at(&j->sets, n);
    return mha__head_row_of(&j->sets, row + (n - set->first) / set->heads);
}

int64_t mha__joint_group(const mha__joint *j, int64_t first)
{
    const mha__head_row row = row_of(j, first);
    return mha__row_group(&row);
}

void mha__joint_set(mha__joint *j, int64_t first, bool on)
{
    const mha__head_set *set = mha__head_set_at(&j->sets, first);
    for (int64_t h = first; h < first + mha__joint_group(j, first); h++) {
        const int64_t cell = set->cell + (h - set->first) * set->width;
        j->gates[h] = on;
        for (int64_t d = cell; j->means && d < cell + set->width; d++)
            j->fills[d] = on ? 0 : (float)j->means[d];
    }
}

/* Writes the output of the last run for a text to `to`. Subtracts the output in `from` unless it is NULL. */
static void read(const mha__joint *j, int64_t text, const float *from, float *to)
{
    const int64_t i = text * j->width;
    const double *e = j->outcome.embeddings + i;
    const double norm = sqrt(mha__dot(j->width, e, e));
    for (int64_t n = 0; n < j->width; n++) {
        const float x = j->outcome.predicts ? (float)j->outcome.losses[text] : (float)(norm == 0 ? 0 : e[n] / norm);
        to[i + n] = from ? x - from[i + n] : x;
    }
}

/* The texts of one batch. Each batch is one step of a round. */
typedef struct texts_of {
    int64_t number, count;
    const int64_t *text;
} texts_of;

static mha_status run(const mha__joint *j, const texts_of *batch, const float *from, float *to, mha_error *err)
{
    MHA__TRY(mha__outcome_batch(&j->outcome, batch->number, j->gates, j->means ? j->fills : NULL, err));
    for (int64_t b = 0; b < batch->count; b++)
        read(j, batch->text[b], from, to);
    return MHA_OK;
}

bool mha__joint_keeps(const mha__joint *j, int64_t first)
{
    return j->slot[first] >= 0 && j->keep[first];
}

static mha_status measure_layer(mha__joint *j, int64_t number, const texts_of *batch, mha_error *err)
{
    const mha__head_row row = mha__head_row_of(&j->sets, number);
    for (int64_t first = row.first; first < row.first + row.count; first++) {
        if (!mha__joint_keeps(j, first)) continue;
        mha__joint_set(j, first, false);
        const mha_status status = run(j, batch, j->now, j->moved + j->slot[first] * j->cells, err);
        mha__joint_set(j, first, true);
        if (status != MHA_OK) return status;
    }
    return MHA_OK;
}

static mha_status measure_batch(void *user, int64_t number, mha_error *err)
{
    mha__joint *j = user;
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
    const mha__joint *j = user;
    return j->round * mha_head_data_tokens(j->outcome.data) + mha__tokens_before(j->outcome.data, batch);
}

/* Checks the outputs of the current model: shifts from an output that is not finite cannot be compared. */
static mha_status check_finite(const mha__joint *j, mha_error *err)
{
    for (int64_t n = 0; n < j->cells; n++)
        if (!isfinite(j->now[n]))
            return mha__fail(err, MHA_ERR_NOT_FINITE, "text %lld of %lld: %s must be finite to choose heads (got %g)",
                             (long long)(n / j->width) + 1, (long long)mha_head_data_count(j->outcome.data),
                             j->outcome.predicts ? "the loss" : "the embedding", (double)j->now[n]);
    return MHA_OK;
}

mha_status mha__joint_measure(mha__joint *j, mha_error *err)
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
    MHA__TRY(check_finite(j, err));
    if (j->round == 0) memcpy(j->whole, j->now, (size_t)j->cells * sizeof *j->now);
    for (int64_t n = 0; n < j->cells; n++)
        j->sum[n] = j->now[n] - j->whole[n];
    return MHA_OK;
}
