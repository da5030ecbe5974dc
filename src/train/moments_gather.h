/* moments_gather.h - the moments of all ranks, for the checkpoint that rank 0 writes. */
#ifndef MHA_TRAIN_MOMENTS_GATHER_H
#define MHA_TRAIN_MOMENTS_GATHER_H

#include "mha/train.h"

/* Collective, before the save: rank 0 returns immediately and may call mha__moments_request; the other ranks answer its
 * requests and return when it ends the exchange. */
mha_status mha__moments_share(const mha_trainer *trainer, mha_error *err);

/* On rank 0: fetches elements of tensor `index` of the trainer's state (mha__outgoing_read). */
mha_status mha__moments_request(void *user, int64_t index, int64_t first, int64_t count, void *to, mha_error *err);

/* Collective, after the save: ends the exchange. Returns the status of rank 0 on all ranks. */
mha_status mha__moments_unshare(const mha_trainer *trainer, mha_status status, mha_error *err);

#endif
