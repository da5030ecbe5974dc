/* fwd_tiled.h - the forward pass of one tile of queries. */
#ifndef MHA_ATTN_FWD_TILED_H
#define MHA_ATTN_FWD_TILED_H

#include "attn/plan.h"

/* Computes task `task` of [0, plan->tasks): MHA__TILE_Q queries of one batch and head, with the scratch memory of
 * `worker`. An mha__task_fn; `call` is an mha__call. */
void mha__fwd_tile(void *call, int64_t task, int worker);

#endif
