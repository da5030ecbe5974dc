/* measure_steps.c - runs the steps of a measure in one process or in several processes. */
#include "heads/data/measure_steps.h"

#include "base/ctx.h"
#include "base/error.h"
#include "heads/data/head_data.h"
#include "heads/data/measure_state.h"
#include "math/fixed_sum.h"
#include <string.h>

static mha_status show_progress(const mha__measure *m, int64_t step, mha_error *err)
{
    const int64_t before = m->before ? m->before(m->user, step) : mha__tokens_before(m->data, step);
    const int64_t whole = m->before ? m->whole : mha_head_data_tokens(m->data);
    return mha__progress(mha_model_ctx(m->model), m->title, before, whole, err);
}

static bool has_ended(const mha__measure *m)
{
    return m->ended && m->ended(m->user);
}

/* Runs all steps that the state file does not contain yet. */
static mha_status run_alone(const mha__measure *m, mha_error *err)
{
    const mha_named_tensor sums[] = {
        {.name = "sums", .dtype = MHA_I64, .rank = 1, .shape = {m->count}, .data = m->values}};
    char mark[17] = "";
    const mha__state_of of = {.path = m->state, .options = m->options, .steps = m->steps, .mark = mark};
    mha__state state;
    int64_t done;
    if (m->state) MHA__TRY(mha__head_data_mark(m->data, mark, err));
    MHA__TRY(mha__state_open(&state, m->model, &of, sums, 1, &done, err));
    if (m->check) MHA__TRY(m->check(m->user, done, err));
    for (; done < m->steps && !has_ended(m); done++) {
        mha_status status = show_progress(m, done, err);
        const bool started = status == MHA_OK;
        if (started) status = m->run(m->user, done, err);
        if (status == MHA_ERR_CANCELED && !(started && m->spoils)) mha__state_save(&state, done, NULL);
        if (status != MHA_OK) return status;
        MHA__TRY(mha__state_keep(&state, done + 1, err));
    }
    return done < m->steps ? mha__state_save(&state, done, err) : MHA_OK;
}

/* Runs the steps that `work` assigns to this process. */
static mha_status run_shared_steps(const mha__measure *m, const mha_work *work, mha_error *err)
{
    for (int64_t next = 0, step;; next = step + 1) {
        MHA__TRY(work->next(work->user, &step, err));
        if (step < 0) return MHA_OK;
        if (step < next || step >= m->steps)
            return mha__fail(err, MHA_ERR_ARG, "mha_work: next must return a step from %lld to %lld (got %lld)",
                             (long long)next, (long long)m->steps - 1, (long long)step);
        MHA__TRY(show_progress(m, step, err));
        MHA__TRY(m->run(m->user, step, err));
        MHA__TRY(work->add(work->user, step, m->values, err));
        memset(m->values, 0, (size_t)m->count * sizeof *m->values);
    }
}

static mha_status run_shared(const mha__measure *m, const mha_work *work, mha_error *err)
{
    char model[17], data[17]; /* fingerprints */
    if (m->steps > MHA__FIXED_COMBINED)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: mha_work must divide at most %d steps (got %lld)", m->title,
                         (int)MHA__FIXED_COMBINED, (long long)m->steps);
    MHA__TRY(mha_model_fingerprint(m->model, model, err));
    MHA__TRY(mha__head_data_mark(m->data, data, err));
    const mha_work_info info = {
        .name = m->options, .model = model, .data = data, .state = m->state, .steps = m->steps, .values = m->count};
    MHA__TRY(work->begin(work->user, &info, err));
    MHA__TRY(run_shared_steps(m, work, err));
    return work->total(work->user, m->values, err);
}

mha_status mha__measure_run(const mha__measure *m, mha_error *err)
{
    const mha_work *work = mha__head_data_work(m->data);
    if (work && m->ended)
        return mha__fail(err, MHA_ERR_ARG,
                         "%s: data must be created without mha_work, because the last step is not known", m->title);
    MHA__TRY(work ? run_shared(m, work, err) : run_alone(m, err));
    return show_progress(m, m->steps, err);
}
