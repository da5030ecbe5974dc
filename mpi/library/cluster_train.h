/* cluster_train.h - the state of training on several ranks, and the all-reduce of gradients. */
#ifndef MPI_LIBRARY_CLUSTER_TRAIN_H
#define MPI_LIBRARY_CLUSTER_TRAIN_H

#include "library/cluster_struct.h"

/* Number of values in a piece; a piece is received while the previous piece is added. */
enum { MHA__GRADIENT_PIECE = 1 << 18 };

typedef struct mha__shared_training {
    mha_train_ranks callbacks;
    bool failed;
    mha_error failure; /* agreed on by all ranks */
    float *pieces;     /* [2, MHA__GRADIENT_PIECE] */
} mha__shared_training;

/* Add the gradients of all ranks: after mha__reduce_scatter, this rank has the sums of its own range of the values, and
 * mha__all_gather distributes the ranges of all ranks. `user` is the cluster; range r is starts[r] .. starts[r + 1]. */
mha_status mha__reduce_scatter(void *user, float *values, const int64_t *starts, mha_error *err);
mha_status mha__all_gather(void *user, void *values, size_t size, const int64_t *starts, mha_error *err);

/* Starts sending range `range` of the values to `peer`, or receiving it from `peer`. */
mha_status mha__move_range(mha_cluster *cluster, void *values, size_t size, const int64_t *starts, int range, int peer,
                           bool sends, mha_error *err);

#endif
