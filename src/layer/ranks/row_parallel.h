/* row_parallel.h - a product y = x W^T + b whose inputs (columns of W) are divided among processes.
 *
 * Each process multiplies the columns of its groups, group by group. Sums of groups are added in the tree of
 * sum_tree.h, so y is bitwise identical for any number of processes. */
#ifndef MHA_LAYER_RANKS_ROW_PARALLEL_H
#define MHA_LAYER_RANKS_ROW_PARALLEL_H

#include "layer/linear/linear.h"
#include "layer/ranks/rank_exchange.h"

typedef struct mha__row_parallel mha__row_parallel;

/* The matrix W [out, items * item_width], divided by items, such as heads of head_dim columns. */
typedef struct mha__divided_matrix {
    int64_t items, item_width, out;
    mha_matrix group[MHA_RANK_GROUPS]; /* [out, columns of the group]; unset for groups of other ranks */
    const float *bias;                 /* [out], or NULL */
} mha__divided_matrix;

/* Packs the groups of this rank and copies the bias. `ranks` must outlive the product. */
mha_status mha__row_parallel_create(mha_ctx *ctx, const mha_model_ranks *ranks, const mha__divided_matrix *matrix,
                                    mha__row_parallel **product, mha_error *err);
void mha__row_parallel_free(mha__row_parallel *product);

/* Returns the bytes of workspace for a call with `rows` rows; SIZE_MAX on overflow. */
size_t mha__row_parallel_bytes(const mha__row_parallel *product, int64_t rows);
/* Collective. Computes y [rows, out] on all ranks. x contains the inputs of this rank, in rows of `x_stride`
 * elements. */
mha_status mha__row_parallel_run(const mha__row_parallel *product, const float *x, int64_t x_stride, int64_t rows,
                                 void *workspace, float *y, mha_error *err);

#endif
