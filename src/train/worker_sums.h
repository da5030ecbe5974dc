/* worker_sums.h - sums over the virtual workers of a step (mha/train.h), in a binary tree.
 *
 * A process runs its workers one after another. The sum of worker w waits in `level[k]` until the sum that is added to
 * its right is complete, as in a binary counter: k is the number of trailing ones of w. */
#ifndef MHA_TRAIN_WORKER_SUMS_H
#define MHA_TRAIN_WORKER_SUMS_H

#include "mha/train.h"

/* The sum of a complete subtree of workers. */
typedef struct mha__worker_sum {
    float *gradients; /* of all parameters; NULL if there are none */
    double *gates;    /* gradients of the gates; NULL without gates */
    double loss;
} mha__worker_sum;

/* Returns the number of workers that this process runs in a step, each with the same number of consecutive batches. */
int64_t mha__own_workers(const mha_trainer *trainer);

mha_status mha__worker_sums_create(mha_trainer *trainer, mha_error *err);
void mha__worker_sums_free(mha_trainer *trainer);

/* To be called after the batches of worker 0, 1, ... of this process, whose gradients the trainer holds. After the
 * last worker, gradients and *loss are the sums over all of them; before that, they are zero for the next worker. */
void mha__worker_end(mha_trainer *trainer, int64_t worker, double *loss);

#endif
