/* packed_linear.h - the packed weights of a linear layer: linear_pack.c writes them, linear.c multiplies them.
 *
 * The output columns are divided into blocks: whole panels of one matrix, about 65,536 elements. A block stays in the
 * level-2 cache while rows stream past it. The boundaries of blocks depend on the shape, never on the thread count. */
#ifndef MHA_LAYER_LINEAR_PACKED_LINEAR_H
#define MHA_LAYER_LINEAR_PACKED_LINEAR_H

#include "layer/activation.h"
#include "layer/linear/linear.h"

/* The right operand of one product: columns [column, column + columns) of y, all from one part. */
typedef struct mha__column_block {
    int64_t column, columns;
    int64_t part, part_row; /* index of the part, and the first row of its matrix */
    char *panels;
} mha__column_block;

struct mha_linear {
    mha_ctx *ctx;
    const mha__kernels *kernels;
    const mha__dense *dense;  /* functions for weights of 8 or 16 bits; NULL for f32 and f64 */
    mha__row_fn activation;   /* NULL without an activation */
    mha__product_fn *product; /* multiplies weights of f32 and f64 */
    int64_t in, out, blocks;
    char *bias; /* [out]; NULL if no part has a bias */
    mha__column_block *block;
};

/* Returns the distance between panels [bytes]. */
static inline int64_t mha__panel_bytes(const mha__kernels *kernels, const mha__dense *dense, int64_t in)
{
    return dense ? mha__dense_panel(dense, in) : in * kernels->nr * (int64_t)kernels->real_size;
}

#endif
