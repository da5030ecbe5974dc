/* cluster_transfer.c - messages between two ranks, divided into pieces; every wait has a timeout.
 *
 * All communication of the cluster, including the collective functions, uses these messages, so the error message of
 * every wait can name a peer. MPI delivers messages between two ranks in order, so one tag is enough. A wait polls. At
 * first, it yields the core between polls, because the peer may share the core. After a few milliseconds it sleeps
 * between polls, for 1 % of the time waited so far (0.1 to 10 ms). Long waits therefore do not occupy a core. */
#include "library/cluster_struct.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TAG = 7, BUSY = 8, FIRST_ROOM = 16 };       /* BUSY: tag of empty messages of rank 0 to ranks that may be idle */
static const double TICK = 50e-6, YIELDING = 5e-3; /* [s] */
static const double SIGNS = 8;                     /* such messages per timeout */

/* ---- the list of messages ---- */

/* Returns the failure of a broken cluster, whose messages must not progress: their memory may be freed already. */
static mha_status check_usable(const mha_cluster *c, mha_error *err)
{
    if (!c->broken) return MHA_OK;
    if (err) *err = c->failure;
    return c->failure.status;
}

/* Prepares one more message: fails if the cluster is broken, and reserves space in the three arrays. If an array cannot
 * grow, the arrays that have already grown stay larger. */
static mha_status make_room(mha_cluster *c, mha_error *err)
{
    MHA__TRY(check_usable(c, err));
    if (c->pending < c->capacity) return MHA_OK;
    const int more = c->capacity > 0 ? 2 * c->capacity : FIRST_ROOM;
    MPI_Request *requests = realloc(c->requests, (size_t)more * sizeof *requests);
    if (requests) c->requests = requests;
    mha__message *messages = realloc(c->messages, (size_t)more * sizeof *messages);
    if (messages) c->messages = messages;
    int *finished = realloc(c->finished, (size_t)more * sizeof *finished);
    if (finished) c->finished = finished;
    if (!requests || !messages || !finished)
        return mha__cluster_no_memory(c, err, (size_t)more * sizeof *requests, "pending messages");
    c->capacity = more;
    return MHA_OK;
}

void mha__cluster_transfers_free(mha_cluster *cluster)
{
    free(cluster->requests);
    free(cluster->messages);
    free(cluster->finished);
}

static mha_status start(mha_cluster *c, void *data, size_t bytes, int peer, bool sends, mha_error *err)
{
    for (size_t at = 0; at < bytes;) {
        const size_t left = bytes - at;
        const int piece = (int)(left < (size_t)c->message_bytes ? left : (size_t)c->message_bytes);
        char *from = (char *)data + at;
        MHA__TRY(make_room(c, err));
        MPI_Request *request = &c->requests[c->pending];
        const int result = sends ? MPI_Isend(from, piece, MPI_BYTE, peer, TAG, c->comm, request)
                                 : MPI_Irecv(from, piece, MPI_BYTE, peer, TAG, c->comm, request);
        MHA__TRY(mha__cluster_check(c, result, sends ? "MPI_Isend" : "MPI_Irecv", err));
        c->messages[c->pending++] = (mha__message){.peer = peer, .sends = sends};
        at += (size_t)piece;
    }
    return MHA_OK;
}

mha_status mha__cluster_send(mha_cluster *cluster, const void *data, size_t bytes, int peer, mha_error *err)
{
    return start(cluster, (void *)data, bytes, peer, true, err);
}

mha_status mha__cluster_receive(mha_cluster *cluster, void *data, size_t bytes, int peer, mha_error *err)
{
    return start(cluster, data, bytes, peer, false, err);
}

mha_status mha__cluster_add(mha_cluster *cluster, float *values, int64_t count, mha_error *err)
{
    const int64_t max =
        cluster->message_bytes / (int64_t)sizeof *values > 0 ? cluster->message_bytes / (int64_t)sizeof *values : 1;
    for (int64_t at = 0; at < count; at += max) {
        const int piece = (int)(count - at < max ? count - at : max);
        MHA__TRY(make_room(cluster, err));
        MHA__TRY(mha__cluster_check(cluster,
                                    MPI_Iallreduce(MPI_IN_PLACE, values + at, piece, MPI_FLOAT, MPI_SUM, cluster->comm,
                                                   &cluster->requests[cluster->pending]),
                                    "MPI_Iallreduce", err));
        cluster->messages[cluster->pending++] = (mha__message){.peer = -1};
    }
    return MHA_OK;
}

