/* work_steps.c - the messages of shared work, between rank 0 and each other rank. */
#include "library/work_steps.h"

enum { ASK_TAG = 8, ANSWER_TAG = 9 };
static const double PATIENCE = 1.5; /* timeout factor of ranks other than 0, so that rank 0 times out first and names
                                     * the missing rank */

/* ---- rank 0 ---- */

int64_t mha__work_assign(mha__shared_work *w)
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
    const int64_t step = mha__work_assign(w);
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

mha_status mha__work_request(mha_cluster *c, mha_error *err)
{
    mha__shared_work *w = c->work;
    MHA__TRY(mha__cluster_check(c, MPI_Irecv(&w->answer, 1, MPI_INT64_T, 0, ANSWER_TAG, c->comm, &w->request),
                                "MPI_Irecv", err));
    w->asked = true;
    return tell(c, WANTS_STEP, err);
}

mha_status mha__work_await_step(mha_cluster *c, mha_error *err)
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

mha_status mha__work_report(mha_cluster *c, int64_t what, mha_error *err)
{
    const double timeout = c->timeout;
    char sign = 0;
    if (c->info.rank == 0) {
        if (what == HAS_FAILED) c->work->next = c->work->info.steps;
        MHA__TRY(await_reports(c, err));
    } else {
        MHA__TRY(mha__work_await_step(c, err));
        MHA__TRY(tell(c, what, err));
        c->timeout *= PATIENCE;
    }
    const mha_status status = mha_cluster_broadcast(c, 0, &sign, sizeof sign, err);
    c->timeout = timeout;
    return status;
}
