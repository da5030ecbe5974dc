/* worker_sums.h - sums over the virtual workers of a step (mha/train.h), in a binary tree.
 *
 * A process runs its workers one after another. The sum over a subtree of 2^k workers is stored at level k until the
 * sum over the next subtree of the same size is complete, as in a binary counter. */
#ifndef MHA_TRAIN_TRAINER_WORKER_SUMS_H
#define MHA_TRAIN_TRAINER_WORKER_SUMS_H

#include "mha/train.h"

/* The sum of a complete subtree of workers. */
typedef struct mha__worker_sum {
    float *gradients; /* gradients of all parameters; NULL if no parameters are trained */
    double *gates;    /* gradients of the gates; NULL if no gates are trained */
    double loss;
} mha__worker_sum;

/* Returns the number of workers that this process runs in a step, each with the same number of consecutive batches. */
int64_t mha__own_workers(const mha_trainer *trainer);

mha_status mha__worker_sums_create(mha_trainer *trainer, mha_error *err);
void mha__worker_sums_free(mha_trainer *trainer);

/* Must be called after the batches of each worker 0, 1, ... of this process, when the trainer contains the worker's
 * gradients. After the last worker, gradients and *loss are the sums over all workers; after any other worker, they are
 * 0, ready for the next worker. */
void mha__worker_end(mha_trainer *trainer, int64_t worker, double *loss);

#endif
