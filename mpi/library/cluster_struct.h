/* cluster_struct.h - the cluster, its transfers under way, and what its functions share. */
#ifndef MHA_MPI_CLUSTER_STRUCT_H
#define MHA_MPI_CLUSTER_STRUCT_H

#include <mpi.h>
#include <stdbool.h>

#include "mha/cluster.h"

/* Evaluates a call and returns its status from the enclosing function unless it is MHA_OK. */
#define MHA__TRY(expr)                         \
    do {                                       \
        mha_status mha__st = (expr);           \
        if (mha__st != MHA_OK) return mha__st; \
    } while (0)

enum { MHA__HOST_NAME = 64, MHA__ADDENDS = 1 << 14 };

/* One message under way. */
typedef struct mha__message {
    int peer;
    bool sends;
} mha__message;

/* What the callback between tiles of a context does. */
typedef struct mha__hook {
    struct mha__hook *next;
    mha_cluster *cluster;
    mha_between_tiles_fn between_tiles; /* of the caller; may be NULL */
    void *user;
} mha__hook;

struct mha__shared_work;

struct mha_cluster {
    MPI_Comm comm;
    bool finalizes; /* mha_cluster_open initialized MPI */
    bool broken;    /* a transfer failed or timed out */
    mha_cluster_info info;
    char (*hosts)[MHA__HOST_NAME]; /* [ranks] */
    int64_t *gathered;             /* [ranks] result of mha__cluster_gather */
    int64_t *addends;              /* [MHA__ADDENDS] of another rank */
    mha__hook *hooks;              /* of the contexts */
    struct mha__shared_work *work; /* NULL = none was asked for */
    double timeout, record_pause;
    int64_t message_bytes;

    /* Messages under way: the first `pending` entries of both arrays. */
    MPI_Request *requests;
    mha__message *messages;
    int *finished; /* [capacity] room for MPI_Testsome */
    int pending, capacity;
    double last_tick; /* time of the last call of mha__cluster_tick */
};

/* Writes "rank R (HOST): " and the formatted message to `err` (may be NULL), and returns `status`. */
mha_status mha__cluster_fail(const mha_cluster *cluster, mha_error *err, mha_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
mha_status mha__cluster_no_memory(const mha_cluster *cluster, mha_error *err, size_t bytes, const char *what);
/* The same for the result of an MPI call, named `call`; MHA_OK for MPI_SUCCESS. Breaks the cluster otherwise. */
mha_status mha__cluster_check(mha_cluster *cluster, int result, const char *call, mha_error *err);

/* ---- transfers (cluster_transfer.c): a rank starts any number, then waits for all of them ---- */

/* Start to send to or receive from `peer`. Both sides must give the same number of bytes and start their transfers with
 * one peer in the same order. `data` must stay as it is until mha__cluster_wait. */
mha_status mha__cluster_send(mha_cluster *cluster, const void *data, size_t bytes, int peer, mha_error *err);
mha_status mha__cluster_receive(mha_cluster *cluster, void *data, size_t bytes, int peer, mha_error *err);
/* Waits until all transfers are done. MHA_ERR_IO naming a peer, and `step`, if none of them ends for `timeout`. */
mha_status mha__cluster_wait(mha_cluster *cluster, const char *step, mha_error *err);
/* Lets transfers progress, at most every 50 us; for calls between pieces of other work. */
mha_status mha__cluster_tick(mha_cluster *cluster, mha_error *err);
/* Gives the core away for a moment, longer after a longer wait [s]. */
void mha__cluster_rest(double waited);
/* Releases the list of messages. */
void mha__cluster_transfers_free(mha_cluster *cluster);

/* Collective. *all gets one number of each rank, [ranks], valid until the next call. */
mha_status mha__cluster_gather(mha_cluster *cluster, int64_t own, const int64_t **all, mha_error *err);

/* Collective. mha_cluster_agree, whether or not work is under way. */
mha_status mha__cluster_agree_now(mha_cluster *cluster, mha_status status, mha_error *err);

/* ---- shared work (cluster_work.c) ---- */

/* On rank 0: answers the ranks that asked for a step. Called wherever this rank waits or lets transfers progress. */
mha_status mha__cluster_serve(mha_cluster *cluster, mha_error *err);
/* Ends work that is under way, or whose end this rank learned of. Returns true if all ranks agreed on a failure
 * already, which *err then gets; else leaves the agreement to the caller. */
bool mha__cluster_work_leave(mha_cluster *cluster, mha_error *err);
void mha__cluster_work_free(mha_cluster *cluster);

/* Seconds since an arbitrary moment. */
double mha__cluster_now(void);

#endif
