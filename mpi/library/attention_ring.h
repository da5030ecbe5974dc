/* attention_ring.h - the modes ring and tree of mha_cluster_mode. */
#ifndef MHA_MPI_ATTENTION_RING_H
#define MHA_MPI_ATTENTION_RING_H

#include "library/shard_call.h"

mha_status mha__attention_ring(const mha__shared_call *call, bool tree, mha_error *err);

#endif
