/* cluster_work.c - implements the callbacks of mha/work.h: rank 0 assigns steps to ranks, and each rank sums the
 * results of its steps.
 *
 * Rank 0 answers requests while it computes (between tiles) and while it waits. Every other rank requests its next step
 * before it starts the current step, so the answer usually arrives in time. At the end all ranks report to rank 0,
 * which therefore knows which ranks are missing. The ranks then agree that none has failed, and add their sums. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "library/cluster_struct.h"
#include "library/work_journal.h"

enum { ASK_TAG = 8, ANSWER_TAG = 9 };
static const double PATIENCE = 1.5; /* timeout factor of ranks other than 0, so that rank 0 times out first and names
                                     * the missing rank */

/* Requests and reports that a rank sends to rank 0. */
enum { WANTS_STEP, HAS_FINISHED, HAS_FAILED };

typedef enum stage { IDLE, UNDER_WAY, FAILED } stage;

typedef struct mha__shared_work {
    mha_work callbacks;
    stage stage;
    mha_error failure; /* agreed on by all ranks; valid in stage FAILED */
    mha_work_info info;
    int64_t *memory; /* one allocation for the four arrays below */
    int64_t *sums;   /* [values] sums of the journals that this rank has read and of its recorded steps */
    int64_t *recent; /* [values] sums since the last record */
    int64_t *steps;  /* [steps] step numbers since the last record */
    int64_t *taken;  /* [steps] non-zero = already in a journal */
    int64_t recent_steps;
    mha__journal journal;
    double recorded, added; /* times of the last record and of the last result */

    bool asked; /* an answer is pending */
    int64_t answer;
    MPI_Request request;
    int64_t next; /* rank 0: the next step to assign */
    bool serves;  /* rank 0: ranks may send requests */
    double heard; /* rank 0: time of the last request or report */
    bool *done;   /* rank 0: [ranks] true for ranks that have reported; a separate allocation */
} mha__shared_work;

/* ---- rank 0 ---- */

static int64_t give(mha__shared_work *w)
{
    while (w->next < w->info.steps && w->taken[w->next])
        w->next++;
    return w->next < w->info.steps ? w->next++ : -1;
}

static mha_status answer(mha_cluster *c, int rank, int64_t what, mha_error *err)
{
    mha__shared_work *w = c->work;
    if (what == HAS_FAILED) w->next = w->info.steps; /* no further steps: the other ranks stop */
    if (what != WANTS_STEP) {
        w->done[rank] = true;
        return MHA_OK;
    }
    const int64_t step = give(w);
    return mha__cluster_check(c, MPI_Send(&step, 1, MPI_INT64_T, rank, ANSWER_TAG, c->comm), "MPI_Send", err);
}

mha_status mha__cluster_serve(mha_cluster *cluster, mha_error *err)
{
    while (cluster->work && cluster->work->serves) {
        MPI_Status from;
        int there;
        int64_t what;
        MHA__TRY(mha__cluster_check(cluster, MPI_Iprobe(MPI_ANY_SOURCE, ASK_TAG, cluster->comm, &there, &from),
                                    "MPI_Iprobe", err));
        if (!there) break;
        MHA__TRY(mha__cluster_check(
            cluster, MPI_Recv(&what, 1, MPI_INT64_T, from.MPI_SOURCE, ASK_TAG, cluster->comm, MPI_STATUS_IGNORE),
            "MPI_Recv", err));
        cluster->work->heard = mha__cluster_now();
        MHA__TRY(answer(cluster, from.MPI_SOURCE, what, err));
    }
    return MHA_OK;
}

/* Returns the first rank that has not reported; -1 if all ranks have reported. */
static int missing(const mha_cluster *c)
{
    for (int rank = 1; rank < c->info.ranks; rank++)
        if (!c->work->done[rank]) return rank;
    return -1;
}

/* Waits until all ranks have reported. A rank may have requested one more step after its current step, so each message
 * restarts the timeout of rank 0. */
static mha_status await_reports(mha_cluster *c, mha_error *err)
{
    c->work->heard = mha__cluster_now();
    for (int rank; (rank = missing(c)) >= 0;) {
        MHA__TRY(mha__cluster_serve(c, err));
        const double waited = mha__cluster_now() - c->work->heard;
        if (waited > c->timeout && missing(c) == rank)
            return mha__cluster_break(c, err, "shared work: rank %d (%s) sent no data for %g s", rank, c->hosts[rank],
                                      c->timeout);
        mha__cluster_rest(waited);
    }
    c->work->serves = false;
    return MHA_OK;
}

/* ---- ranks other than 0 ---- */

static mha_status tell(mha_cluster *c, int64_t what, mha_error *err)
{
    return mha__cluster_check(c, MPI_Send(&what, 1, MPI_INT64_T, 0, ASK_TAG, c->comm), "MPI_Send", err);
}

static mha_status ask(mha_cluster *c, mha_error *err)
{
    mha__shared_work *w = c->work;
    MHA__TRY(mha__cluster_check(c, MPI_Irecv(&w->answer, 1, MPI_INT64_T, 0, ANSWER_TAG, c->comm, &w->request),
                                "MPI_Irecv", err));
    w->asked = true;
    return tell(c, WANTS_STEP, err);
}

/* Waits for the answer of rank 0, if a request is pending. */
static mha_status collect(mha_cluster *c, mha_error *err)
{
    mha__shared_work *w = c->work;
    const double since = mha__cluster_now();
    while (w->asked) {
        int there;
        MHA__TRY(mha__cluster_check(c, MPI_Test(&w->request, &there, MPI_STATUS_IGNORE), "MPI_Test", err));
        const double waited = mha__cluster_now() - since;
        w->asked = !there;
        if (there) break;
        if (waited > c->timeout)
            return mha__cluster_break(c, err, "shared work: rank 0 (%s) sent no data for %g s", c->hosts[0],
                                      c->timeout);
        mha__cluster_rest(waited);
    }
    return MHA_OK;
}

/* Reports to rank 0, and waits until all ranks have reported. */
static mha_status report(mha_cluster *c, int64_t what, mha_error *err)
{
    const double timeout = c->timeout;
    char sign = 0;
    if (c->info.rank == 0) {
        if (what == HAS_FAILED) c->work->next = c->work->info.steps;
        MHA__TRY(await_reports(c, err));
    } else {
        MHA__TRY(collect(c, err));
        MHA__TRY(tell(c, what, err));
        c->timeout *= PATIENCE;
    }
    const mha_status status = mha_cluster_broadcast(c, 0, &sign, sizeof sign, err);
    c->timeout = timeout;
    return status;
}

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
        *step = give(w);
        return MHA_OK;
    }
    if (!w->asked) MHA__TRY(ask(c, err));
    MHA__TRY(collect(c, err));
    *step = w->answer;
    return *step < 0 ? MHA_OK : ask(c, err);
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
    MHA__TRY(report(c, own == MHA_OK ? HAS_FINISHED : HAS_FAILED, err));
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
    if (w && w->stage == UNDER_WAY && report(cluster, HAS_FAILED, &why) != MHA_OK) *err = why;
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
