/* forward_tiled.h - the forward pass of one tile of queries. */
#ifndef MHA_ATTN_FORWARD_FORWARD_TILED_H
#define MHA_ATTN_FORWARD_FORWARD_TILED_H

#include "attn/plan/plan.h"

/* Computes part `item % plan->parts` of the keys for task `item / plan->parts`, where a plan has parts. To be done with
 * all of them before the first mha__fwd_tile, which merges them. */
void mha__fwd_part(void *call, int64_t item, int worker);

/* Computes task `task` of [0, plan->tasks): MHA__TILE_Q rows of one batch and head of the grid, with the scratch
 * memory of `worker`. An mha__task_fn; `call` is an mha__call. */
void mha__fwd_tile(void *call, int64_t task, int worker);

/* Computes all tiles of one batch and head, rows ascending, for what is summed over them: see attention_stats.h. */
void mha__fwd_head(void *call, int64_t head, int worker);

/* ---- forward_single_block.c: in place of mha__fwd_tile where a plan is `one_block` ---- */

/* NULL if it may be. Needs desc, kernels, rows and the stored types. */
const char *mha__fwd_why_not_one_block(const mha_attn_plan *plan);
/* Scratch memory of a worker then. */
size_t mha__fwd_one_block_bytes(const mha_attn_plan *plan);
void mha__fwd_one_block(void *call, int64_t task, int worker);

#endif
