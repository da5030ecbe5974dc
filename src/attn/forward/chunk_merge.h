/* chunk_merge.h - merges partial results of chunks of keys in a binary tree that the chunk indices determine.
 *
 * Chunk c is leaf c of an infinite tree. A leaf that was not computed is empty, and merging an empty partial result has
 * no effect. The result of a row therefore does not depend on which chunks its tile skips, or on keys that only other
 * rows of the tile attend to.
 *
 * The stack works like a binary counter: level l stores the result of 2^l chunks until its right sibling, the result of
 * the next 2^l chunks, is complete. */
#ifndef MHA_ATTN_FORWARD_CHUNK_MERGE_H
#define MHA_ATTN_FORWARD_CHUNK_MERGE_H

#include "attn/plan/plan.h"
#include "base/size.h"

typedef struct mha__merge_stack {
    const mha__kernels *kernels;
    int64_t rows, dv, o_stride;
    mha__partial *level; /* plan->levels + 1 entries; level[levels] is temporary memory */
    int levels;
    uint64_t held; /* bit l is set if level l contains a result */
} mha__merge_stack;

/* Returns the number of levels of the tree that merges `keys` keys, at least one. */
static inline int mha__merge_levels(int64_t keys)
{
    int levels = 1;
    while (mha__ceil_div(keys, MHA_ATTN_CHUNK) >> levels)
        levels++;
    return levels;
}

/* Pushes the result of the 2^level chunks that begin at `chunk`, a multiple of 2^level. Reads the result from
 * level[levels], which may then be reused. Each push must begin where the previous push ended. */
void mha__merge_push(mha__merge_stack *stack, int64_t chunk, int level);
/* Merges all results on the stack, latest first, into level[levels]. Requires at least one previous push. */
void mha__merge_finish(mha__merge_stack *stack);

#endif