/* ---- waiting ---- */

/* Lets messages progress, removes the finished messages from the list, and sets *count to the number of finished
 * messages. */
static mha_status test_messages(mha_cluster *c, int *count, mha_error *err)
{
    int left = 0;
    *count = 0;
    if (c->pending == 0) return MHA_OK;
    MHA__TRY(mha__cluster_check(c, MPI_Testsome(c->pending, c->requests, count, c->finished, MPI_STATUSES_IGNORE),
                                "MPI_Testsome", err));
    if (*count == MPI_UNDEFINED) *count = c->pending; /* no request is active anymore */
    for (int n = 0; n < c->pending; n++) {
        if (c->requests[n] == MPI_REQUEST_NULL) continue;
        c->requests[left] = c->requests[n];
        c->messages[left++] = c->messages[n];
    }
    c->pending = left;
    return MHA_OK;
}

static mha_status timed_out(mha_cluster *c, const char *step, mha_error *err)
{
    const mha__message *m = &c->messages[0];
    if (m->peer < 0) return mha__cluster_break(c, err, "%s: a rank sent no data for %g s", step, c->timeout);
    return mha__cluster_break(c, err, "%s: rank %d (%s) %s no data for %g s", step, m->peer, c->hosts[m->peer],
                              m->sends ? "accepted" : "sent", c->timeout);
}

void mha__cluster_rest(double waited)
{
    const double nap = waited / 100 < 1e-4 ? 1e-4 : waited / 100 > 1e-2 ? 1e-2 : waited / 100;
    if (waited < YIELDING)
        sched_yield();
    else
        nanosleep(&(struct timespec){0, (long)(nap * 1e9)}, NULL);
}

/* ---- rank 0 is busy ---- */

/* On rank 0 of a training run: signals to the other ranks, which may be idle, that this rank is busy. */
static mha_status send_signs(mha_cluster *c, double now, mha_error *err)
{
    if (c->info.rank > 0 || !c->training || now - c->last_sign < c->timeout / SIGNS) return MHA_OK;
    c->last_sign = now;
    for (int rank = 1; rank < c->info.ranks; rank++) {
        MPI_Request request;
        MHA__TRY(mha__cluster_check(c, MPI_Isend(NULL, 0, MPI_BYTE, rank, BUSY, c->comm, &request), "MPI_Isend", err));
        MHA__TRY(mha__cluster_check(c, MPI_Request_free(&request), "MPI_Request_free", err));
    }
    return MHA_OK;
}

/* Receives one of these messages if there is one; sets *received. */
static mha_status take_sign(mha_cluster *c, int *received, mha_error *err)
{
    *received = 0;
    if (!c->idle) return MHA_OK;
    MHA__TRY(mha__cluster_check(c, MPI_Iprobe(0, BUSY, c->comm, received, MPI_STATUS_IGNORE), "MPI_Iprobe", err));
    if (!*received) return MHA_OK;
    return mha__cluster_check(c, MPI_Recv(NULL, 0, MPI_BYTE, 0, BUSY, c->comm, MPI_STATUS_IGNORE), "MPI_Recv", err);
}

mha_status mha__cluster_wait(mha_cluster *cluster, const char *step, mha_error *err)
{
    double since = mha__cluster_now();
    MHA__TRY(check_usable(cluster, err));
    while (cluster->pending > 0) {
        int count, sign;
        MHA__TRY(test_messages(cluster, &count, err));
        MHA__TRY(mha__cluster_serve(cluster, err));
        MHA__TRY(take_sign(cluster, &sign, err));
        const double now = mha__cluster_now();
        if (count > 0 || sign) since = now;
        if (now - since > cluster->timeout) return timed_out(cluster, step, err);
        mha__cluster_rest(now - since);
    }
    return MHA_OK;
}

mha_status mha__cluster_tick(mha_cluster *cluster, mha_error *err)
{
    int count;
    const double now = mha__cluster_now();
    MHA__TRY(check_usable(cluster, err));
    if (now - cluster->last_tick < TICK) return MHA_OK;
    cluster->last_tick = now;
    MHA__TRY(mha__cluster_serve(cluster, err));
    MHA__TRY(send_signs(cluster, now, err));
    return test_messages(cluster, &count, err);
}
