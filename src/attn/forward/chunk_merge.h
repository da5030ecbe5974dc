/* chunk_merge.h - merges partial results of chunks of keys in a binary tree that the chunk numbers determine.
 *
 * Chunk c is leaf c of an infinite tree. A leaf that was not computed is empty, and merging an empty partial result
 * has no effect. So it does not matter which chunks a tile skips, or whether one of its rows attends to fewer keys.
 *
 * The stack works like a binary counter: level l holds the result of 2^l chunks that waits for its right neighbor. */
#ifndef MHA_ATTN_FORWARD_CHUNK_MERGE_H
#define MHA_ATTN_FORWARD_CHUNK_MERGE_H

#include "attn/plan/plan.h"
#include "base/size.h"

typedef struct mha__merge_stack {
    const mha__kernels *kernels;
    int64_t rows, dv, o_stride;
    mha__partial *level; /* plan->levels + 1 entries; [levels] is spare */
    int levels;
    uint64_t held; /* bit l: level l holds a result */
} mha__merge_stack;

/* Levels of the tree that merges `keys` keys, at least one. */
static inline int mha__merge_levels(int64_t keys)
{
    int levels = 1;
    while (mha__ceil_div(keys, MHA_ATTN_CHUNK) >> levels)
        levels++;
    return levels;
}

/* Pushes the result of the 2^level chunks that begin at `chunk`, a multiple of 2^level. The result is read from
 * level[levels], which is free again afterwards. Each push must begin where the previous one ended. */
void mha__merge_push(mha__merge_stack *stack, int64_t chunk, int level);
/* Merges all results on the stack, latest first, into level[levels]. Requires at least one push. */
void mha__merge_finish(mha__merge_stack *stack);

#endif
