/* rank_sums.h - the steps of a training run in which its processes (ranks) exchange data, through the callbacks of
 * mha/train_ranks.h. Without ranks, these functions do nothing. */
#ifndef MHA_TRAIN_TRAINER_RANK_SUMS_H
#define MHA_TRAIN_TRAINER_RANK_SUMS_H

#include "mha/train.h"
#include <stdbool.h>

/* Begins a step. Returns the error of any rank that failed since the previous step. In the first step, compares the
 * weights and options of the ranks. */
mha_status mha__ranks_begin(mha_trainer *trainer, mha_error *err);

/* Sums gradients, *loss and *labels over the workers of all ranks. Each rank passes the status of its workers, with the
 * message in `err`. If any rank has failed, nothing is summed. Each rank receives the sums of the gradients that it
 * updates. */
mha_status mha__ranks_add(mha_trainer *trainer, mha_status status, double *loss, int64_t *labels, mha_error *err);

/* Copy the sums of squares of each rank's blocks, or each rank's updated weights, to all ranks. */
mha_status mha__ranks_gather_squares(mha_trainer *trainer, mha_error *err);
mha_status mha__ranks_gather_weights(mha_trainer *trainer, mha_error *err);

/* Returns true if gradients are summed over the ranks while the backward pass of the last batch runs. In that case,
 * on_context in mha_model_loss_args must be mha__ranks_on_context, with the trainer as its user. */
bool mha__ranks_overlap(const mha_trainer *trainer);
int mha__ranks_on_context(void *user, const mha_model_context_gradient *layer);

#endif
