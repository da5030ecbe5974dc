/* sum_tree.h - adds one array per group in a binary tree: groups 2 n and 2 n + 1 first, then these sums in pairs, and
 * so on. Groups are added in ascending order; a sum is computed as soon as both of its parts are complete. Adding only
 * the groups of an aligned range gives its subtree, so several processes can compute parts of the tree. */
#ifndef MHA_LAYER_RANKS_SUM_TREE_H
#define MHA_LAYER_RANKS_SUM_TREE_H

#include "mha/ctx.h"
#include "mha/model_ranks.h"

/* The sum of the groups [first, first + groups), an aligned subtree. */
typedef struct mha__subtree {
    int first, groups;
    float *sum;
} mha__subtree;

/* Subtrees whose sibling has not been added yet, in ascending order. */
typedef struct mha__sum_tree {
    int count;
    mha__subtree subtree[MHA_RANK_GROUPS];
} mha__sum_tree;

/* Adds a subtree that follows all subtrees added so far. Each sum of two subtrees overwrites the array of the first
 * subtree, which has `count` elements. If `sum` is NULL, only computes which subtrees remain. */
void mha__sum_tree_add(mha_ctx *ctx, mha__sum_tree *tree, mha__subtree next, int64_t count);
/* Returns the largest number of arrays that are in use at a time while the groups [first, end) are added one by one. */
int mha__sum_tree_depth(int first, int end);
/* Returns the subtrees that remain after the groups [first, end) have been added. */
mha__sum_tree mha__sum_tree_of(int first, int end);

#endif
