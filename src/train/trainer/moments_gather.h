/* moments_gather.h - sends the moments of all ranks to rank 0 for a checkpoint. */
#ifndef MHA_TRAIN_TRAINER_MOMENTS_GATHER_H
#define MHA_TRAIN_TRAINER_MOMENTS_GATHER_H

#include "mha/train.h"

/* Collective call before saving. On rank 0, returns immediately; rank 0 may then call mha__moments_request. On the
 * other ranks, answers these requests and returns when rank 0 ends the exchange. */
mha_status mha__moments_share(const mha_trainer *trainer, mha_error *err);

/* On rank 0: fetches `count` elements of tensor `index` of the trainer's state from the ranks (a callback of type
 * mha__outgoing_read). */
mha_status mha__moments_request(void *user, int64_t index, int64_t first, int64_t count, void *to, mha_error *err);

/* Collective call after saving: ends the exchange. Returns the status of rank 0 on all ranks. */
mha_status mha__moments_unshare(const mha_trainer *trainer, mha_status status, mha_error *err);

#endif
