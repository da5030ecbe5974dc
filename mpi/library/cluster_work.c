/* cluster_work.c - implements the callbacks of mha/work.h: rank 0 assigns steps to ranks (work_steps.h), and each rank
 * sums the results of its steps. At the end, the ranks agree that none has failed, and add their sums. */
#include "library/work_steps.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- beginning of shared work ---- */

static mha_status allocate(mha_cluster *c, mha_error *err)
{
    mha__shared_work *w = c->work;
    const size_t count = 2 * (size_t)w->info.values + 2 * (size_t)w->info.steps;
    w->memory = calloc(count + 1, sizeof *w->memory);
    w->done = calloc((size_t)c->info.ranks, sizeof *w->done);
    if (!w->memory || !w->done)
        return mha__cluster_no_memory(c, err, (count + 1) * sizeof *w->memory, "the results of shared work");
    w->sums = w->memory;
    w->recent = w->sums + w->info.values;
    w->steps = w->recent + w->info.values;
    w->taken = w->steps + w->info.steps;
    return MHA_OK;
}

static mha_status compare(mha_cluster *c, const mha_work_info *info, mha_error *err)
{
    const struct {
        const char *what, *text;
    } texts[] = {{"the data", info->data},
                 {"the model and the CPU instruction set", info->model},
                 {"the measurement", info->name},
                 {"the state file", info->state ? info->state : ""}};
    const int64_t sizes[] = {info->steps, info->values};
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        MHA__TRY(mha_cluster_same(c, texts[n].what, texts[n].text, strlen(texts[n].text), err));
    return mha_cluster_same(c, "the size of the work", sizes, sizeof sizes, err);
}

/* Counts the existing journals: FILE.0, FILE.1 and so on, up to the first missing file. */
static int64_t count_journals(const char *state)
{
    char path[4096];
    int count = 0;
    while (mha__journal_name(state, count, path, sizeof path) && access(path, F_OK) == 0)
        count++;
    return count;
}

/* Reads, on rank R, the journals R, R + ranks and so on, and keeps the first of these journals open. */
static mha_status read_journals(mha_cluster *c, const mha_work_info *info, int64_t count, mha_error *err)
{
    mha__shared_work *w = c->work;
    for (int64_t n = c->info.rank; n == c->info.rank || n < count; n += c->info.ranks) {
        char path[4096];
        mha__journal other;
        const bool own = n == c->info.rank;
        if (!mha__journal_name(info->state, (int)n, path, sizeof path))
            return mha__cluster_fail(c, err, MHA_ERR_ARG, "name of the state file must have at most %zu bytes",
                                     sizeof path - 16);
        MHA__TRY(mha__journal_read(own ? &w->journal : &other, c, path, info, own, w->sums, w->taken, err));
    }
    return MHA_OK;
}

static mha_status open_journals(mha_cluster *c, const mha_work_info *info, mha_error *err)
{
    mha__shared_work *w = c->work;
    mha_error why = {0};
    if (!info->state) return MHA_OK;
    const int64_t count = count_journals(info->state);
    MHA__TRY(mha_cluster_same(c, "the number of journals (all hosts must share them)", &count, sizeof count, err));
    mha_status status = read_journals(c, info, count, &why);
    status = mha__cluster_agree_now(c, status, &why);
    if (status != MHA_OK) {
        if (err) *err = why;
        return status;
    }
    MHA__TRY(mha_cluster_sum(c, w->taken, info->steps, err));
    for (int64_t n = 0; n < info->steps; n++)
        if (w->taken[n] > 1)
            return mha__cluster_fail(NULL, err, MHA_ERR_FORMAT,
                                     "%s.*: each step must be in only one journal (got step %lld in %lld journals)",
                                     info->state, (long long)n, (long long)w->taken[n]);
    return MHA_OK;
}

static void clear(mha__shared_work *w)
{
    mha__journal_close(&w->journal);
    free(w->memory);
    free(w->done);
    w->memory = NULL;
    w->done = NULL;
    w->serves = false;
    w->stage = IDLE;
}

/* Stores a failure that all ranks have agreed on. */
static mha_status failed(mha__shared_work *w, mha_status status, const mha_error *why, mha_error *err)
{
    clear(w);
    w->stage = FAILED;
    w->failure = *why;
    w->failure.status = status;
    if (err) *err = w->failure;
    return status;
}

static mha_status prepare(mha_cluster *c, const mha_work_info *info, mha_error *why)
{
    mha__shared_work *w = c->work;
    /* A rank that failed before the work began takes part in this call through mha_cluster_agree. */
    MHA__TRY(mha__cluster_agree_now(c, MHA_OK, why));
    MHA__TRY(compare(c, info, why));
    w->info = *info;
    const mha_status status = allocate(c, why);
    MHA__TRY(mha__cluster_agree_now(c, status, why));
    return open_journals(c, info, why);
}

