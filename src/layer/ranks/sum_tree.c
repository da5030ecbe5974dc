/* sum_tree.c - see sum_tree.h. */
#include "layer/ranks/sum_tree.h"

#include "layer/elementwise.h"
#include <stdbool.h>

static bool are_siblings(const mha__subtree *a, const mha__subtree *b)
{
    return a->groups == b->groups && a->first % (2 * a->groups) == 0;
}

void mha__sum_tree_add(mha_ctx *ctx, mha__sum_tree *tree, mha__subtree next, int64_t count)
{
    while (tree->count > 0 && are_siblings(&tree->subtree[tree->count - 1], &next)) {
        const mha__subtree *left = &tree->subtree[--tree->count];
        if (next.sum) mha__join(ctx, MHA__ADD, count, next.sum, left->sum);
        next = (mha__subtree){left->first, 2 * left->groups, left->sum};
    }
    tree->subtree[tree->count++] = next;
}

int mha__sum_tree_depth(int first, int end)
{
    mha__sum_tree tree = {0};
    int depth = 0;
    for (int group = first; group < end; group++) {
        if (tree.count + 1 > depth) depth = tree.count + 1;
        mha__sum_tree_add(NULL, &tree, (mha__subtree){group, 1, NULL}, 0);
    }
    return depth;
}

mha__sum_tree mha__sum_tree_of(int first, int end)
{
    mha__sum_tree tree = {0};
    for (int group = first; group < end; group++)
        mha__sum_tree_add(NULL, &tree, (mha__subtree){group, 1, NULL}, 0);
    return tree;
}
