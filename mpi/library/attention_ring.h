/* attention_ring.h - the ways in which keys reach rows; see mha_cluster_mode. */
#ifndef MHA_MPI_ATTENTION_RING_H
#define MHA_MPI_ATTENTION_RING_H

#include "shard_call.h"

mha_status mha__attention_ring(const mha__shared_call *call, bool tree, mha_error *err);

#endif