static mha_status begin(void *user, const mha_work_info *info, mha_error *err)
{
    mha_cluster *c = user;
    mha__shared_work *w = c->work;
    mha_error why = {0};
    if (w->stage != IDLE)
        return mha__cluster_fail(c, err, MHA_ERR_ARG, "previous shared work must end before new shared work begins");
    w->journal = (mha__journal){.fd = -1};
    const mha_status status = prepare(c, info, &why);
    if (status != MHA_OK) return failed(w, status, &why, err);
    w->recent_steps = w->next = 0;
    w->asked = false;
    w->serves = c->info.rank == 0;
    w->recorded = w->added = mha__cluster_now();
    w->stage = UNDER_WAY;
    return MHA_OK;
}

/* ---- steps ---- */

static mha_status next(void *user, int64_t *step, mha_error *err)
{
    mha_cluster *c = user;
    mha__shared_work *w = c->work;
    if (c->info.rank == 0) {
        MHA__TRY(mha__cluster_serve(c, err));
        *step = mha__work_assign(w);
        return MHA_OK;
    }
    if (!w->asked) MHA__TRY(mha__work_request(c, err));
    MHA__TRY(mha__work_await_step(c, err));
    *step = w->answer;
    return *step < 0 ? MHA_OK : mha__work_request(c, err);
}

/* Appends the recent results to the journal, then adds them to the sums. */
static mha_status record(mha__shared_work *w, mha_error *err)
{
    w->recorded = mha__cluster_now();
    if (w->recent_steps == 0) return MHA_OK;
    if (w->journal.fd >= 0)
        MHA__TRY(mha__journal_append(&w->journal, &w->info, w->steps, w->recent_steps, w->recent, err));
    for (int64_t n = 0; n < w->info.values; n++)
        w->sums[n] = (int64_t)((uint64_t)w->sums[n] + (uint64_t)w->recent[n]);
    memset(w->recent, 0, (size_t)w->info.values * sizeof *w->recent);
    w->recent_steps = 0;
    return MHA_OK;
}

static mha_status add(void *user, int64_t step, const int64_t *values, mha_error *err)
{
    mha_cluster *c = user;
    mha__shared_work *w = c->work;
    for (int64_t n = 0; n < w->info.values; n++)
        w->recent[n] = (int64_t)((uint64_t)w->recent[n] + (uint64_t)values[n]);
    w->steps[w->recent_steps++] = step;
    const double now = mha__cluster_now(), took = now - w->added; /* the next step may take as long */
    w->added = now;
    return now + took - w->recorded < c->record_pause ? MHA_OK : record(w, err);
}

/* ---- end of shared work ---- */

static mha_status total(void *user, int64_t *values, mha_error *err)
{
    mha_cluster *c = user;
    mha__shared_work *w = c->work;
    mha_error why = {0};
    const mha_status own = record(w, &why);
    MHA__TRY(mha__work_report(c, own == MHA_OK ? HAS_FINISHED : HAS_FAILED, err));
    const mha_status status = mha__cluster_agree_now(c, own, &why);
    if (status != MHA_OK) return failed(w, status, &why, err);
    MHA__TRY(mha_cluster_sum(c, w->sums, w->info.values, err));
    memcpy(values, w->sums, (size_t)w->info.values * sizeof *values);
    clear(w);
    return MHA_OK;
}

bool mha__cluster_work_leave(mha_cluster *cluster, mha_error *err)
{
    mha__shared_work *w = cluster->work;
    mha_error why = {0};
    const bool knows = w && w->stage == FAILED;
    if (knows) *err = w->failure;
    if (w && w->stage == UNDER_WAY && mha__work_report(cluster, HAS_FAILED, &why) != MHA_OK) *err = why;
    if (w) clear(w);
    return knows;
}

const mha_work *mha_cluster_work(mha_cluster *cluster)
{
    if (!cluster) return NULL;
    if (!cluster->work) {
        cluster->work = calloc(1, sizeof *cluster->work);
        if (!cluster->work) return NULL;
        cluster->work->callbacks = (mha_work){sizeof(mha_work), cluster, begin, next, add, total};
        cluster->work->journal.fd = -1;
    }
    return &cluster->work->callbacks;
}

void mha__cluster_work_free(mha_cluster *cluster)
{
    if (cluster->work && !cluster->broken) clear(cluster->work);
    if (!cluster->broken) free(cluster->work); /* if the cluster is broken, MPI may still write an answer here */
}
