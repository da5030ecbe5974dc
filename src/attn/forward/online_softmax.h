/* online_softmax.h - the forward pass of one tile of queries. */
#ifndef MHA_ATTN_FORWARD_ONLINE_SOFTMAX_H
#define MHA_ATTN_FORWARD_ONLINE_SOFTMAX_H

#include "attn/plan/plan.h"

/* Computes part `item % plan->parts` of the keys for task `item / plan->parts`. If a plan has several parts, all of
 * them must be complete before the first mha__fwd_tile, which merges them. */
void mha__fwd_part(void *call, int64_t item, int worker);

/* Computes task `task` of [0, plan->tasks): up to plan->tile_rows rows of one batch and grid head, in the scratch
 * memory of `worker`. The function has type mha__task_fn; `call` points to an mha__call. */
void mha__fwd_tile(void *call, int64_t task, int worker);

/* Computes all tiles of one batch and head in ascending order of rows, for statistics that sum over rows: see
 * attention_stats.h. */
void mha__fwd_head(void *call, int64_t head, int worker);

/* ---- forward_single_block.c: replaces mha__fwd_tile if plan->single_block is set ---- */

/* Returns why a plan cannot use the single-block path, or NULL if it can. Requires that desc, kernels, rows and storage
 * types of the plan are set.
 */
const char *mha__fwd_why_not_single_block(const mha_attn_plan *plan);
/* Returns the scratch memory per worker of the single-block path in bytes. */
size_t mha__fwd_single_block_bytes(const mha_attn_plan *plan);
void mha__fwd_single_block(void *call, int64_t task, int worker);

#endif
