/* train_ranks.h - training one model with several processes (data parallelism).
 *
 * The batches of a step are divided among the processes (ranks), their gradients are added, and each rank updates a
 * part of the weights. Each rank makes the same calls in the same order, with the same model, options and batches. The
 * ranks communicate through these callbacks. libmha_mpi provides them (mha_cluster_train in cluster.h); a program may
 * supply its own.
 *
 * A range of a vector belongs to each rank: `starts` has ranks + 1 entries in ascending order, and elements starts[r]
 * to starts[r + 1] - 1 belong to rank r. Ranges may be empty.
 *
 * All callbacks are collective: every rank calls the same one, on the thread that called the trainer. If a callback
 * fails, the trainer returns its status and message. `err` is never NULL. All callbacks must be set. */
#ifndef MHA_TRAIN_RANKS_H
#define MHA_TRAIN_RANKS_H

#include "mha/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_train_ranks {
    size_t size; /* sizeof(mha_train_ranks) */
    void *user;
    int rank, ranks; /* index of this process; number of processes, a power of two */

    /* Each rank passes its own status and, if the status is not MHA_OK, the message in `err`. On all ranks, returns the
     * status and message of the first rank that failed. `idle` = 1: rank 0 may compute for any length of time. */
    mha_status (*agree)(void *user, mha_status status, int idle, mha_error *err);
    /* Checks that the `bytes` bytes of `data` are identical on all ranks; otherwise MHA_ERR_ARG on all ranks, naming
     * `what`. */
    mha_status (*same)(void *user, const char *what, const void *data, size_t bytes, mha_error *err);
    /* Copies `bytes` bytes of `data` from rank 0 to all ranks. */
    mha_status (*broadcast)(void *user, void *data, size_t bytes, mha_error *err);

    /* Replaces each value with its sum over all ranks. */
    mha_status (*add_integers)(void *user, int64_t *values, int64_t count, mha_error *err);
    /* Replaces each floating-point value with its sum over all ranks, added in a binary tree: adjacent ranks in pairs,
     * then adjacent sums in pairs, and so on. All ranks get bitwise identical sums. */
    mha_status (*add_doubles)(void *user, double *values, int64_t count, mha_error *err);
    /* Adds `values` of all ranks in the same tree. Each rank gets only the sums of its own range; all other elements
     * are unspecified. */
    mha_status (*add_floats)(void *user, float *values, const int64_t *starts, mha_error *err);
    /* `gather` copies each rank's range of `values`, whose elements have `size` bytes, to all ranks; `collect` copies
     * these ranges to rank 0 only. */
    mha_status (*gather)(void *user, void *values, size_t size, const int64_t *starts, mha_error *err);
    mha_status (*collect)(void *user, void *values, size_t size, const int64_t *starts, mha_error *err);

    /* `start` begins to replace each value with its sum over all ranks, in an order of additions that depends only on
     * the number of ranks. `finish` waits until all sums that were started are complete. */
    mha_status (*start)(void *user, float *values, int64_t count, mha_error *err);
    mha_status (*finish)(void *user, mha_error *err);
} mha_train_ranks;

#ifdef __cplusplus
}
#endif
#endif
