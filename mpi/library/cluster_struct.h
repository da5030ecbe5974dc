/* cluster_struct.h - the cluster, its pending transfers, and internal functions. */
#ifndef MHA_MPI_CLUSTER_STRUCT_H
#define MHA_MPI_CLUSTER_STRUCT_H

#include "mha/cluster.h"
#include "mha/model_ranks.h"
#include <mpi.h>
#include <stdbool.h>

/* Evaluates a call and returns its status from the enclosing function unless it is MHA_OK. */
#define MHA__TRY(expr)                         \
    do {                                       \
        mha_status mha__st = (expr);           \
        if (mha__st != MHA_OK) return mha__st; \
    } while (0)

enum { MHA__HOST_NAME = 64, MHA__ADDENDS = 1 << 14 };

/* A pending message. */
typedef struct mha__message {
    int peer; /* -1 = all ranks (mha__cluster_add) */
    bool sends;
} mha__message;

/* State of a context's callback between tiles. */
typedef struct mha__hook {
    struct mha__hook *next;
    mha_cluster *cluster;
    mha_between_tiles_fn between_tiles; /* the caller's callback; may be NULL */
    void *user;
} mha__hook;

struct mha__shared_work;
struct mha__shared_training;

struct mha_cluster {
    MPI_Comm comm;
    bool finalizes;    /* mha_cluster_open initialized MPI */
    bool broken;       /* a transfer failed or timed out; no other transfer may start */
    mha_error failure; /* the first such failure, if broken */
    mha_cluster_info info;
    char (*hosts)[MHA__HOST_NAME];         /* [ranks] */
    int64_t *gathered;                     /* [ranks] result of mha__cluster_gather */
    int64_t *addends;                      /* [MHA__ADDENDS] values received from another rank */
    mha__hook *hooks;                      /* list of the contexts' callbacks */
    struct mha__shared_work *work;         /* NULL = shared work was never requested */
    struct mha__shared_training *training; /* NULL = mha_cluster_train was never called */
    mha_model_ranks model_ranks;           /* result of mha_cluster_model_ranks */
    double timeout, record_pause;
    int64_t message_bytes;

    /* Pending messages: the first `pending` entries of both arrays. */
    MPI_Request *requests;
    mha__message *messages;
    int *finished; /* [capacity] output of MPI_Testsome */
    int pending, capacity;
    double last_tick; /* time of the last call of mha__cluster_tick */
    bool idle;        /* a wait restarts its timeout when rank 0 reports that it is busy */
    double last_sign; /* rank 0: time of its last such report */
};

/* Writes "rank R (HOST): " and the formatted message to `err` (may be NULL), and returns `status`. */
mha_status mha__cluster_fail(const mha_cluster *cluster, mha_error *err, mha_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
mha_status mha__cluster_no_memory(const mha_cluster *cluster, mha_error *err, size_t bytes, const char *what);
/* Reads a struct that begins with `size` (mha_struct_read of types.h) and is named `name`. */
mha_status mha__cluster_read(const mha_cluster *cluster, void *own, size_t own_size, const void *given,
                             const char *name, mha_error *err);
/* Marks the cluster as broken and stores the first failure. Writes the formatted message to `err` (may be NULL) as
 * mha__cluster_fail does, and returns MHA_ERR_IO. */
mha_status mha__cluster_break(mha_cluster *cluster, mha_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Stores the failure of a cluster that is now broken, unless an earlier one is stored. */
void mha__cluster_keep_failure(mha_cluster *cluster, const mha_error *failure);
/* Converts the result of the MPI call named `call`. Returns MHA_OK for MPI_SUCCESS; otherwise breaks the cluster. */
mha_status mha__cluster_check(mha_cluster *cluster, int result, const char *call, mha_error *err);

mha_status mha__mode_check(const mha_cluster *cluster, mha_cluster_mode mode, mha_error *err);

/* ---- transfers (cluster_transfer.c): a rank starts any number of transfers, then waits for all of them ---- */

/* Start sending to or receiving from `peer`. Both ranks must pass the same number of bytes and start their transfers
 * with each other in the same order. `data` must stay unchanged and allocated until mha__cluster_wait. */
mha_status mha__cluster_send(mha_cluster *cluster, const void *data, size_t bytes, int peer, mha_error *err);
mha_status mha__cluster_receive(mha_cluster *cluster, void *data, size_t bytes, int peer, mha_error *err);
/* Collective. Starts to replace each value with its sum over all ranks, in an order that MPI chooses. */
mha_status mha__cluster_add(mha_cluster *cluster, float *values, int64_t count, mha_error *err);
/* Waits until all transfers are done. If no transfer completes within `timeout`, fails with MHA_ERR_IO and a message
 * that names `step` and a peer. */
mha_status mha__cluster_wait(mha_cluster *cluster, const char *step, mha_error *err);
/* Lets transfers progress, at most every 50 us. Must be called regularly during other work. */
mha_status mha__cluster_tick(mha_cluster *cluster, mha_error *err);
/* Yields the core or sleeps; the pause grows with the time `waited` so far [s]. */
void mha__cluster_rest(double waited);
/* Releases the list of messages. */
void mha__cluster_transfers_free(mha_cluster *cluster);

/* A group of `count` ranks that work together: first, first + step, ... `me` is the index of this rank in the group. */
typedef struct mha__group {
    int first, step, count, me;
} mha__group;
mha__group mha__cp_group(const mha_cluster *cluster);
static inline int mha__group_rank(const mha__group *group, int member)
{
    return group->first + member * group->step;
}
/* Collective over the group. Copies `bytes` bytes from member `root` to all members. */
mha_status mha__group_broadcast(mha_cluster *cluster, const mha__group *group, int root, void *data, size_t bytes,
                                mha_error *err);

/* Collective. Gathers one value per rank: sets *all to an array [ranks], which is valid until the next call. */
mha_status mha__cluster_gather(mha_cluster *cluster, int64_t own, const int64_t **all, mha_error *err);

/* Collective. Like mha_cluster_agree, but also valid during shared work. */
mha_status mha__cluster_agree_now(mha_cluster *cluster, mha_status status, mha_error *err);

/* ---- shared work (cluster_work.c) ---- */

/* On rank 0: answers the ranks that have requested a step. Called whenever rank 0 waits or lets transfers progress. */
mha_status mha__cluster_serve(mha_cluster *cluster, mha_error *err);
/* Ends shared work that is in progress or has failed. If all ranks have already agreed on a failure, stores it in *err
 * and returns true. If not, returns false, and the caller must still agree with the other ranks. */
bool mha__cluster_work_leave(mha_cluster *cluster, mha_error *err);
void mha__cluster_work_free(mha_cluster *cluster);

/* ---- training (cluster_train.c) ---- */

/* Returns true and stores the failure in *err if all ranks have already agreed on a failure. */
bool mha__cluster_training_leave(mha_cluster *cluster, mha_error *err);
void mha__cluster_training_free(mha_cluster *cluster);

/* Returns the seconds since an arbitrary point in time. */
double mha__cluster_now(void);

static inline int64_t mha__min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
